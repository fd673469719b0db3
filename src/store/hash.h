/* SPDX-License-Identifier: Apache-2.0 */
/* Hashed keys: any int64 number, turned into a dense one that the rest of the
 * store works with. One table for each host, in memory that its ranks share.
 *
 *   key_of[dense]   the key that it stands for
 *   entry[]         dense + 1, found by the hash of the key; 0: empty
 *
 * Each host gives out the dense numbers that are its own number modulo the
 * number of hosts, in order; its table also has what it learnt from others.
 *
 * Keys are found without a lock, and entered under one that outlives its holder
 * (a robust mutex). The entry is stored last: if a rank dies before that, the
 * next one that gets the lock stores it. */
#ifndef WF_STORE_HASH_H
#define WF_STORE_HASH_H

#include <stdbool.h>
#include <weft/comm.h>
#include <weft/rows.h>

typedef struct wf_hash wf_hash;

/* Collective over the ranks of host `number` of `hosts`. There is room for
 * `max_keys` in all, and this host gives out `share` numbers, until
 * wf_hash_limit says another number. */
weft_status wf_hash_create(weft_comm *host, uint32_t hosts, uint32_t number,
                           uint64_t share, uint64_t max_keys, wf_hash **out);
void wf_hash_limit(wf_hash *hash, uint64_t share);
/* Takes NULL. */
void wf_hash_destroy(wf_hash *hash);

/* The host that is asked first for the dense number of a key. If it has none
 * left, the one behind it gives the key its number, and so on. */
uint32_t wf_hash_home(const wf_hash *hash, int64_t key);

/* The dense numbers of these keys. Those that are new get numbers of this host;
 * -1: it has none left. Any thread of any rank of the host. */
weft_status wf_hash_enter(wf_hash *hash, const weft_ids *keys, int64_t *dense);

/* Like wf_hash_enter, but gives -1 for a key that is not there. */
void wf_hash_find(const wf_hash *hash, const weft_ids *keys, int64_t *dense);

/* Another host has given these keys these numbers; where it is -1, none. */
weft_status wf_hash_learn(wf_hash *hash, const int64_t *keys,
                          const int64_t *dense, uint64_t n);

/* How many numbers this host has given out, and may give out. */
uint64_t wf_hash_made(const wf_hash *hash);
uint64_t wf_hash_share(const wf_hash *hash);

/* What a dense number stands for; false: that is not known here. */
bool wf_hash_key(const wf_hash *hash, uint64_t dense, int64_t *key);

#endif
