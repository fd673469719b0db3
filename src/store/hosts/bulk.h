/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on many keys, the short way: one head for all keys of a call that
 * one host has, and one for their answers.
 *
 *   OPS    of a worker, to a server: keys, 8 bytes each, positions, 4, and
 *          epochs, 2; then, for push and set, the rows
 *   DONE   the answer: positions, 4 bytes each; then, for a pull, the rows.
 * Those of positions with the bit NOT_DONE mean nothing
 *
 * A server does so what it can do at once: pull, push and set of a key that it
 * owns at the epoch that the worker knows, whose row nobody holds. That is what
 * the protocol does with such a message, and it changes no state of the key.
 * All others become messages of their own (wf_entry) there, as if the worker
 * had sent those, and are answered so.
 *
 * A worker has no more of them under way to one host than the flow to it allows
 * (comm/flow.h); the rest waits in the order of the calls, and goes out as
 * answers come. So neither does a call of a million keys fill the memory of the
 * server, nor does a call of one key wait behind all of its rows. */
#ifndef WF_STORE_HOSTS_BULK_H
#define WF_STORE_HOSTS_BULK_H

#include "store/hosts/hosts.h"

#define WF_BULK_OP_BYTES                                                       \
    (sizeof(uint64_t) + sizeof(uint32_t) + sizeof(uint16_t)) /* of a key */
#define WF_BULK_NOT_DONE (1u << 31)
#define WF_BULK_KEYS 1024u /* in one answer */

/* Can an operation on its key `i`, with this word in the directory, go so? */
bool wf_bulk_takes(const wf_store_hosts *h, wf_op_kind kind, uint64_t i,
                   uint32_t word);
/* Send what there is room for, and the rest as answers come: keys of one
 * operation for one host. */
void wf_bulk_send(wf_store_hosts *h, wf_share *share);
/* Send what has waited. */
void wf_bulk_go_on(wf_store_hosts *h);
/* Key `i` of an operation was answered by a message of its own. */
void wf_bulk_answered(wf_store_hosts *h, wf_remote *r, uint32_t i);
/* Nothing of the operation that is not answered will be, or be sent. */
void wf_bulk_drop(wf_store_hosts *h, wf_remote *r);
/* The server of this host died: nothing that is under way to it is answered. It
 * is still in h->server. */
void wf_bulk_lost(wf_store_hosts *h, uint32_t host);
/* When something was last heard that the operation waits for. */
uint64_t wf_bulk_heard(const wf_store_hosts *h, const wf_remote *r);

/* Parcels of the kinds OPS (bulk_serve.c) and DONE. */
void wf_bulk_asked(wf_store_hosts *h, uint32_t from, const wf_parcel *parcel,
                   const void *body);
void wf_bulk_done(wf_store_hosts *h, uint32_t from, const wf_parcel *parcel,
                  const void *body);

static inline bool wf_op_has_values(uint64_t kind)
{
    return kind == WF_OP_PUSH || kind == WF_OP_SET;
}

/* Where the rows begin behind n keys. */
static inline uint64_t wf_ops_head(uint64_t n)
{
    return wf_round_up(n * WF_BULK_OP_BYTES, 8);
}

static inline uint64_t wf_done_head(uint64_t n)
{
    return wf_round_up(n * sizeof(uint32_t), 8);
}

#endif
