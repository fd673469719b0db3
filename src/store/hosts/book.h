/* SPDX-License-Identifier: Apache-2.0 */
/* What the ranks of a host share of a store over several hosts, beside its
 * rows: the records of keys that the directory's word does not say everything
 * of, the clocks of workers, and how many rounds there were. If the server
 * dies, the next rank of the host goes on from here.
 *
 * A record is changed in two steps: the new one is written to the journal,
 * which is then valid, and copied from there. Whoever takes over repeats the
 * second step. */
#ifndef WF_STORE_HOSTS_BOOK_H
#define WF_STORE_HOSTS_BOOK_H

#include <stdatomic.h>
#include <stdbool.h>

#include "comm/comm.h"
#include "store/protocol.h"

/* Workers of one rank that can have clocks at the same time. */
#define WF_BOOK_WORKERS 256u

/* A clock in the book counts on when its place is used again: above these bits
 * is which use it is. So intents of the worker before are over. */
#define WF_CLOCK_BITS 40

static inline int64_t wf_clock_first(int64_t clock)
{
    return clock >> WF_CLOCK_BITS << WF_CLOCK_BITS;
}

/* The first one of the next use. */
static inline int64_t wf_clock_end(int64_t clock)
{
    return wf_clock_first(clock) + ((int64_t)1 << WF_CLOCK_BITS);
}

/* Of a worker that is gone: nothing is used again. */
static inline bool wf_clock_last(int64_t clock)
{
    return clock >= (int64_t)1 << 62;
}

typedef struct wf_record {
    uint32_t used;
    uint32_t base; /* slot of a copy's base, or WF_NO_SLOT */
    wf_key_state state;
} wf_record;

typedef struct wf_book_head {
    /* Rounds that this host has begun and that are over; how many somebody
     * waits for. */
    alignas(64) _Atomic uint64_t begun;
    _Atomic uint64_t over;
    _Atomic uint64_t wanted;
    /* Differences that may have been lost, and 1 + the rank of the job with
     * which the last ones were. */
    _Atomic uint64_t lost;
    _Atomic uint32_t lost_with;
    _Atomic uint64_t owned; /* keys that this host owns */
    _Atomic uint64_t copies;
    _Atomic uint32_t serial; /* of the last SYNC of this host */
    /* 1 + the key whose base the server is writing; 0: none. */
    _Atomic uint64_t basing;
    alignas(64) _Atomic uint32_t journal; /* 1 + the record; 0: nothing */
    wf_record written;
    alignas(64) _Atomic uint32_t made; /* records from here on are unused */
} wf_book_head;

typedef struct wf_book {
    wf_segment segment;
    uint64_t bytes; /* of all of it */
    wf_book_head *head;
    _Atomic int64_t *clock; /* by rank of the host and worker */
    wf_record *record;
    uint32_t records;
    uint64_t populated; /* bytes that have memory */
    uint32_t *free;     /* of the server: records that are unused */
    uint32_t frees;
    uint32_t room;  /* in `free` */
    uint64_t begin; /* of the records in the memory */
} wf_book;

/* Collective over the ranks of a host: make memory for up to `keys` records,
 * and, if that went well on all, share it. */
weft_status wf_book_make(wf_book *book, weft_comm *host, uint64_t keys);
weft_status wf_book_open(wf_book *book, weft_comm *host);
void wf_book_close(wf_book *book);

/* For the server. WF_NO_RECORD: no memory. */
uint32_t wf_book_take(wf_book *book);
void wf_book_give(wf_book *book, uint32_t record);
/* Give the memory of records back, if none is in use. */
void wf_book_trim(wf_book *book);
void wf_book_write(wf_book *book, uint32_t record, const wf_key_state *state,
                   uint32_t base);
/* Finish what the last server began, and find the records that are unused. */
weft_status wf_book_take_over(wf_book *book);

static inline _Atomic int64_t *wf_book_clock(const wf_book *book, uint32_t rank,
                                             uint32_t worker)
{
    return &book->clock[(uint64_t)rank * WF_BOOK_WORKERS + worker];
}

#endif
