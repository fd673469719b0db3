/* SPDX-License-Identifier: Apache-2.0 */
/* The table of a job of one rank. */
#include "base/alloc.h"
#include "base/status.h"
#include "boot/boot.h"
#include "boot/table.h"

typedef struct alone {
    wf_boot boot;
    wf_boot_table table;
} alone;

static weft_status alone_set(void *ctx, const char *key, const void *value,
                             size_t n)
{
    alone *a = ctx;
    weft_status st = wf_boot_check_entry(key, value, n);

    return st != WEFT_OK ? st : wf_boot_table_put(&a->table, key, value, n);
}

/* Nobody else could set the key while we wait, so we do not. */
static weft_status alone_get(void *ctx, const char *key, void *value, size_t *n,
                             uint32_t timeout_ms)
{
    alone *a = ctx;
    const wf_boot_entry *e;
    weft_status st = wf_boot_check_room(key, value, n);

    (void)timeout_ms;
    if (st != WEFT_OK) {
        return st;
    }
    e = wf_boot_table_find(&a->table, key);
    if (e == NULL) {
        return wf_fail(WEFT_ERR_TIMEOUT,
                       "boot key '%s' is not set, and the job has no other "
                       "rank that could set it",
                       key);
    }
    return wf_boot_copy_out(key, e->value, e->n, value, n);
}

static void alone_close(wf_boot *boot)
{
    alone *a = (alone *)boot;

    wf_boot_table_fini(&a->table);
    wf_free(a);
}

weft_status wf_boot_open_alone(weft_boot **out)
{
    alone *a = wf_zalloc(sizeof(*a));

    if (a == NULL) {
        return wf_fail_nomem("the boot table");
    }
    a->boot.close = alone_close;
    a->boot.api = (weft_boot){
        .size = sizeof(weft_boot),
        .rank = 0,
        .ranks = 1,
        .ctx = a,
        .set = alone_set,
        .get = alone_get,
    };
    *out = &a->boot.api;
    return WEFT_OK;
}
