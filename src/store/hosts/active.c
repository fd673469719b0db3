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

/* --- the set: open addressing, by linear probing -------------------------- */

static uint64_t place_of(const wf_actives *set, uint64_t key)
{
    return (key * 0x9e3779b97f4a7c15ull >> 17) & (set->room - 1);
}

/* Where the key is, or the empty place at which it would be. */
static uint64_t find(const wf_actives *set, uint64_t key)
{
    uint64_t i = place_of(set, key);

    while (set->at[i] != NULL && set->at[i]->key != key) {
        i = (i + 1) & (set->room - 1);
    }
    return i;
}

wf_active *wf_actives_find(const wf_actives *set, uint64_t key)
{
    return set->room > 0 ? set->at[find(set, key)] : NULL;
}

static bool grow(wf_actives *set)
{
    wf_actives more = {.room = set->room > 0 ? 2 * set->room : 64,
                       .count = set->count};

    more.at = wf_patient_realloc(NULL, more.room * sizeof(wf_active *));
    if (more.at == NULL) {
        return false;
    }
    memset(more.at, 0, more.room * sizeof(wf_active *));
    for (uint64_t i = 0; i < set->room; i++) {
        if (set->at[i] != NULL) {
            more.at[find(&more, set->at[i]->key)] = set->at[i];
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
        *a = (wf_active){.key = key, .record = WF_NO_RECORD, .base = NONE};
        wf_waiting_init(&a->parked);
        wf_waiting_init(&a->packed);
        set->at[find(set, key)] = a;
        set->count++;
    }
    return a;
}

/* Close the gap at `hole`: what stands behind it may have been pushed on by
 * what stood there. */
static void close_gap(wf_actives *set, uint64_t hole)
{
    uint64_t mask = set->room - 1;

    for (uint64_t i = (hole + 1) & mask; set->at[i] != NULL;
         i = (i + 1) & mask) {
        uint64_t wish = place_of(set, set->at[i]->key);

        if (((i - wish) & mask) >= ((i - hole) & mask)) {
            set->at[hole] = set->at[i];
            set->at[i] = NULL;
            hole = i;
        }
    }
}

void wf_actives_remove(wf_actives *set, uint64_t key)
{
    uint64_t i = find(set, key);
    wf_active *a = set->at[i];

    if (a != NULL) {
        wf_waiting_free(&a->parked);
        wf_waiting_free(&a->packed);
        wf_free(a);
        set->at[i] = NULL;
        set->count--;
        close_gap(set, i);
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
