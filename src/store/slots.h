/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of a host: tables of slots in regions that all its ranks map, a lock
 * word for each slot, undo rows of writers, and the directory.
 *
 *   table.h      how slots lie in memory, and the steps of a write
 *   slots.c      making them
 *   directory.c  the directory, slots that are free, copies written to
 *   lock.c       waiting for a row, and repair after a writer's death
 *   pull.c       reading rows of many keys
 *   batch.c      adding to and setting rows of many keys
 *   step.c       pushes to rows with an optimizer
 *
 * Any rank of the host and any of its threads reads and writes rows at any
 * time. The directory, free slots and marks are changed by one thread of the
 * host only, the server's (docs/design/0013-store.md), while others read
 * them. */
#ifndef WF_STORE_SLOTS_H
#define WF_STORE_SLOTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <weft/region.h>
#include <weft/store.h>

/* Writers of one rank that can hold a lock at the same time: a lock word has 12
 * bits for all writers of a host. */
#define WF_WRITERS 16u
#define WF_WRITERS_ALL 4095u

/* A key that has no slot here: in the directory, the last known owner. */
#define WF_KEY_HERE (1u << 31)

typedef struct wf_slots wf_slots;

typedef struct wf_slots_options {
    weft_dtype type;
    uint64_t keys;
    uint64_t max_keys;
    uint64_t length;              /* of every row, if lengths is NULL */
    const int64_t *lengths;       /* `keys` of them */
    const weft_update *optimizer; /* NULL: none */
    /* Slot = key: one host holds all keys, which have one length. */
    bool direct;
    /* Else: how many slots to make for rows of a length that `keys` keys have.
     * All ranks of the host must say the same. */
    uint64_t (*room)(void *ctx, uint64_t length, uint64_t keys);
    void *ctx;
    double timeout; /* seconds to wait for a row that somebody is writing; 0: as
                     * the communicator */
} wf_slots_options;

/* Collective over `host`, ranks that share memory. All rows are zero, and no
 * key has a slot unless it is direct. */
weft_status wf_slots_create(weft_comm *host, const wf_slots_options *options,
                            wf_slots **out);
/* Takes NULL. */
void wf_slots_destroy(wf_slots *slots);

/* WEFT_ERR_CLOSED after weft_world_destroy and in forked children. What else is
 * here does not look, and must not be called then, but for destroying. */
weft_status wf_slots_here(const wf_slots *slots);

/* Change the number of keys up to max_keys, if all have one length. Collective,
 * and no rank may be in another call. New rows are zero, and new keys have zero
 * in the directory; those that go must have given their slots back. There are
 * slots for `begin` of the new keys, whatever has taken slots before
 * (wf_slot_begin). */
weft_status wf_slots_resize(wf_slots *slots, uint64_t keys, uint64_t begin);

/* Elements of a key's row, and bytes of it with the optimizer's state. */
uint64_t wf_slots_length(const wf_slots *slots, uint64_t key);
uint64_t wf_slots_bytes(const wf_slots *slots, uint64_t key);

/* --- many keys ------------------------------------------------------------ */

/* Keys that have been checked to be in range. */
typedef struct wf_batch {
    weft_ids keys;
    char *values; /* rows one after the other */
    /* Out: positions of the keys whose rows are not here, in order; room for
     * keys.n. A copy counts as absent to those who may not change it in place:
     * to wf_slots_set, and with an optimizer to wf_slots_push. What is direct
     * needs none: NULL. */
    uint64_t *absent;
    uint64_t absents;
    uint64_t copies; /* out: how many of the others were copies */
} wf_batch;

/* Each row is read, added to (or stepped, by the optimizer) or overwritten
 * whole. Of equal keys in a batch all are added, the last is set. `writer` is
 * below WF_WRITERS; two calls of one rank with the same writer must not run at
 * once. WEFT_ERR_TIMEOUT names the rank that holds a row and does not go on:
 * then some rows may have been done. */
weft_status wf_slots_pull(wf_slots *slots, wf_batch *batch);
/* Of one key, which is in range. False if somebody is writing its row, slots
 * are not direct, or wf_slots_here has something to say. */
