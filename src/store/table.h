/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the rows of a host: how slots lie in memory, and the steps of a write.
 *
 *   slot   | lock word, 8 bytes | elements | optimizer's state | to 8 bytes
 *
 * The word lies beside its row, so that whoever comes for a row waits for
 * memory once.
 *
 *   word   version 32 bits | epoch 16 | writer 12, 0: nobody | flags 4
 *
 * The epoch is that of the key which the slot is of: how often it has moved
 * between hosts (protocol.h). It lies here so that a key which has come from
 * another host needs no record of its own.
 *
 * The version wraps, and is only ever compared for being the same. So a change
 * is overlooked if exactly 2^32 writes, or a multiple, were made to one row
 * between two looks at it: a reader that stops inside one row for the minutes
 * that this takes would have to hit one number out of four billion.
 *
 * A write is these steps, and its process may die between any two of them:
 *
 *   1. lock     exchange a free word for one with the writer's number
 *   2. save     copy the row to the writer's undo row, then publish there, in
 *               one word, which slot at which version it is: the token
 *   3.          change the row
 *   4. unlock   store a free word with the next version
 *
 * A dead writer's row that the token names has been saved, and is put back; of
 * one that it does not name nothing was changed. */
#ifndef WF_STORE_TABLE_H
#define WF_STORE_TABLE_H

#include <pthread.h>
#include <stdalign.h>
#include <string.h>

#include "region/region.h"
#include "region/rows/kernel/rows.h"
#include "region/rows/update.h"
#include "store/slots.h"

#define WF_WORD_BYTES 8u
#define WF_WORD_FLAGS 0xfull
#define WF_WORD_WRITER_AT 4
#define WF_WORD_WRITER (0xfffull << WF_WORD_WRITER_AT)
#define WF_WORD_EPOCH_AT 16
#define WF_WORD_EPOCH (0xffffull << WF_WORD_EPOCH_AT)
#define WF_WORD_VERSION (1ull << 32) /* one */
/* What the server alone changes. */
#define WF_WORD_MARKS (WF_WORD_FLAGS | WF_WORD_EPOCH)

/* All slots of one length, which have numbers from `first` on. */
typedef struct wf_class {
    uint64_t length;
    uint64_t bytes; /* of a row: elements and state */
    uint64_t pitch; /* from slot to slot */
    uint32_t first;
    uint32_t slots;
    /* Slots that can be taken at one time; fewer than there are after the store
     * has become smaller, so that keys that come back find theirs. */
    uint32_t usable;
    uint64_t keys;  /* of this length */
    uint64_t begin; /* of its slots among all, in bytes */
    char *base;
    uint64_t state[WEFT_UPDATE_STATES]; /* offset in a row; 0: none */
    /* How its rows are read. */
    wf_pick pick;
    wf_read_fn *read_i32;
    wf_read_fn *read_i64;
    wf_read_one_fn *read_one;
} wf_class;

/* Slots of a class that nobody uses, see directory.c. Numbers count from the
 * first slot of the class. */
typedef struct wf_free_slots {
    _Atomic uint32_t given; /* how many were given back and have their bits */
    _Atomic uint32_t fresh; /* slots from here on were never used */
} wf_free_slots;

/* What all ranks share beside rows and directory. */
typedef struct wf_slots_shared {
    pthread_mutex_t repair; /* robust */
    alignas(64) _Atomic uint64_t repaired;
    alignas(64) wf_free_slots free[]; /* of each class */
} wf_slots_shared;

/* No row has been saved. */
#define WF_UNDO_NONE UINT64_MAX

/* Where a writer saves rows. It alone writes it. */
typedef struct wf_undo {
    alignas(64) _Atomic uint64_t token; /* slot << 32 | version */
    uint64_t marks;                     /* of the word when it was locked */
    alignas(64) char row[];
} wf_undo;

enum {
    WF_PART_ROWS,
    WF_PART_SHARED,
    WF_PART_UNDO,
    WF_PART_DIRECTORY, /* from here on: not of direct stores */
    WF_PART_BITS,      /* two for each slot: wf_bit */
    WF_PART_ABOVE,     /* and two for each two words of these */
    WF_PART_CLASSES,   /* the class of each key, if there are several */
    WF_PARTS
};

