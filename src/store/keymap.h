/* SPDX-License-Identifier: Apache-2.0 */
/* A map from keys to keys, by open addressing: the keys that a sample has used,
 * each with the key from which to look on. It has room for a number of keys
 * that is known in advance, and forgets only all of them together. */
#ifndef WF_STORE_KEYMAP_H
#define WF_STORE_KEYMAP_H

#include <stdbool.h>
#include <stdint.h>
#include <weft/status.h>

typedef struct wf_keymap_entry {
    int64_t key;
    int64_t value;
} wf_keymap_entry;

typedef struct wf_keymap {
    wf_keymap_entry *entries;
    uint64_t *used; /* a bit for each entry */
    unsigned shift; /* 64 less the logarithm of the number of entries */
} wf_keymap;

/* For up to `n` keys. WEFT_ERR_NOMEM. */
weft_status wf_keymap_init(wf_keymap *map, uint64_t n);
void wf_keymap_fini(wf_keymap *map);
void wf_keymap_clear(wf_keymap *map);

/* The value of a key, or NULL. It is valid until something is added. */
int64_t *wf_keymap_find(const wf_keymap *map, int64_t key);

/* Add a key, unless it is there: then false. */
bool wf_keymap_add(wf_keymap *map, int64_t key, int64_t value);

#endif
