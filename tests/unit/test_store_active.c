/* SPDX-License-Identifier: Apache-2.0 */
/* The keys that something is going on with, found by key and by slot, against
 * arrays. */
#include <stdlib.h>

#include "store/hosts/active.h"
#include "wt_cmocka.h"

#define NONE UINT32_MAX

enum { KEYS = 300, SLOTS = 400, STEPS = 200000 };

static void check(const wf_actives *set, const bool *there,
                  const uint32_t *slot_of, const uint32_t *key_of)
{
    for (uint32_t key = 0; key < KEYS; key++) {
        const wf_active *a = wf_actives_find(set, key);

        assert_true((a != NULL) == there[key]);
        assert_true(a == NULL || (a->key == key && a->slot == slot_of[key]));
    }
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        const wf_active *a = wf_actives_at(set, slot);

        assert_true(a != NULL ? a->key == key_of[slot] : key_of[slot] == NONE);
    }
}

static void keys_are_found_by_number_and_by_slot(void **state)
{
    wf_actives set = {0};
    bool there[KEYS] = {false};
    uint32_t slot_of[KEYS];
    uint32_t key_of[SLOTS];

    (void)state;
    srand(7);
    for (uint32_t i = 0; i < SLOTS; i++) {
        key_of[i] = NONE;
        slot_of[i % KEYS] = NONE;
    }
    assert_null(wf_actives_find(&set, 0));
    assert_null(wf_actives_at(&set, 0));
    for (unsigned i = 0; i < STEPS; i++) {
        uint32_t key = (uint32_t)rand() % KEYS;
        uint32_t slot = (uint32_t)rand() % SLOTS;
        uint32_t before = slot_of[key];

        if (rand() % 3 == 0) {
            wf_actives_remove(&set, key);
            there[key] = false;
            slot = NONE;
        } else {
            slot = rand() % 4 == 0 ? NONE : slot;
            slot = slot != NONE && key_of[slot] != NONE ? before : slot;
            wf_actives_watch(&set, wf_actives_get(&set, key), slot);
            there[key] = true;
        }
        if (before != NONE) {
            key_of[before] = NONE;
        }
        if (slot != NONE) {
            key_of[slot] = key;
        }
        slot_of[key] = slot;
        if (i % 1000 == 0) {
            check(&set, there, slot_of, key_of);
        }
    }
    check(&set, there, slot_of, key_of);
    wf_actives_fini(&set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_are_found_by_number_and_by_slot),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
