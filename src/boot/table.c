/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/table.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/status.h"

const wf_boot_entry *wf_boot_table_find(const wf_boot_table *table,
                                        const char *key)
{
    const wf_boot_entry *e = table->first;

    while (e != NULL && strcmp(e->key, key) != 0) {
        e = e->next;
    }
    return e;
}

weft_status wf_boot_table_put(wf_boot_table *table, const char *key,
                              const void *value, size_t n)
{
    wf_boot_entry *e;

    if (wf_boot_table_find(table, key) != NULL) {
        return wf_fail(WEFT_ERR_INVALID, "boot key '%s' is set already", key);
    }
    e = wf_alloc(sizeof(*e) + n);
    if (e == NULL) {
        return wf_fail_nomem("%zu bytes of boot key '%s'", n, key);
    }
    snprintf(e->key, sizeof(e->key), "%s", key);
    e->n = n;
    if (n > 0) {
        memcpy(e->value, value, n);
    }
    e->next = table->first;
    table->first = e;
    return WEFT_OK;
}

void wf_boot_table_fini(wf_boot_table *table)
{
    while (table->first != NULL) {
        wf_boot_entry *e = table->first;

        table->first = e->next;
        wf_free(e);
    }
}
