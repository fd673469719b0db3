/* SPDX-License-Identifier: Apache-2.0 */
/* What a process holds and what it leaves behind, as /proc tells it. */
#ifndef WT_PROC_H
#define WT_PROC_H

#include <stdbool.h>
#include <stddef.h>

/* Of the calling process. Resident memory is in KiB. */
unsigned wt_count_fds(void);
unsigned wt_count_mappings(void);
unsigned wt_count_threads(void);
size_t wt_resident_kib(void);

/* Print the mappings, or what each descriptor is, to stderr. */
void wt_print_mappings(void);
void wt_print_fds(void);

/* Kill and reap all children there are; returns how many were there. */
unsigned wt_kill_children(void);

/* Give this process and its children a /dev/shm and a set of abstract sockets
 * of their own, so that what other programs do there does not count. False if
 * the kernel does not let us; wt_names_left then looks only at what it can
 * tell apart. */
bool wt_isolate(void);

/* Names in /dev/shm and abstract sockets that exist now, one in a line, that
 * only weft can have made. Empty when there are none. */
void wt_names_left(char *text, size_t room);

#endif