bool wf_slots_pull_one(const wf_slots *slots, uint64_t key, char *to);
weft_status wf_slots_push(wf_slots *slots, wf_batch *batch, uint32_t writer);
weft_status wf_slots_set(wf_slots *slots, wf_batch *batch, uint32_t writer);

/* --- one slot, for the server --------------------------------------------- */

/* The directory: WF_KEY_HERE | slot, or what was put there for an absent key.
 * Not of a direct store. */
uint32_t wf_directory_get(const wf_slots *slots, uint64_t key);
/* When a key leaves its slot: while the slot is locked. When it comes to one:
 * after its row was written and unlocked, so that a server's death leaves a key
 * either with its whole row or not here. */
void wf_directory_put(wf_slots *slots, uint64_t key, uint32_t word);
/* Put `word` where `now` is, unless something else is there by now: for those
 * who are not the server and have learnt who owns an absent key. */
void wf_directory_learn(wf_slots *slots, uint64_t key, uint32_t now,
                        uint32_t word);

/* A key is needed soon: ask memory for its word in the directory; when that has
 * come, and if it is here, for the word of its lock, or for its row, to write
 * to it. Not of a direct store. */
void wf_slots_ask_word(const wf_slots *slots, uint64_t key);
void wf_slots_ask_lock(const wf_slots *slots, uint64_t key);
void wf_slots_ask_row(const wf_slots *slots, uint64_t key);

/* A free slot for a row of this key, zeroed; UINT32_MAX if there is none (or if
 * a stopped rank, that had come for the row of another key, holds it).
 * wf_slot_begin is for keys that begin here, which have been promised one. */
uint32_t wf_slot_take(wf_slots *slots, uint64_t key);
uint32_t wf_slot_begin(wf_slots *slots, uint64_t key);
void wf_slot_give(wf_slots *slots, uint64_t key, uint32_t slot);
/* How many wf_slot_take can give. */
uint32_t wf_slots_spare(const wf_slots *slots, uint64_t key);
/* For a server that takes over from one that died: slots that neither the
 * directory names nor `used` (a bit for each slot, changed here) are free
 * again. */
void wf_slots_recover(wf_slots *slots, uint64_t *used);
uint32_t wf_slots_count(const wf_slots *slots);

/* Lock a slot, save its row, and return it in `*row`; unlocking makes what was
 * written to it visible as one change. The row has wf_slots_bytes, elements
 * first. */
weft_status wf_slot_lock(wf_slots *slots, uint64_t key, uint32_t slot,
                         uint32_t writer, void **row);
void wf_slot_unlock(wf_slots *slots, uint32_t slot, uint32_t writer);

/* Does the same write go on and on, so that locking would have to wait for it?
 * Its writer may be stopped. */
bool wf_slot_held(const wf_slots *slots, uint32_t slot);

/* Like wf_slot_unlock, of a row that was not changed: its version stays. */
void wf_slot_unlock_as_it_was(wf_slots *slots, uint32_t slot, uint32_t writer);

/* What the server has marked a slot with, changed while it is locked. Flags: it
 * is a copy; it has copies on other hosts. The epoch of its key. If the server
 * dies before it unlocks, they are as they were.
 *
 * A slot with a flag that is written to becomes dirty; wf_slots_dirty makes the
 * next such slot from `from` on clean and returns it, or UINT32_MAX. Whoever
 * then locks the slot finds in it what made it dirty. */
enum { WF_SLOT_COPY = 1, WF_SLOT_SHARED = 2 };
typedef struct wf_slot_marks {
    uint16_t flags;
    uint16_t epoch;
} wf_slot_marks;
wf_slot_marks wf_slot_marks_get(const wf_slots *slots, uint32_t slot);
void wf_slot_marks_set(wf_slots *slots, uint32_t slot, wf_slot_marks marks);
uint32_t wf_slots_dirty(wf_slots *slots, uint32_t from);

/* Rows that were put back because their writer had died, on this host. */
uint64_t wf_slots_repaired(const wf_slots *slots);

#endif
