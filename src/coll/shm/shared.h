/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers that all members map: one segment for each call of weft_alloc, with
 * a page of its own and then a part of equal size for each member.
 *
 * A member that gives its part back keeps the mapping while another one may
 * still pass its own: it would have to read it. So the segment counts those who
 * have given theirs back, and each member lets go when all have. */
#ifndef WF_COLL_SHM_SHARED_H
#define WF_COLL_SHM_SHARED_H

#include "comm/comm.h"
#include "mem/segment.h"

/* The first page of the segment. */
typedef struct shm_shared_head {
    _Atomic uint32_t given_back; /* members that have */
} shm_shared_head;

typedef struct shm_shared {
    struct shm_shared *next;
    uint32_t id;             /* the same on all members; never 0 */
    size_t bytes;            /* of each part, whole pages */
    size_t parts_at;         /* where in the segment they begin */
    _Atomic bool given_back; /* by this member */
    wf_segment segment;
} shm_shared;

static inline unsigned char *shm_shared_part(const shm_shared *s, uint32_t rank)
{
    return (unsigned char *)s->segment.base + s->parts_at + rank * s->bytes;
}

/* The allocation in whose part for `rank` the range lies, or NULL. */
const shm_shared *shm_shared_find(const shm_shared *list, uint32_t rank,
                                  const void *at, size_t bytes);

const shm_shared *shm_shared_by_id(const shm_shared *list, uint32_t id);

/* Does the range lie within a part? Takes NULL, which holds nothing. */
bool shm_shared_holds(const shm_shared *s, uint64_t at, size_t bytes);

/* Make one; collective, with `key` for its mail. All succeed or all fail; the
 * caller sees to that. */
weft_status shm_shared_make(weft_comm *comm, size_t bytes, uint64_t key,
                            shm_shared **out);
void shm_shared_end(shm_shared *s);

/* Give our part back, with its memory. */
void shm_shared_give_back(shm_shared *s, uint32_t rank);

/* Let go of those that all members have given back. Nobody may be looking at
 * the list. */
void shm_shared_sweep(shm_shared **list, uint32_t members);

#endif
