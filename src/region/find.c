/* SPDX-License-Identifier: Apache-2.0 */
/* Which region is at this address? A tensor knows its address and nothing of
 * the region it lies in, so this table is, beside the log and the list of
 * mem/fork.c, the one thing of the library that is global.
 *
 * Ranges are kept in order of addresses. */
#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "region/region.h"

typedef struct range {
    uintptr_t from;
    uintptr_t until;
    weft_region *region;
} range;

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t installed = PTHREAD_ONCE_INIT;
static range *table;
static size_t count;
static size_t room;

/* A child must not find the table locked by a thread that it does not have, nor
 * a region. */
static void before_fork(void)
{
    pthread_mutex_lock(&table_lock);
}

static void after_in_parent(void)
{
    pthread_mutex_unlock(&table_lock);
}

static void after_in_child(void)
{
    for (size_t i = 0; i < count; i++) {
        pthread_mutex_init(&table[i].region->lock, NULL);
    }
    pthread_mutex_unlock(&table_lock);
}

static void install(void)
{
    pthread_atfork(before_fork, after_in_parent, after_in_child);
}

/* The first range that ends behind `address`; `count` if there is none. */
static size_t search(uintptr_t address)
{
    size_t low = 0;
    size_t high = count;

    while (low < high) {
        size_t mid = low + (high - low) / 2;

        if (table[mid].until <= address) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low;
}

/* Under the lock. */
static bool make_room(void)
{
    size_t more = room > 0 ? 2 * room : 16;
    range *grown;

    if (count < room) {
        return true;
    }
    grown = wf_realloc(table, more * sizeof(*table));
    if (grown != NULL) {
        table = grown;
        room = more;
    }
    return grown != NULL;
}

weft_status wf_find_add(weft_region *region, const void *at, uint64_t bytes)
{
    range r = {(uintptr_t)at, (uintptr_t)at + bytes, region};
    size_t i;

    pthread_once(&installed, install);
    pthread_mutex_lock(&table_lock);
    if (!make_room()) {
        pthread_mutex_unlock(&table_lock);
        return wf_fail_nomem("the table of regions");
    }
    i = search(r.from);
    memmove(&table[i + 1], &table[i], (count - i) * sizeof(*table));
    table[i] = r;
    count++;
    pthread_mutex_unlock(&table_lock);
    return WEFT_OK;
}

/* Under the lock. */
static void remove_at(size_t i)
{
    memmove(&table[i], &table[i + 1], (count - i - 1) * sizeof(*table));
    if (--count == 0) {
        wf_free(table);
        table = NULL;
        room = 0;
    }
}

void wf_find_remove(const weft_region *region, const void *at)
{
    size_t i;

    pthread_mutex_lock(&table_lock);
    i = search((uintptr_t)at);
    /* Ranks that are threads may have a device's addresses in common. */
    while (i < count && table[i].region != region) {
        i++;
    }
    if (i < count && table[i].from == (uintptr_t)at) {
        remove_at(i);
    }
    pthread_mutex_unlock(&table_lock);
}

/* The last holder may be about to go while another thread finds it: one of them
 * is first at the lock. */
bool wf_find_release(weft_region *region)
{
    bool last;

    pthread_mutex_lock(&table_lock);
    last = atomic_fetch_sub(&region->holders, 1) == 1;
    for (size_t i = count; last && i-- > 0;) {
        if (table[i].region == region) {
            remove_at(i);
        }
    }
    pthread_mutex_unlock(&table_lock);
    return last;
}

weft_region *weft_region_find(const void *address)
{
    weft_region *found = NULL;
    size_t i;

    pthread_mutex_lock(&table_lock);
    i = search((uintptr_t)address);
    if (i < count && table[i].from <= (uintptr_t)address) {
        found = table[i].region;
        weft_region_retain(found);
    }
    pthread_mutex_unlock(&table_lock);
    return found;
}

weft_region *weft_region_find_id(uint64_t id)
{
    weft_region *found = NULL;

    pthread_mutex_lock(&table_lock);
    for (size_t i = 0; i < count && found == NULL; i++) {
        if (table[i].region->id == id) {
            found = table[i].region;
            weft_region_retain(found);
        }
    }
    pthread_mutex_unlock(&table_lock);
    return found;
}
