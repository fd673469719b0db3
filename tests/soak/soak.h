/* SPDX-License-Identifier: Apache-2.0 */
/* Random jobs on a store, one after the other, with a fault in most of them.
 *
 * A job has a shape (nodes, ranks, workers, keys, options), a few legs of work,
 * and a fault in its last leg. All of it is drawn from the seed and the number
 * of the job, so that a job can be run again; in what order ranks get to run is
 * the machine's choice.
 *
 * The first keys are shared: everybody adds ones to them, and keeps books of
 * what it has begun and what is done. The others belong to one worker each,
 * which alone adds to them and sets them, and so knows their values at any
 * time. All elements of a row are equal, so that a torn row is seen. After each
 * leg all hosts exchange what they have, and every row must be what the books
 * say. */
#ifndef WT_SOAK_H
#define WT_SOAK_H

#include <stdatomic.h>

#include "wt.h"

enum {
    SOAK_RANKS = 8,
    SOAK_THREADS = 3, /* workers of a rank, each with a thread */
    SOAK_WORKERS = SOAK_RANKS * SOAK_THREADS,
    SOAK_KEYS = 4096,
    SOAK_BATCH = 256,
    SOAK_ELEMENTS = 8192, /* of a batch */
    SOAK_PENDING = 8      /* operations of a worker that are under way */
};

typedef enum soak_fault {
    SOAK_CALM,
    SOAK_KILL,   /* kill -9 of one rank, of two, or of a whole node */
    SOAK_STOP,   /* SIGSTOP of a rank, and SIGCONT later */
    SOAK_STARVE, /* allocations of a rank fail */
    SOAK_DELAY,  /* messages between nodes take their time */
    SOAK_FAULTS
} soak_fault;

typedef struct soak_job {
    uint64_t seed;
    unsigned number;
    unsigned nodes;
    unsigned ranks;
    char node[SOAK_RANKS + 1]; /* a letter for each rank */
    unsigned threads;
    int64_t keys;
    int64_t shared; /* keys below this one are */
    uint64_t length;
    unsigned batch; /* keys of an operation at most */
    weft_dtype type;
    weft_techniques techniques;
    uint64_t cache;
    double rounds;
    int eager;
    weft_sample_scheme scheme;
    soak_fault fault;
    uint32_t victims; /* bitmap of ranks */
    unsigned legs;
    double seconds; /* of a leg */
    bool sockets;   /* between nodes */
} soak_job;

/* What a worker has done to a key. One that fails has begun and is not done. */
typedef struct soak_books {
    _Atomic int64_t begun[SOAK_KEYS];
    _Atomic int64_t done[SOAK_KEYS];
    /* Of its own keys: what they are; and whether it knows. */
    int64_t value[SOAK_KEYS];
    bool unknown[SOAK_KEYS];
} soak_books;

/* In memory that all ranks of all jobs share. */
typedef struct soak_board {
    _Atomic uint64_t operations; /* on keys */
    _Atomic uint64_t samples;
    _Atomic uint64_t checked; /* rows that were compared with the books */
    _Atomic uint64_t moved;
    _Atomic uint64_t copied;
    _Atomic uint64_t expired;
    _Atomic uint64_t parked;
    _Atomic uint64_t forwarded;
    _Atomic uint64_t refused;
    _Atomic uint64_t repaired;
    _Atomic uint64_t killed;      /* ranks */
    _Atomic uint64_t stopped;     /* times */
    _Atomic uint64_t starved;     /* operations */
    _Atomic uint64_t failed;      /* operations, because of a death */
    _Atomic uint64_t named_after; /* us, the longest */
    /* Of the job that runs. */
    _Atomic uint32_t struck;            /* 1 before the first victim dies */
    _Atomic uint32_t over;              /* the leg ends */
    _Atomic uint32_t lost;              /* somebody was told of a loss */
    _Atomic uint32_t steps[SOAK_RANKS]; /* that its workers have made */
    _Atomic uint32_t pid[SOAK_RANKS];   /* 0: not there yet */
    _Atomic int64_t synced[SOAK_KEYS];  /* as all hosts had it once */
    soak_books books[SOAK_WORKERS];
} soak_board;

extern soak_job job;
extern soak_board *board;

/* job.c: draw one, and say it in words. `seconds` of a leg; as processes or as
 * threads of one. */
void job_draw(uint64_t seed, unsigned number, double seconds, bool processes);
void job_text(char *text, size_t room);
/* The settings of a rank. */
const char *job_settings(unsigned rank);
const char *fault_name(soak_fault fault);
bool job_is_victim(unsigned rank);
/* Do all ranks of this rank's node die? */
bool job_node_dies(unsigned rank);

/* work.c: what a worker does until the leg is over. */
typedef struct soak_worker {
    weft_worker *worker;
    unsigned rank;
    unsigned number; /* of all workers */
    uint64_t seed;
} soak_worker;
void *soak_work(void *arg);
/* Numbers of the job's type. */
void soak_put(void *values, uint64_t at, int64_t number);
int64_t soak_get(const void *values, uint64_t at);
/* True if it went well; false if it failed as it may in this job. Else ends
 * the rank. */
bool soak_tolerates(weft_status st, const char *what);
uint64_t soak_random(uint64_t *seed);

/* rank.c: the body of a job. */
void soak_body(weft_world *world);
/* books.c: compare all rows with the books. */
void soak_check(weft_worker *worker);
/* After a leg that all have survived: what there is now is known to all. */
void soak_note_synced(void);

#endif
