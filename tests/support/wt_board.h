/* SPDX-License-Identifier: Apache-2.0 */
/* The page that the parent and all ranks of a run share. Inside tests/support
 * only. */
#ifndef WT_BOARD_H
#define WT_BOARD_H

#include "wt.h"

typedef struct wt_board {
    char name[48]; /* of the job; unique in the machine */
    unsigned ranks;
    const wt_job *job; /* the ranks are forks, so the pointer means the same */
    /* wt_meet: who has come, and how many times all have come. */
    _Atomic uint32_t met;
    _Atomic uint32_t meetings;
    /* 1 once the parent has seen the rank stop or end. */
    _Atomic uint32_t gone[WT_MAX_RANKS];
    _Atomic uint64_t hash[WT_MAX_RANKS];
    _Atomic uint32_t word[WT_WORDS];
    /* The first rank that fails takes `failed` and fills in the reason. */
    _Atomic uint32_t failed;
    char reason[2048];
} wt_board;

/* The board of the current run. */
extern wt_board *wt_the_board;

/* Run a rank's part of the board's job on the calling thread; returns when it
 * is done, ends the process if it fails. */
void wt_rank_main(unsigned rank);
/* The same for a job that is not the board's. */
void wt_rank_run(const wt_job *job, unsigned rank);

/* Tell who speaks when a thread that is no rank fails; UINT32_MAX for nobody.
 */
void wt_process_speaks_for(unsigned rank);

/* Let faults kill this process. */
void wt_child_signals(void);

/* Futexes that work between processes. */
void wt_futex_await(_Atomic uint32_t *word, uint32_t at_least);
void wt_futex_wake(_Atomic uint32_t *word);

#endif
