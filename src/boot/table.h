/* SPDX-License-Identifier: Apache-2.0 */
/* Keys and values in private memory. One thread uses a table at a time. */
#ifndef WF_BOOT_TABLE_H
#define WF_BOOT_TABLE_H

#include "boot/boot.h"

typedef struct wf_boot_entry {
    struct wf_boot_entry *next;
    char key[WF_BOOT_KEY_MAX + 1];
    size_t n;
    unsigned char value[];
} wf_boot_entry;

/* All zero is an empty table. It is a list: a job sets a few keys per rank. */
typedef struct wf_boot_table {
    wf_boot_entry *first;
} wf_boot_table;

/* Add an entry that wf_boot_check_entry has accepted. WEFT_ERR_INVALID if the
 * key is set already, WEFT_ERR_NOMEM. */
WF_API weft_status wf_boot_table_put(wf_boot_table *table, const char *key,
                                     const void *value, size_t n);

/* The entry, or NULL. It stays where it is until wf_boot_table_fini. */
WF_API const wf_boot_entry *wf_boot_table_find(const wf_boot_table *table,
                                               const char *key);

WF_API void wf_boot_table_fini(wf_boot_table *table);

#endif
