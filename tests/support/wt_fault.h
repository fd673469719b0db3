/* SPDX-License-Identifier: Apache-2.0 */
/* One rank of a job is struck while all are at work; the others must be told
 * of it, and be able to go on without it.
 *
 * The blow comes from a second thread of the victim while its first one works,
 * so that it falls inside an operation as well as between two. */
#ifndef WT_FAULT_H
#define WT_FAULT_H

#include <stdbool.h>
#include <stddef.h>

#include "wt.h"
#include "wt_coll.h"

/* For ranks that join a job which one of them never joins: how long they wait
 * for it, which must be long for those who only come late. They meet first. */
#define WT_BOOT_SETTINGS                                                       \
    (WT_ASAN ? "BOOT_TIMEOUT=2s TIMEOUT=2s" : "BOOT_TIMEOUT=1s TIMEOUT=1s")
#define WT_BOOT_DEADLINE_S (WT_ASAN ? 2.0 : 1.0)

/* What the ranks are doing. */
typedef enum wt_phase {
    WT_IDLE,               /* nothing: the next call must tell */
    WT_SMALL,              /* allreduces of a few bytes */
    WT_LARGE,              /* allreduces of 16 MiB */
    WT_MESSAGE,            /* messages in a ring */
    WT_PENDING,            /* waiting for a request that needs the victim */
    WT_COLLECTIVE,         /* any one collective, over and over */
    WT_PHASES,             /* of a job that has formed */
    WT_JOINING = WT_PHASES /* forming it */
} wt_phase;

/* What happens to the victim. */
typedef enum wt_blow {
    WT_BLOW_KILL,  /* kill -9 */
    WT_BLOW_STOP,  /* SIGSTOP: it is there, but does nothing */
    WT_BLOW__EXIT, /* _exit(0): without a word */
    WT_BLOW_EXIT,  /* exit(0): without weft_world_destroy */
    WT_BLOWS
} wt_blow;

typedef struct wt_fault {
    unsigned ranks;
    unsigned victim;
    wt_phase phase;
    wt_blow blow;
    bool with_child; /* the victim has a forked child that lives on */
    /* Rounds of work before the blow; of WT_JOINING, units of 10 us. */
    unsigned strike_at;
    /* Of WT_COLLECTIVE: which one; of megabytes; behind a request. */
    wt_coll_kind coll;
    bool large;
    bool by_request;
    const char *settings; /* besides TIMEOUT, or NULL */
    const char *nodes;    /* the node of each rank, a letter; NULL: one node */
} wt_fault;

/* Run it and fail the cmocka test unless every survivor got an error that
 * names the victim, in time, and went on in a group without it, and nothing is
 * left of the job. */
void wt_fault_run(const wt_fault *fault);

/* "kill of rank 2 of 3 in large, with a child". */
void wt_fault_text(const wt_fault *fault, char *text, size_t room);

/* Strike the calling process; returns only from a stop. */
void wt_strike(wt_blow blow);

/* Seconds in which a death must be told of, and by how much a deadline may be
 * overrun. It is a bound on liveness and not a measure of speed. */
double wt_death_bound(void);

/* After wf_alloc_fail_nth(nth) and a call: switch the hook off. True if it was
 * still waiting, so that the call made fewer than `nth` allocations. */
bool wt_starved_left(unsigned nth);

/* Fail the cmocka test if the job left a name in /dev/shm or a socket. */
void wt_expect_no_names(void);

#endif
