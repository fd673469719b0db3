/* SPDX-License-Identifier: Apache-2.0 */
/* Private memory. All of the core allocates here, so that a test can make any
 * allocation fail. */
#ifndef WF_BASE_ALLOC_H
#define WF_BASE_ALLOC_H

#include <stddef.h>

#include "base/export.h"

WF_API void *wf_alloc(size_t bytes);
WF_API void *wf_zalloc(size_t bytes);
void *wf_zalloc_aligned(size_t align, size_t bytes);
void *wf_realloc(void *old, size_t bytes);
char *wf_strdup(const char *text);
WF_API void wf_free(void *p);

/* For tests: let the nth allocation from now (1 is the next one) on this
 * thread fail, once; 0 switches it off. */
void wf_alloc_fail_nth(unsigned nth);

/* For tests: let `count` allocations of all threads but the calling one fail,
 * from the nth on; a count of 0 switches it off. wf_alloc_others returns how
 * many were made since. */
void wf_alloc_fail_others(unsigned nth, unsigned count);
unsigned wf_alloc_others(void);

#endif
