/* SPDX-License-Identifier: Apache-2.0 */
/* How much memory the control groups of this process leave it.
 *
 * A process is in one group of each hierarchy: that of version 2, and, where
 * the memory controller is still one of version 1, that of it. A limit counts
 * for a group and all below it, so every group from ours up to the highest that
 * is mounted here is asked. A group near its limit drops pages of files before
 * it runs out, so these count as free, however much of a data set was read. */
#ifndef WF_MEM_CGROUP_H
#define WF_MEM_CGROUP_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Groups with a limit that are kept separately. Of more, those further up are
 * merged into the last entry. */
enum { WF_CGROUPS = 8 };

typedef struct wf_cgroup {
    uint64_t id; /* the same in every process of this host, and never 0 */
    uint64_t limit;
    uint64_t room; /* what is left of the limit */
} wf_cgroup;

typedef struct wf_cgroups {
    unsigned count;
    wf_cgroup group[WF_CGROUPS]; /* those with a limit, from ours upwards */
} wf_cgroups;

/* Read the kernel's files below `root` ("" except in tests). Droppable pages
 * are counted only where less than `enough` is free without them. A file that
 * is missing or cannot be parsed sets no limit. */
void wf_cgroups_read(const char *root, uint64_t enough, wf_cgroups *out);

/* The smallest limit and the smallest room; UINT64_MAX without a limit. */
uint64_t wf_cgroups_limit(const wf_cgroups *groups);
uint64_t wf_cgroups_room(const wf_cgroups *groups);

/* The group among whose processes the scheduler shares what cores it gets: a
 * number that is the same in all of them, and on this host in no others. 0:
 * this process is in none but the highest, or that cannot be seen from here. */
uint64_t wf_cgroup_scheduled(const char *root);

/* The groups that limit a process, as sent to other ranks; 0 means none. */
typedef struct wf_cgroup_ids {
    uint64_t id[WF_CGROUPS];
} wf_cgroup_ids;

void wf_cgroups_ids(const wf_cgroups *groups, wf_cgroup_ids *out);
bool wf_cgroup_ids_have(const wf_cgroup_ids *ids, uint64_t id);

/* The hierarchy of version 2, and those of version 1 for memory and cores. */
typedef enum wf_cgroup_kind {
    WF_CGROUP_V2,
    WF_CGROUP_V1,
    WF_CGROUP_V1_CPU
} wf_cgroup_kind;

/* The directory of this process's group. */
typedef struct wf_cgroup_path {
    char dir[PATH_MAX];
    size_t top; /* length of the mount point at the start of `dir` */
} wf_cgroup_path;

/* Find it in the text of /proc/self/cgroup and of /proc/self/mountinfo. False:
 * there is no such hierarchy, or it is not mounted here. */
bool wf_cgroup_find(wf_cgroup_kind kind, FILE *groups, FILE *mounts,
                    wf_cgroup_path *out);

#endif
