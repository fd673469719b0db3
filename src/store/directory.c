/* SPDX-License-Identifier: Apache-2.0 */
/* The directory, slots that are free, and copies that were written to. One
 * thread of the host changes the first two; that of the next rank goes on when
 * its process dies.
 *
 * Slots of a class that were never used are those from `fresh` on; those that
 * were given back are a list through the keys of the slots. */
#include "base/alloc.h"
#include "base/status.h"
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
    weft_status st = wf_place_lock(slots, place, WF_WRITER_ANY, &word);

    if (st == WEFT_OK) {
        /* The row changes after the word. */
        atomic_thread_fence(memory_order_release);
        memset(wf_place_row(place), 0, place->class->bytes);
        wf_place_unlock(place, word & ~WF_WORD_FLAGS);
    }
    return st;
}

/* One that dies in here has lost a slot at most, until wf_slots_recover. */
uint32_t wf_slot_take(wf_slots *slots, uint64_t key)
{
    const wf_class *class = wf_class_of(slots, key);
    wf_free_slots *list = free_of(slots, class);
    uint32_t given = atomic_load(&list->given);
    uint32_t fresh = atomic_load(&list->fresh);
    uint32_t slot = class->first + (given != 0 ? given - 1 : fresh);
    wf_place place = wf_place_of(slots, key, slot);

    if (given == 0 && fresh == class->slots) {
        return NONE;
    }
    if (slot_clear(slots, &place) != WEFT_OK) {
        return NONE;
    }
    if (given != 0) {
        atomic_store(&list->given, atomic_load(&slots->key_of[slot]));
    } else {
        atomic_store(&list->fresh, fresh + 1);
    }
    atomic_store(&slots->key_of[slot], (uint32_t)key);
    return slot;
}

void wf_slot_give(wf_slots *slots, uint64_t key, uint32_t slot)
{
    const wf_class *class = wf_class_of(slots, key);
    wf_free_slots *list = free_of(slots, class);

    atomic_fetch_and(&slots->dirty[slot / 64], ~(1ull << slot % 64));
    atomic_store(&slots->key_of[slot], atomic_load(&list->given));
    atomic_store(&list->given, slot - class->first + 1);
}

uint64_t wf_slot_key(const wf_slots *slots, uint32_t slot)
{
    return slots->direct ? slot : atomic_load(&slots->key_of[slot]);
}

weft_status wf_slots_recover(wf_slots *slots, const uint32_t *also)
{
    uint64_t *used = wf_zalloc(((uint64_t)slots->slots / 64 + 1) * 8);

    if (used == NULL) {
        return wf_fail_nomem("a list of %u slots", slots->slots);
    }
    for (uint64_t key = 0; key < slots->keys; key++) {
        uint32_t word = wf_directory_get(slots, key);
        uint32_t slot = word & ~WF_KEY_HERE;

        if ((word & WF_KEY_HERE) != 0) {
            used[slot / 64] |= 1ull << slot % 64;
            atomic_store(&slots->key_of[slot], (uint32_t)key);
        }
    }
    for (uint32_t slot = 0; slot < slots->slots; slot++) {
        if (also != NULL && also[slot] != 0) {
            used[slot / 64] |= 1ull << slot % 64;
            atomic_store(&slots->key_of[slot], also[slot] - 1);
        }
    }
    for (uint32_t c = 0; c < slots->count; c++) {
        const wf_class *class = &slots->classes[c];
        wf_free_slots *list = free_of(slots, class);
        uint32_t first = 0;

        for (uint32_t i = atomic_load(&list->fresh); i > 0; i--) {
            uint32_t slot = class->first + i - 1;

            if ((used[slot / 64] >> slot % 64 & 1) == 0) {
                atomic_store(&slots->key_of[slot], first);
                first = i;
            }
        }
        atomic_store(&list->given, first);
    }
    wf_free(used);
    return WEFT_OK;
}

/* --- copies that were written to ------------------------------------------ */

uint32_t wf_slots_dirty(wf_slots *slots, uint32_t from)
{
    for (uint64_t i = from; i < slots->slots; i = (i / 64 + 1) * 64) {
        uint64_t bits =
            atomic_load_explicit(&slots->dirty[i / 64], memory_order_relaxed) >>
            i % 64;

        if (bits != 0) {
            i += (unsigned)__builtin_ctzll(bits);
            atomic_fetch_and(&slots->dirty[i / 64], ~(1ull << i % 64));
            return (uint32_t)i;
        }
    }
    return NONE;
}
