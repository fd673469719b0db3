/* SPDX-License-Identifier: Apache-2.0 */
#include "store/hosts/active.h"

#include <string.h>

#include "base/alloc.h"
#include "store/patient.h"

#define NONE UINT32_MAX

/* --- lists ---------------------------------------------------------------- */

void wf_waiting_init(wf_waiting_list *list)
{
    *list = (wf_waiting_list){.end = &list->first};
}

void wf_waiting_append(wf_waiting_list *list, wf_waiting *w)
{
    w->next = NULL;
    *list->end = w;
    list->end = &w->next;
    list->count++;
}

wf_waiting *wf_waiting_first(wf_waiting_list *list)
{
    wf_waiting *w = list->first;

    if (w != NULL) {
        list->first = w->next;
        list->count--;
        if (list->first == NULL) {
            list->end = &list->first;
        }
    }
    return w;
}

void wf_waiting_take(wf_waiting_list *from, wf_waiting_list *to)
{
    wf_waiting *w;

    while ((w = wf_waiting_first(from)) != NULL) {
        wf_waiting_append(to, w);
    }
}

void wf_waiting_free(wf_waiting_list *list)
{
    wf_waiting *w;

    while ((w = wf_waiting_first(list)) != NULL) {
        wf_free(w);
    }
}

/* --- the set: two tables, open addressing by linear probing --------------- */

static uint64_t place_of(const wf_actives *set, uint64_t name)
{
    return (name * 0x9e3779b97f4a7c15ull >> 17) & (set->room - 1);
}

static uint64_t name_of(const wf_actives *set, wf_active **table,
                        const wf_active *a)
{
    return table == set->at ? a->key : a->slot;
}

/* Where the name is, or the empty place at which it would be. */
static uint64_t find(const wf_actives *set, wf_active **table, uint64_t name)
{
    uint64_t i = place_of(set, name);

    while (table[i] != NULL && name_of(set, table, table[i]) != name) {
        i = (i + 1) & (set->room - 1);
    }
    return i;
}

wf_active *wf_actives_find(const wf_actives *set, uint64_t key)
{
    return set->room > 0 ? set->at[find(set, set->at, key)] : NULL;
}

wf_active *wf_actives_at(const wf_actives *set, uint32_t slot)
{
    return set->room > 0 ? set->slot[find(set, set->slot, slot)] : NULL;
}

static bool grow(wf_actives *set)
{
    wf_actives more = {.room = set->room > 0 ? 2 * set->room : 64,
                       .count = set->count};
    size_t bytes = 2 * more.room * sizeof(wf_active *);

    more.at = wf_patient_realloc(NULL, bytes);
    if (more.at == NULL) {
        return false;
    }
    memset(more.at, 0, bytes);
    more.slot = more.at + more.room;
    for (uint64_t i = 0; i < set->room; i++) {
        wf_active *a = set->at[i];

        if (a != NULL) {
            more.at[find(&more, more.at, a->key)] = a;
        }
        if (a != NULL && a->slot != NONE) {
            more.slot[find(&more, more.slot, a->slot)] = a;
        }
    }
    wf_free(set->at);
    *set = more;
    return true;
}

wf_active *wf_actives_get(wf_actives *set, uint64_t key)
{
    wf_active *a = wf_actives_find(set, key);

    if (a != NULL) {
        return a;
    }
    if (2 * (set->count + 1) > set->room && !grow(set)) {
        return NULL;
    }
    a = wf_patient_realloc(NULL, sizeof(*a));
    if (a != NULL) {
        *a = (wf_active){
            .key = key, .record = WF_NO_RECORD, .base = NONE, .slot = NONE};
        wf_waiting_init(&a->parked);
        wf_waiting_init(&a->packed);
        set->at[find(set, set->at, key)] = a;
        set->count++;
    }
    return a;
}

/* Empty a place, and close the gap: what stands behind it may have been pushed
 * on by what stood there. */
static void empty(const wf_actives *set, wf_active **table, uint64_t hole)
{
    uint64_t mask = set->room - 1;

    table[hole] = NULL;
    for (uint64_t i = (hole + 1) & mask; table[i] != NULL; i = (i + 1) & mask) {
        uint64_t wish = place_of(set, name_of(set, table, table[i]));

        if (((i - wish) & mask) >= ((i - hole) & mask)) {
            table[hole] = table[i];
            table[i] = NULL;
            hole = i;
        }
    }
}

void wf_actives_watch(wf_actives *set, wf_active *a, uint32_t slot)
{
    if (a->slot != NONE) {
        empty(set, set->slot, find(set, set->slot, a->slot));
    }
    a->slot = slot;
    if (slot != NONE) {
        set->slot[find(set, set->slot, slot)] = a;
    }
}

void wf_actives_remove(wf_actives *set, uint64_t key)
{
    wf_active *a = wf_actives_find(set, key);

    if (a != NULL) {
        wf_actives_watch(set, a, NONE);
        wf_waiting_free(&a->parked);
        wf_waiting_free(&a->packed);
        empty(set, set->at, find(set, set->at, key));
        set->count--;
        wf_free(a);
    }
}

void wf_actives_fini(wf_actives *set)
{
    for (uint64_t i = 0; i < set->room; i++) {
        if (set->at[i] != NULL) {
            wf_waiting_free(&set->at[i]->parked);
            wf_waiting_free(&set->at[i]->packed);
            wf_free(set->at[i]);
        }
    }
    wf_free(set->at);
    *set = (wf_actives){0};
}
