/* SPDX-License-Identifier: Apache-2.0 */
/* The directory, slots that are free, and copies that were written to. One
 * thread of the host changes the first two; that of the next rank goes on when
 * its process dies.
 *
 * Slots of a class that were never used are those from `fresh` on; those that
 * were given back have a bit. */
#include "store/table.h"

#define NONE UINT32_MAX

uint64_t wf_shared_bytes(const wf_slots *slots)
{
    return sizeof(wf_slots_shared) +
           slots->count * sizeof(slots->shared->free[0]);
}

static wf_free_slots *free_of(wf_slots *slots, const wf_class *class)
{
    return &slots->shared->free[class - slots->classes];
}

uint32_t wf_directory_get(const wf_slots *slots, uint64_t key)
{
    return atomic_load_explicit(&slots->directory[key], memory_order_acquire);
}

void wf_directory_put(wf_slots *slots, uint64_t key, uint32_t word)
{
    atomic_store_explicit(&slots->directory[key], word, memory_order_release);
}

void wf_directory_learn(wf_slots *slots, uint64_t key, uint32_t now,
                        uint32_t word)
{
    atomic_compare_exchange_strong(&slots->directory[key], &now, word);
}

uint32_t wf_slots_count(const wf_slots *slots)
{
    return slots->slots;
}

/* --- slots ---------------------------------------------------------------- */

/* Make a free slot empty. Whoever still reads the row that was here has to find
 * another version; whoever still has it locked has to find that its key is gone
 * first. */
static weft_status slot_clear(wf_slots *slots, const wf_place *place)
{
    uint64_t word = 0;
    weft_status st = wf_slot_held(slots, place->slot)
                         ? WEFT_ERR_TIMEOUT
                         : wf_place_lock(slots, place, WF_WRITER_ANY, &word);

    if (st == WEFT_OK) {
        /* The row changes after the word. */
        atomic_thread_fence(memory_order_release);
        memset(wf_place_row(place), 0, place->class->bytes);
        wf_place_unlock(place, word & ~WF_WORD_MARKS);
    }
    return st;
}

/* The first slot of a class that was given back; there is one. */
static uint32_t given_find(const wf_slots *slots, const wf_class *class)
{
    uint64_t word = class->first / 64;
    uint64_t bits = atomic_load(&slots->bits[word][WF_BIT_FREE]) &
                    UINT64_MAX << class->first % 64;

    while (bits == 0) {
        word++;
        bits = atomic_load(&slots->above[word / 64][WF_BIT_FREE]) >> word % 64;
        if (bits == 0) {
            word |= 63;
            continue;
        }
        word += (unsigned)__builtin_ctzll(bits);
        bits = atomic_load(&slots->bits[word][WF_BIT_FREE]);
        if (bits == 0) {
            atomic_fetch_and(&slots->above[word / 64][WF_BIT_FREE],
                             ~(1ull << word % 64));
        }
    }
    return (uint32_t)(word * 64 + (unsigned)__builtin_ctzll(bits));
}

static void clear_bit(wf_slots *slots, wf_bit which, uint32_t slot)
{
    atomic_fetch_and(&slots->bits[slot / 64][which], ~(1ull << slot % 64));
}

/* One that dies in here has lost a slot at most, until wf_slots_recover. */
uint32_t wf_slot_begin(wf_slots *slots, uint64_t key)
{
    const wf_class *class = wf_class_of(slots, key);
    wf_free_slots *list = free_of(slots, class);
    uint32_t given = atomic_load(&list->given);
    uint32_t fresh = atomic_load(&list->fresh);
    uint32_t slot =
        given != 0 ? given_find(slots, class) : class->first + fresh;
    wf_place place = wf_place_of(slots, key, slot);

    if (given == 0 && fresh == class->slots) {
        return NONE;
    }
    if (slot_clear(slots, &place) != WEFT_OK) {
        return NONE;
    }
    if (given != 0) {
        clear_bit(slots, WF_BIT_FREE, slot);
        atomic_store(&list->given, given - 1);
    } else {
        atomic_store(&list->fresh, fresh + 1);
    }
    return slot;
}

