/* SPDX-License-Identifier: Apache-2.0 */
/* Keys that something is going on with, found by their number: what a host's
 * server keeps of them in its own memory, and where their record is in the
 * memory of the host (book.h). */
#ifndef WF_STORE_HOSTS_ACTIVE_H
#define WF_STORE_HOSTS_ACTIVE_H

#include <stdbool.h>
#include <stdint.h>

#define WF_NO_RECORD UINT32_MAX

/* A message that waits, with its own copy of the data. */
typedef struct wf_waiting {
    struct wf_waiting *next;
    struct wf_entry *entry; /* behind this struct */
} wf_waiting;

typedef struct wf_waiting_list {
    wf_waiting *first;
    wf_waiting **end;
    uint32_t count;
} wf_waiting_list;

typedef struct wf_active {
    uint64_t key;
    uint32_t record;   /* in the book, or WF_NO_RECORD */
    uint32_t intents;  /* of this host that are due and have not ended */
    uint32_t base;     /* slot of a copy's base, or WF_NO_SLOT */
    uint32_t slot;     /* that is watched for writes, or WF_NO_SLOT */
    bool again;        /* it is in the list for the next round */
    bool forced;       /* which has to ask for it in any case */
    bool refused;      /* that there is no room for it was counted */
    uint32_t held;     /* messages about it in wf_store_hosts.held */
    uint64_t asked;    /* turn of the rounds in which it was asked for */
    uint64_t fresh_ns; /* a copy: when it was last refreshed */
    wf_waiting_list parked;
    wf_waiting_list packed;
} wf_active;

typedef struct wf_actives {
    wf_active **at;   /* by key */
    wf_active **slot; /* by the slot that is watched */
    uint64_t room;    /* in each: a power of two */
    uint64_t count;
} wf_actives;

/* NULL if it is not there. */
wf_active *wf_actives_find(const wf_actives *set, uint64_t key);
/* NULL without memory. */
wf_active *wf_actives_get(wf_actives *set, uint64_t key);
void wf_actives_remove(wf_actives *set, uint64_t key);
/* Watch this slot from now on, or none: WF_NO_SLOT. No two keys have one. */
void wf_actives_watch(wf_actives *set, wf_active *a, uint32_t slot);
/* The key whose slot this is, if it is watched; or NULL. */
wf_active *wf_actives_at(const wf_actives *set, uint32_t slot);
void wf_actives_fini(wf_actives *set);

void wf_waiting_init(wf_waiting_list *list);
void wf_waiting_append(wf_waiting_list *list, wf_waiting *w);
/* NULL if there is none. */
wf_waiting *wf_waiting_first(wf_waiting_list *list);
/* Append all of `from` to `to`. */
void wf_waiting_take(wf_waiting_list *from, wf_waiting_list *to);
void wf_waiting_free(wf_waiting_list *list);

#endif
