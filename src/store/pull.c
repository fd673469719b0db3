/* SPDX-License-Identifier: Apache-2.0 */
/* Reading the rows of many keys, without locks. The kernel looks at the word of
 * a row before and after it copies the row, and stops at one that changed; that
 * one is read again, and under its lock if it changes all the time. With a
 * directory, the words of a block of keys are looked at once more, around the
 * kernel:
 *
 *     directory -> slot; word; directory again: still this slot?
 *     copy
 *     word again: has not changed, so that the slot has not changed hands
 */
#include "base/num.h"
#include "store/table.h"

#define BLOCK 64u
#define TRIES 8u
#define LINE 64u

/* --- reading -------------------------------------------------------------- */

/* Read a row under its lock, without changing it. */
static weft_status read_locked(wf_slots *slots, const wf_place *place, char *to)
{
    uint64_t word = 0;
    weft_status st = wf_place_lock(slots, place, WF_WRITER_ANY, &word);

    if (st == WEFT_OK) {
        memcpy(to, wf_place_row(place), place->class->length * slots->element);
        wf_place_release(place, word);
    }
    return st;
}

/* Read a row that was being written. */
static weft_status read_again(wf_slots *slots, const wf_place *place, char *to)
{
    const wf_class *class = place->class;
    int32_t id = (int32_t)(place->slot - class->first);
    weft_status st = WEFT_OK;

    for (unsigned i = 0; i < TRIES; i++) {
        st = wf_place_await(slots, place);
        if (st != WEFT_OK ||
            class->read_i32(&class->pick, &id, to, WF_WORD_WRITER, 0, 1) == 1) {
            return st;
        }
    }
    return read_locked(slots, place, to);
}

/* The key at position `at` was being written: read it again, and go on. */
__attribute__((noinline)) static weft_status
pull_rest(wf_slots *slots, wf_batch *batch, wf_read_fn *read, uint64_t at)
{
    const wf_class *class = &slots->classes[0];
    uint64_t n = batch->keys.n;
    weft_status st = WEFT_OK;

    while (st == WEFT_OK && at < n) {
        uint64_t key = (uint64_t)wf_id_at(&batch->keys, at);
        wf_place place = wf_place_of(slots, key, (uint32_t)key);

        st = read_again(slots, &place, batch->values + at * class->pick.bytes);
        at = read(&class->pick, batch->keys.at, batch->values, WF_WORD_WRITER,
                  at + 1, n);
    }
    return st;
}

static inline weft_status pull_direct(wf_slots *slots, wf_batch *batch)
{
    const wf_class *class = &slots->classes[0];
    wf_read_fn *read =
        batch->keys.type == WEFT_I64 ? class->read_i64 : class->read_i32;
    uint64_t at = read(&class->pick, batch->keys.at, batch->values,
                       WF_WORD_WRITER, 0, batch->keys.n);

    return __builtin_expect(at < batch->keys.n, 0)
               ? pull_rest(slots, batch, read, at)
               : WEFT_OK;
}

/* --- reading by the directory --------------------------------------------- */

/* A run of keys of one length. */
typedef struct read_block {
    const wf_class *class;
    uint32_t n;
    uint64_t key[BLOCK];
    int32_t id[BLOCK]; /* slot of the class; -1: not here */
    uint64_t word[BLOCK];
} read_block;

/* The keys from `at` on that have one length. Those a block further on will be
 * looked up next. */
static void block_fill(const wf_slots *slots, const weft_ids *keys, uint64_t at,
                       read_block *b)
{
    b->n = 0;
    if (at < keys->n) {
        b->class = wf_class_of(slots, (uint64_t)wf_id_at(keys, at));
    }
    for (uint64_t i = at; i < keys->n && b->n < BLOCK; i++) {
        uint64_t key = (uint64_t)wf_id_at(keys, i);

        if (slots->class_of != NULL && wf_class_of(slots, key) != b->class) {
            break;
        }
        if (i + BLOCK < keys->n) {
            __builtin_prefetch(&slots->directory[wf_id_at(keys, i + BLOCK)]);
        }
        b->key[b->n++] = key;
    }
}

/* Look the keys up, and ask for their rows. */
static void block_find(const wf_slots *slots, read_block *b)
{
    for (uint32_t i = 0; i < b->n; i++) {
        uint32_t word = wf_directory_get(slots, b->key[i]);
        uint32_t slot = word & ~WF_KEY_HERE;

        b->id[i] = -1;
        if ((word & WF_KEY_HERE) != 0) {
            const char *at = wf_slot_at(b->class, slot);

            b->id[i] = (int32_t)(slot - b->class->first);
            __builtin_prefetch(at, 0, 2);
            __builtin_prefetch(at + wf_least(b->class->pitch, LINE), 0, 2);
        }
    }
}

/* The slot of a key of the block, if it is one. */
static wf_place block_place(const read_block *b, uint32_t i)
{
    uint32_t slot = b->class->first + (uint32_t)b->id[i];

    return (wf_place){b->class, wf_slot_at(b->class, slot), b->key[i], slot};
}