/* Bits of slots. A bit above stands for a word of them, and is set if there may
 * be any in it, so that those few that are set are found without looking at all
 * words. */
typedef enum wf_bit {
    WF_BIT_DIRTY = 0, /* of a copy or a row with copies: it was written to */
    WF_BIT_FREE = 1,  /* it was given back */
    WF_BITS
} wf_bit;

typedef _Atomic uint64_t wf_bits[WF_BITS];

struct wf_slots {
    weft_region *part[WF_PARTS];
    weft_dtype type;
    size_t element;
    uint64_t keys;
    uint64_t max_keys;
    bool direct;
    bool optimizes;
    wf_stepper stepper;
    uint64_t timeout_ns;
    uint64_t (*room)(void *ctx, uint64_t length, uint64_t keys);
    void *room_ctx;

    wf_class *classes; /* by length */
    uint32_t count;
    uint32_t slots;

    /* Of `host`. */
    weft_world *world; /* which the regions hold */
    uint32_t rank;
    uint32_t ranks;
    const uint32_t *member; /* rank here -> rank in the job */

    wf_slots_shared *shared;
    char *undo;
    uint64_t undo_pitch;
    _Atomic uint32_t *directory;
    wf_bits *bits;  /* of 64 slots each */
    wf_bits *above; /* of 64 of these each */
    const uint32_t *class_of;

    const wf_row_kernels *kernels;
    wf_sum_fn *sum;
};

/* Is this the process that made them? */
static inline bool wf_slots_own(const wf_slots *slots)
{
    return !atomic_load_explicit(&slots->world->host->orphan,
                                 memory_order_relaxed);
}

/* Does the world that they belong to live? */
static inline bool wf_slots_live(const wf_slots *slots)
{
    return atomic_load_explicit(&slots->part[WF_PART_ROWS]->own->state,
                                memory_order_relaxed) == WF_BOARD_HERE;
}

/* Slots of the first class that somebody has; in directory.c. */
uint32_t wf_slots_used(const wf_slots *slots);

/* In one order with what takes bits away, in directory.c. */
static inline void wf_bit_set(wf_bits *bits, wf_bit which, uint32_t at)
{
    uint64_t bit = 1ull << at % 64;

    if ((atomic_load(&bits[at / 64][which]) & bit) == 0) {
        atomic_fetch_or(&bits[at / 64][which], bit);
    }
}

static inline void wf_slot_mark(wf_slots *slots, wf_bit which, uint32_t slot)
{
    wf_bit_set(slots->bits, which, slot);
    /* After it, and also if it was set: whoever did may have died here. */
    wf_bit_set(slots->above, which, slot / 64);
}

/* Of wf_slots_shared with all its classes. */
uint64_t wf_shared_bytes(const wf_slots *slots);

/* A slot, and the key that it is used for. */
typedef struct wf_place {
    const wf_class *class;
    char *at; /* its word */
    uint64_t key;
    uint32_t slot;
} wf_place;

static inline const wf_class *wf_class_of(const wf_slots *slots, uint64_t key)
{
    return slots->class_of == NULL ? &slots->classes[0]
                                   : &slots->classes[slots->class_of[key]];
}

static inline char *wf_slot_at(const wf_class *class, uint32_t slot)
{
    return class->base + (uint64_t)(slot - class->first) * class->pitch;
}

static inline wf_place wf_place_of(const wf_slots *slots, uint64_t key,
                                   uint32_t slot)
{
    const wf_class *class = wf_class_of(slots, key);

    return (wf_place){class, wf_slot_at(class, slot), key, slot};
}

/* By its slot alone: `key` is not set. */
static inline wf_place wf_place_at(const wf_slots *slots, uint32_t slot)
{
    const wf_class *class = slots->classes;
    uint32_t n = slots->count;

    while (n > 1) {
        uint32_t half = n / 2;

        class += class[half].first <= slot ? half : 0;
        n -= half;
    }
    return (wf_place){class, wf_slot_at(class, slot), 0, slot};
}

static inline _Atomic uint64_t *wf_place_word(const wf_place *place)
{
    return (_Atomic uint64_t *)(void *)place->at;
}

static inline char *wf_place_row(const wf_place *place)
{
    return place->at + WF_WORD_BYTES;
}

/* --- the steps of a write ------------------------------------------------- */

