/* SPDX-License-Identifier: Apache-2.0 */
/* Adding to and setting the rows of many keys, under one lock at a time. An
 * exchange of a lock word waits for all that was written before it, so that
 * rows are asked for before their turn. */
#include "base/num.h"
#include "store/table.h"

#define LINE 64u
/* To lock a row waits for all memory that was asked for before it, so that rows
 * are asked for in blocks: a block after the first row of the one before was
 * written. Of more lines than a processor waits for at a time it forgets some:
 * the longer rows are, the fewer belong to a block (measured; 8 rows of 64
 * bytes, 4 of 256). */
#define BLOCK_LINES 32u
#define BLOCK_MOST 8u
#define BLOCK_LEAST 3u

/* --- one row -------------------------------------------------------------- */

static void row_set(const wf_slots *slots, const wf_class *class, char *row,
                    const char *values)
{
    size_t bytes = class->length * slots->element;

    memcpy(row, values, bytes);
    memset(row + bytes, 0, class->bytes - bytes);
}

static void row_step(wf_write *write, const wf_class *class, char *row,
                     const char *values)
{
    char *state[WEFT_UPDATE_STATES] = {NULL};

    for (int i = 0; i < WEFT_UPDATE_STATES; i++) {
        if (class->state[i] != 0) {
            state[i] = row + class->state[i];
        }
    }
    if (class->length > 0) {
        wf_stepper_run(write->stepper, row, state,
                       (const float *)(const void *)values, class->length);
    }
}

static inline void ask_line(const char *at)
{
#if defined(__x86_64__)
    /* In order to write it; a no-op on processors that cannot. */
    __asm__ volatile("prefetchw %0" : : "m"(*at));
#else
    __builtin_prefetch(at, 1, 3);
#endif
}

/* The row is locked and saved. */
static inline void row_write(const wf_slots *slots, wf_write *write,
                             const wf_place *place, const char *values)
{
    char *row = wf_place_row(place);

    switch (write->op) {
    case WF_WRITE_ADD:
        slots->sum(row, values, place->class->length);
        break;
    case WF_WRITE_SET:
        row_set(slots, place->class, row, values);
        break;
    case WF_WRITE_STEP:
        row_step(write, place->class, row, values);
        break;
    }
}

static inline weft_status write_direct(wf_slots *slots, wf_write *write,
                                       uint64_t key, const char *values)
{
    const wf_class *class = &slots->classes[0];
    wf_place place = {class, class->base + key * class->pitch, key,
                      (uint32_t)key};
    uint64_t word = 0;
    weft_status st;

    ask_line(place.at); /* if another rank took it meanwhile */
    st = wf_place_lock(slots, &place, write->writer, &word);
    if (st == WEFT_OK) {
        wf_place_save(slots, &place, word);
        row_write(slots, write, &place, values);
        wf_place_unlock(&place, word);
    }
    return st;
}

static weft_status write_found(wf_slots *slots, wf_write *write, uint64_t key,
                               const char *values)
{
    for (;;) {
        uint32_t found = wf_directory_get(slots, key);
        wf_place place;
        uint64_t word = 0;
        weft_status st;

        write->here = (found & WF_KEY_HERE) != 0;
        if (!write->here) {
            return WEFT_OK;
        }
        place = wf_place_of(slots, key, found & ~WF_KEY_HERE);
        ask_line(place.at);
        st = wf_place_lock(slots, &place, write->writer, &word);
        if (st != WEFT_OK) {
            return st;
        }
        if (wf_directory_get(slots, key) != found) {
            wf_place_release(&place, word);
            continue;
        }
        write->copy = (word & WF_SLOT_COPY) != 0;
        write->here = !write->copy || write->op == WF_WRITE_ADD;
        if (!write->here) {
            wf_place_release(&place, word);
            return WEFT_OK;
        }
        wf_place_save(slots, &place, word);
        row_write(slots, write, &place, values);
        if ((word & (WF_SLOT_COPY | WF_SLOT_SHARED)) != 0) {
            /* While the row is locked: whoever takes the mark away and then
             * locks the row finds in it what the mark was made for. */
            wf_slot_mark(slots, WF_BIT_DIRTY, place.slot);
        }
        wf_place_unlock(&place, word);
        return WEFT_OK;
    }
}