/* Look at the words, and whether the slots are still those of the keys. */
static void block_look(const wf_slots *slots, read_block *b)
{
    for (uint32_t i = 0; i < b->n; i++) {
        wf_place place;

        if (b->id[i] < 0) {
            continue;
        }
        place = block_place(b, i);
        b->word[i] =
            atomic_load_explicit(wf_place_word(&place), memory_order_acquire);
        if (wf_directory_get(slots, b->key[i]) != (WF_KEY_HERE | place.slot)) {
            b->word[i] |= WF_WORD_WRITER; /* so that it is read again */
        }
    }
}

/* Find the key and read its row; `*here` is false if it is on no slot. */
static weft_status read_found(wf_slots *slots, uint64_t key, char *to,
                              bool *here, uint64_t *word)
{
    weft_status st = WEFT_OK;

    for (;;) {
        uint32_t found = wf_directory_get(slots, key);
        wf_place place;

        *here = (found & WF_KEY_HERE) != 0;
        if (!*here) {
            return WEFT_OK;
        }
        place = wf_place_of(slots, key, found & ~WF_KEY_HERE);
        st = wf_place_lock(slots, &place, WF_WRITER_ANY, word);
        if (st != WEFT_OK) {
            return st;
        }
        if (wf_directory_get(slots, key) == found) {
            memcpy(to, wf_place_row(&place),
                   place.class->length * slots->element);
            wf_place_release(&place, *word);
            return WEFT_OK;
        }
        wf_place_release(&place, *word);
    }
}

/* Those whose words are not what they were are read again; count the others,
 * too. `at`: the block's first position in the batch. */
static weft_status block_check(wf_slots *slots, wf_batch *batch, uint64_t at,
                               read_block *b, char *to, size_t bytes)
{
    for (uint32_t i = 0; i < b->n; i++) {
        bool here = b->id[i] >= 0;
        weft_status st = WEFT_OK;

        if (here) {
            wf_place place = block_place(b, i);
            uint64_t word = atomic_load_explicit(wf_place_word(&place),
                                                 memory_order_relaxed);

            if (word != b->word[i] || (word & WF_WORD_WRITER) != 0) {
                st = read_found(slots, b->key[i], to + i * bytes, &here,
                                &b->word[i]);
            }
        }
        if (st != WEFT_OK) {
            return st;
        }
        if (!here) {
            batch->absent[batch->absents++] = at + i;
        } else if ((b->word[i] & WF_SLOT_COPY) != 0) {
            batch->copies++;
        }
    }
    return WEFT_OK;
}

static weft_status block_read(wf_slots *slots, wf_batch *batch, uint64_t at,
                              read_block *b, char *to)
{
    const wf_pick *pick = &b->class->pick;

    block_look(slots, b);
    for (uint64_t i = 0; i < b->n; i++) {
        i = b->class->read_i32(pick, b->id, to, WF_WORD_WRITER, i, b->n);
        if (i < b->n) {
            /* It was not copied: its word was locked for a moment. A lock that
             * is given up without a write leaves the word as it was before, so
             * that comparing words does not tell. */
            b->word[i] |= WF_WORD_WRITER;
        }
    }
    atomic_thread_fence(memory_order_acquire);
    return block_check(slots, batch, at, b, to, pick->bytes);
}

/* While one block is read, the rows of the next one are on their way. */
static weft_status pull_found(wf_slots *slots, wf_batch *batch)
{
    const weft_ids *keys = &batch->keys;
    char *to = batch->values;
    weft_status st = WEFT_OK;
    read_block two[2];
    uint64_t at = 0;

    for (uint64_t i = 0; i < keys->n && i < BLOCK; i++) {
        __builtin_prefetch(&slots->directory[wf_id_at(keys, i)]);
    }
    block_fill(slots, keys, 0, &two[0]);
    block_find(slots, &two[0]);
    for (unsigned turn = 0; st == WEFT_OK && at < keys->n; turn ^= 1) {
        read_block *now = &two[turn];
        read_block *next = &two[turn ^ 1];

        block_fill(slots, keys, at + now->n, next);
        block_find(slots, next);
        st = block_read(slots, batch, at, now, to);
        at += now->n;
        to += now->n * now->class->pick.bytes;
    }
    return st;
}

weft_status wf_slots_pull(wf_slots *slots, wf_batch *batch)
{
    batch->absents = 0;
    batch->copies = 0;
    return slots->direct ? pull_direct(slots, batch) : pull_found(slots, batch);
}

bool wf_slots_pull_one(const wf_slots *slots, uint64_t key, char *to)
{
    const wf_class *class = &slots->classes[0];

    return slots->direct && wf_slots_own(slots) && wf_slots_live(slots) &&
           class->read_one(wf_slot_at(class, (uint32_t)key), to, WF_WORD_WRITER,
                           class->pick.bytes);
}