static inline uint64_t wf_writer_bits(const wf_slots *slots, uint32_t writer)
{
    return ((uint64_t)slots->rank * WF_WRITERS + writer + 1)
           << WF_WORD_WRITER_AT;
}

static inline wf_undo *wf_undo_of(const wf_slots *slots, uint64_t word)
{
    uint64_t writer = ((word & WF_WORD_WRITER) >> WF_WORD_WRITER_AT) - 1;

    return (wf_undo *)(void *)(slots->undo + writer * slots->undo_pitch);
}

static inline uint64_t wf_undo_token(uint32_t slot, uint64_t word)
{
    return (uint64_t)slot << 32 | (uint32_t)(word / WF_WORD_VERSION);
}

/* A thread that only reads, or writes to a slot that no key has, may lock as
 * any writer of its rank: it saves nothing, and nothing is put back. */
#define WF_WRITER_ANY 0u

/* Wait for a row that somebody writes, and take it; `*word` is the word as the
 * caller has it now. In lock.c. */
weft_status wf_place_lock_slowly(wf_slots *slots, const wf_place *place,
                                 uint32_t writer, uint64_t *word);
/* Wait until nobody writes the row. */
weft_status wf_place_await(wf_slots *slots, const wf_place *place);

static inline weft_status wf_place_lock(wf_slots *slots, const wf_place *place,
                                        uint32_t writer, uint64_t *word)
{
    _Atomic uint64_t *at = wf_place_word(place);
    uint64_t mine = wf_writer_bits(slots, writer);
    uint64_t seen = atomic_load_explicit(at, memory_order_relaxed);

    if (__builtin_expect((seen & WF_WORD_WRITER) == 0, 1) &&
        __builtin_expect(atomic_compare_exchange_strong_explicit(
                             at, &seen, seen | mine, memory_order_acquire,
                             memory_order_relaxed),
                         1)) {
        *word = seen | mine;
        return WEFT_OK;
    }
    return wf_place_lock_slowly(slots, place, writer, word);
}

/* Rows are whole words. The short ones are copied here, since a call of memcpy
 * takes as long as the rest of a write. */
static inline void wf_row_copy(char *to, const char *from, size_t bytes)
{
    size_t at = 0;

    if (bytes > 512) {
        memcpy(to, from, bytes);
        return;
    }
    for (; at + 32 <= bytes; at += 32) {
        memcpy(to + at, from + at, 32);
    }
    for (; at < bytes; at += 8) {
        memcpy(to + at, from + at, 8);
    }
}

static inline void wf_place_save(wf_slots *slots, const wf_place *place,
                                 uint64_t word)
{
    wf_undo *undo = wf_undo_of(slots, word);

    undo->marks = word & WF_WORD_MARKS;
    wf_row_copy(undo->row, wf_place_row(place), place->class->bytes);
    atomic_store_explicit(&undo->token, wf_undo_token(place->slot, word),
                          memory_order_release);
    /* The row changes after the token. */
    atomic_thread_fence(memory_order_release);
}

static inline void wf_place_unlock(const wf_place *place, uint64_t word)
{
    atomic_store_explicit(wf_place_word(place),
                          (word & ~WF_WORD_WRITER) + WF_WORD_VERSION,
                          memory_order_release);
}

/* A row that has not been changed. */
static inline void wf_place_release(const wf_place *place, uint64_t word)
{
    atomic_store_explicit(wf_place_word(place), word & ~WF_WORD_WRITER,
                          memory_order_release);
}

/* --- writing -------------------------------------------------------------- */

typedef enum wf_write_op {
    WF_WRITE_ADD,
    WF_WRITE_SET,
    WF_WRITE_STEP /* values are gradients, f32 */
} wf_write_op;

typedef struct wf_write {
    wf_write_op op;
    uint32_t writer;
    size_t element;      /* bytes of one of the values */
    wf_stepper *stepper; /* STEP */
    /* Out: was it written here, and to a copy? */
    bool here;
    bool copy;
} wf_write;

/* Write the rows of a batch, in its order. */
weft_status wf_slots_write_all(wf_slots *slots, wf_batch *batch,
                               wf_write *write);
/* wf_slots_push with an optimizer; in step.c. */
weft_status wf_slots_step(wf_slots *slots, wf_batch *batch, uint32_t writer);

#endif