static uint32_t used_of(const wf_slots *slots, const wf_class *class)
{
    const wf_free_slots *list = &slots->shared->free[class - slots->classes];

    return atomic_load(&list->fresh) - atomic_load(&list->given);
}

uint32_t wf_slots_used(const wf_slots *slots)
{
    return used_of(slots, &slots->classes[0]);
}

uint32_t wf_slots_spare(const wf_slots *slots, uint64_t key)
{
    const wf_class *class = wf_class_of(slots, key);
    uint32_t used = used_of(slots, class);

    return used < class->usable ? class->usable - used : 0;
}

uint32_t wf_slot_take(wf_slots *slots, uint64_t key)
{
    const wf_class *class = wf_class_of(slots, key);

    return used_of(slots, class) < class->usable ? wf_slot_begin(slots, key)
                                                 : NONE;
}

void wf_slot_give(wf_slots *slots, uint64_t key, uint32_t slot)
{
    wf_free_slots *list = free_of(slots, wf_class_of(slots, key));

    clear_bit(slots, WF_BIT_DIRTY, slot);
    wf_slot_mark(slots, WF_BIT_FREE, slot);
    atomic_fetch_add(&list->given, 1);
}

/* Those below `fresh` that are not used were given back. */
static void class_recover(wf_slots *slots, const wf_class *class,
                          const uint64_t *used)
{
    wf_free_slots *list = free_of(slots, class);
    uint32_t fresh = atomic_load(&list->fresh);
    uint32_t given = 0;

    for (uint32_t i = 0; i < fresh; i++) {
        uint32_t slot = class->first + i;

        if ((used[slot / 64] >> slot % 64 & 1) == 0) {
            wf_bit_set(slots->bits, WF_BIT_FREE, slot);
            given++;
        }
    }
    atomic_store(&list->given, given);
}

void wf_slots_recover(wf_slots *slots, uint64_t *used)
{
    for (uint64_t key = 0; key < slots->keys; key++) {
        uint32_t word = wf_directory_get(slots, key);
        uint32_t slot = word & ~WF_KEY_HERE;

        if ((word & WF_KEY_HERE) != 0) {
            used[slot / 64] |= 1ull << slot % 64;
        }
    }
    for (uint64_t i = 0; i < ((uint64_t)slots->slots + 63) / 64; i++) {
        atomic_store(&slots->bits[i][WF_BIT_FREE], 0);
    }
    for (uint32_t c = 0; c < slots->count; c++) {
        class_recover(slots, &slots->classes[c], used);
    }
    /* The last server may have died over any word. */
    for (uint64_t i = 0; i < ((uint64_t)slots->slots + 4095) / 4096; i++) {
        atomic_store(&slots->above[i][WF_BIT_DIRTY], UINT64_MAX);
        atomic_store(&slots->above[i][WF_BIT_FREE], UINT64_MAX);
    }
}

/* --- copies that were written to ------------------------------------------ */

/* Take the first mark from `from` to `end` away; `end` if there is none. */
static uint64_t take_dirty(wf_bits *bits, uint64_t from, uint64_t end)
{
    for (uint64_t i = from; i < end; i = (i / 64 + 1) * 64) {
        uint64_t word = atomic_load(&bits[i / 64][WF_BIT_DIRTY]) >> i % 64;

        if (word != 0) {
            i += (unsigned)__builtin_ctzll(word);
            atomic_fetch_and(&bits[i / 64][WF_BIT_DIRTY], ~(1ull << i % 64));
            return i;
        }
    }
    return end;
}

/* A word whose own bit was taken away is looked at then: whoever sets a bit of
 * it later sets that one again. So a word is gone on with from its middle, but
 * else only those that have their bit are looked at. */
uint32_t wf_slots_dirty(wf_slots *slots, uint32_t from)
{
    uint64_t words = ((uint64_t)slots->slots + 63) / 64;
    uint64_t word = from / 64;
    uint64_t at = from;

    while (word < words) {
        uint64_t end = (word + 1) * 64;
        uint64_t slot = take_dirty(slots->bits, at, end);

        if (slot < end) {
            return (uint32_t)slot;
        }
        word = take_dirty(slots->above, word + 1, words);
        at = word * 64;
    }
    return NONE;
}
