/* SPDX-License-Identifier: Apache-2.0 */
/* What an allreduce costs the program around it.
 *
 * After a peer has read a buffer, its owner's next write is many times slower
 * than before, and a loop that never writes its buffer does not see that. So
 * the buffer is written, reduced in place and read; the same without the
 * reduction is taken off. */
#ifndef BENCH_CYCLE_H
#define BENCH_CYCLE_H

#include "work.h"

int cycle_check(const work_case *c, int rank, int ranks);
int cycle_block(struct page *page, const work_case *c, int ranks,
                work_result *out);

#endif
