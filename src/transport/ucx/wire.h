/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks say to each other over UCX, and the checks of it. No part of this
 * needs UCX.
 *
 * Every message is one active message of UCX with a head of fixed length. The
 * head begins with a proof that its sender knows the job's secret: a keyed hash
 * over the job, both ranks in the direction of the message and a random number
 * of each of both ports. So a message that was recorded in another job, or
 * sent in the other direction, proves nothing, and nothing at all is heard from
 * somebody without the secret. UCX does not tell by which connection a message
 * came; hence the proof in each one, which costs a comparison.
 *
 * UCX lets messages overtake each other. Those that have an order carry a
 * number, and the receiver takes them in that order.
 *
 *   EAGER      word: tag; the message follows
 *   AM         word: id, and bytes of the header above 8 bits; header and
 *              payload follow, n bytes together
 *   OFFER      word: tag; n bytes are offered under `token`
 *   WITHDRAWN  what was offered under `token` is not to be had any more
 *   ASK        has all before this been taken? A rank asks before it leaves
 *   WANT       n bytes of what is offered under `token` are wanted under `word`
 *   DATA       n of these, from `word` on, for the receiver's `token`
 *   CUT        the sender has given up the connection
 *   TAKEN      word: so many of those that have an order have been taken, the
 *              last of them an ASK
 *
 * The first five have an order. */
#ifndef WF_TRANSPORT_UCX_WIRE_H
#define WF_TRANSPORT_UCX_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/secret.h"
#include "transport/transport.h"

#define UCX_MAGIC 0x58554657u
#define UCX_VERSION 3u
/* Of an active message: a system call each is what they cost. With its heads it
 * fits into a segment, as a piece of a large message does. */
#define UCX_AM_PAYLOAD ((size_t)WF_AM_PAYLOAD_MOST)

typedef enum ucx_kind {
    UCX_EAGER = 1,
    UCX_AM,
    UCX_OFFER,
    UCX_WITHDRAWN,
    UCX_ASK,
    UCX_WANT,
    UCX_DATA,
    UCX_CUT,
    UCX_TAKEN
} ucx_kind;

typedef struct ucx_head {
    uint64_t proof;
    uint64_t word;
    uint64_t n;
    uint64_t token;
    uint64_t number;
    uint32_t from;
    uint32_t kind;
} ucx_head;
_Static_assert(sizeof(ucx_head) == 48, "layout");

/* What a rank publishes: this, and UCX's address of its worker. */
typedef struct ucx_address {
    uint32_t magic;
    uint32_t version;
    uint64_t nonce;
} ucx_address;
_Static_assert(sizeof(ucx_address) == 16, "layout");

/* The parts of an active message's `word`. */
static inline uint32_t ucx_am_id(const ucx_head *head)
{
    return head->word & 0xff;
}

static inline size_t ucx_am_header(const ucx_head *head)
{
    return (size_t)(head->word >> 8);
}

static inline bool ucx_has_order(const ucx_head *head)
{
    return head->kind <= UCX_ASK;
}

/* Read a head out of `n` bytes; false if it cannot be one. */
bool ucx_wire_read(const void *data, size_t n, ucx_head *out);

/* Does a correct rank send such a head with so many bytes behind it? */
bool ucx_wire_check(const ucx_head *head, size_t payload);

/* What a message from `from` to `to` has to begin with. */
uint64_t ucx_wire_proof(const wf_secret *secret, uint64_t job, uint32_t from,
                        uint32_t to, uint64_t nonce_from, uint64_t nonce_to);

/* Read what a rank has published; false if this version cannot use it. */
bool ucx_wire_address(const void *data, size_t n, ucx_address *out);

#endif