static inline weft_status write_one(wf_slots *slots, wf_write *write,
                                    uint64_t key, const char *values)
{
    write->here = true;
    write->copy = false;
    return slots->direct ? write_direct(slots, write, key, values)
                         : write_found(slots, write, key, values);
}

/* --- asking for rows ahead of their turn ---------------------------------- */

static inline void ask_row(const wf_class *class, uint32_t slot)
{
    const char *at = wf_slot_at(class, slot);
    size_t bytes = wf_least(class->pitch, 16 * LINE);

    for (size_t i = 0; i + LINE <= bytes; i += LINE) {
        ask_line(at + i);
    }
    ask_line(at + bytes - 1);
}

static inline void ask_key(const wf_slots *slots, uint64_t key)
{
    if (slots->direct) {
        ask_row(&slots->classes[0], (uint32_t)key);
    } else {
        uint32_t found = wf_directory_get(slots, key);

        if ((found & WF_KEY_HERE) != 0) {
            ask_row(wf_class_of(slots, key), found & ~WF_KEY_HERE);
        }
    }
}

void wf_slots_ask_word(const wf_slots *slots, uint64_t key)
{
    __builtin_prefetch(&slots->directory[key]);
    if (slots->class_of != NULL) {
        __builtin_prefetch(&slots->class_of[key]);
    }
}

void wf_slots_ask_lock(const wf_slots *slots, uint64_t key)
{
    uint32_t found = wf_directory_get(slots, key);

    if ((found & WF_KEY_HERE) != 0) {
        __builtin_prefetch(
            wf_slot_at(wf_class_of(slots, key), found & ~WF_KEY_HERE));
    }
}

void wf_slots_ask_row(const wf_slots *slots, uint64_t key)
{
    ask_key(slots, key);
}

/* Keys of a block; those of the first length stand for all. */
static uint64_t block_keys(const wf_slots *slots)
{
    uint64_t lines = slots->classes[0].pitch / LINE + 1;
    uint64_t fit = wf_least(BLOCK_LINES / (lines + 2), BLOCK_MOST);

    return fit < BLOCK_LEAST ? BLOCK_LEAST : fit;
}

/* Ask for the rows of the keys [at, end), and for where the next ones are. */
static void ask_block(const wf_slots *slots, const weft_ids *keys, uint64_t at,
                      uint64_t end)
{
    uint64_t block = end - at;

    for (uint64_t i = end; !slots->direct && i < keys->n && i < end + block;
         i++) {
        wf_slots_ask_word(slots, (uint64_t)wf_id_at(keys, i));
    }
    for (uint64_t i = at; i < end; i++) {
        ask_key(slots, (uint64_t)wf_id_at(keys, i));
    }
}

weft_status wf_slots_write_all(wf_slots *slots, wf_batch *batch,
                               wf_write *write)
{
    const char *values = batch->values;
    uint64_t block = block_keys(slots);
    uint64_t n = batch->keys.n;
    uint64_t asked = n == 1;
    weft_status st = WEFT_OK;

    for (uint64_t i = 0; st == WEFT_OK && i < n; i++) {
        uint64_t key = (uint64_t)wf_id_at(&batch->keys, i);

        if (i == asked || i + block - 1 == asked) {
            uint64_t from = asked;

            asked = wf_least(asked + block, n);
            ask_block(slots, &batch->keys, from, asked);
        }
        st = write_one(slots, write, key, values);
        values += wf_class_of(slots, key)->length * write->element;
        if (!write->here) {
            batch->absent[batch->absents++] = i;
        } else {
            batch->copies += write->copy;
        }
    }
    return st;
}

weft_status wf_slots_push(wf_slots *slots, wf_batch *batch, uint32_t writer)
{
    wf_write write = {
        .op = WF_WRITE_ADD, .writer = writer, .element = slots->element};

    batch->absents = 0;
    batch->copies = 0;
    return slots->optimizes ? wf_slots_step(slots, batch, writer)
                            : wf_slots_write_all(slots, batch, &write);
}

weft_status wf_slots_set(wf_slots *slots, wf_batch *batch, uint32_t writer)
{
    wf_write write = {
        .op = WF_WRITE_SET, .writer = writer, .element = slots->element};

    batch->absents = 0;
    batch->copies = 0;
    return wf_slots_write_all(slots, batch, &write);
}
