/* SPDX-License-Identifier: Apache-2.0 */
#include "store/keymap.h"

#include <string.h>

#include "base/alloc.h"
#include "base/status.h"

/* More would not fit into any memory. */
#define KEYS_MAX (UINT64_C(1) << 56)

static uint64_t keymap_entries(const wf_keymap *map)
{
    return UINT64_C(1) << (64 - map->shift);
}

static uint64_t keymap_words(const wf_keymap *map)
{
    return (keymap_entries(map) + 63) / 64;
}

weft_status wf_keymap_init(wf_keymap *map, uint64_t n)
{
    *map = (wf_keymap){.shift = 64 - 3};
    if (n > KEYS_MAX) {
        return wf_fail_nomem("a set of %llu keys", (unsigned long long)n);
    }
    while (keymap_entries(map) < 2 * n) { /* half full at most */
        map->shift--;
    }
    map->entries = wf_alloc(keymap_entries(map) * sizeof(*map->entries));
    map->used = wf_zalloc(keymap_words(map) * sizeof(*map->used));
    if (map->entries == NULL || map->used == NULL) {
        wf_keymap_fini(map);
        return wf_fail_nomem("a set of %llu keys", (unsigned long long)n);
    }
    return WEFT_OK;
}

void wf_keymap_fini(wf_keymap *map)
{
    wf_free(map->entries);
    wf_free(map->used);
    *map = (wf_keymap){0};
}

void wf_keymap_clear(wf_keymap *map)
{
    memset(map->used, 0, keymap_words(map) * sizeof(*map->used));
}

/* The entry of a key, or the free one where it belongs. */
static uint64_t keymap_place(const wf_keymap *map, int64_t key, bool *found)
{
    uint64_t last = keymap_entries(map) - 1;
    /* The high bits of the product depend on all bits of the key. */
    uint64_t i = (uint64_t)key * 0x9e3779b97f4a7c15u >> map->shift;

    *found = false;
    while (map->used[i / 64] >> i % 64 & 1) {
        if (map->entries[i].key == key) {
            *found = true;
            break;
        }
        i = (i + 1) & last;
    }
    return i;
}

int64_t *wf_keymap_find(const wf_keymap *map, int64_t key)
{
    bool found;
    uint64_t i = keymap_place(map, key, &found);

    return found ? &map->entries[i].value : NULL;
}

bool wf_keymap_add(wf_keymap *map, int64_t key, int64_t value)
{
    bool found;
    uint64_t i = keymap_place(map, key, &found);

    if (!found) {
        map->entries[i] = (wf_keymap_entry){key, value};
        map->used[i / 64] |= UINT64_C(1) << i % 64;
    }
    return !found;
}
