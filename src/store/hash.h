/* SPDX-License-Identifier: Apache-2.0 */
/* Hashed keys: any int64 number, turned into a dense one that the rest of the
 * store works with. One table for each host, in memory that its ranks share.
 *
 *   key_of[dense]   the key that it stands for
 *   entry[]         dense + 1, found by the hash of the key; 0: empty
 *
 * Keys are found without a lock, and entered under one that outlives its holder
 * (a robust mutex). The entry is stored last: a rank that dies meanwhile leaves
 * nothing half done, at most a dense number that stands for nothing. */
#ifndef WF_STORE_HASH_H
#define WF_STORE_HASH_H

#include <weft/comm.h>
#include <weft/rows.h>

typedef struct wf_hash wf_hash;

/* Collective over the ranks of a host. There is room for `max_keys`, and at
 * most `keys` of it are used until wf_hash_limit says another number. */
weft_status wf_hash_create(weft_comm *host, uint64_t keys, uint64_t max_keys,
                           wf_hash **out);
void wf_hash_limit(wf_hash *hash, uint64_t keys);
/* Takes NULL. */
void wf_hash_destroy(wf_hash *hash);

/* The dense numbers of these keys, which are entered if they are new. Fails
 * with WEFT_ERR_NOMEM, naming the key, once there are as many as there is room
 * for. Any thread of any rank of the host. */
weft_status wf_hash_enter(wf_hash *hash, const weft_ids *keys, int64_t *dense);

/* Like wf_hash_enter, but gives -1 for a key that is not there. */
void wf_hash_find(const wf_hash *hash, const weft_ids *keys, int64_t *dense);

/* How many keys there are, and what a dense number stands for. */
uint64_t wf_hash_count(const wf_hash *hash);
int64_t wf_hash_key(const wf_hash *hash, uint64_t dense);

#endif
