/* SPDX-License-Identifier: Apache-2.0 */
/* What a driver does between two commands. measure.c does it for a library
 * behind backend.h, limit.c for the bare machine. All ranks call the same
 * functions in the same order; 0 is success, and a failure has left a line on
 * stderr. WORK_LACKS, which all ranks return alike, is a failure that takes
 * nothing from the job: the library has no memory of its own for the case. */
#ifndef BENCH_WORK_H
#define BENCH_WORK_H

#include "op.h"
#include "page.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WORK_LACKS = 1 };

typedef struct work_case {
    enum op op;
    size_t bytes;  /* of a block of floats */
    bool huge;     /* ask for huge pages instead of refusing them */
    bool arena;    /* buffers in the library's own memory */
    double ms;     /* time for the timed calls of a block */
    uint32_t seed; /* of the data */
} work_case;

/* Nanoseconds of one call, as this rank saw it. */
typedef struct work_result {
    double probe_before;
    double probe_after;
    double median;
    double low;
    double high;
    uint64_t calls;
} work_result;

int work_init(int *argc, char ***argv, int *rank, int *ranks);
void work_fini(void);

/* Tell all ranks the path of the page that rank 0 has made. Only a driver that
 * is run by hand needs it. */
int work_share_path(char *path, size_t room);

int work_check(struct page *page, const work_case *c);
int work_block(struct page *page, const work_case *c, work_result *out);

#endif
