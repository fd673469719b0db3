/* SPDX-License-Identifier: Apache-2.0 */
/* What the control groups of this process leave it of memory.
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

/* Groups with a limit that are told apart. Of more, those further up take the
 * last place together. */
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

/* Ask the kernel, through its files below `root`: "" but in tests. What can be
 * dropped is looked up only where there is less than `enough` without it.
 * A file that is missing or is not understood sets no limit. */
void wf_cgroups_read(const char *root, uint64_t enough, wf_cgroups *out);

/* The smallest limit and the smallest room; UINT64_MAX without a limit. */
uint64_t wf_cgroups_limit(const wf_cgroups *groups);
uint64_t wf_cgroups_room(const wf_cgroups *groups);

/* Which groups limit a process, for others to know; 0 stands for none. */
typedef struct wf_cgroup_ids {
    uint64_t id[WF_CGROUPS];
} wf_cgroup_ids;

void wf_cgroups_ids(const wf_cgroups *groups, wf_cgroup_ids *out);
bool wf_cgroup_ids_have(const wf_cgroup_ids *ids, uint64_t id);

typedef enum wf_cgroup_kind { WF_CGROUP_V2, WF_CGROUP_V1 } wf_cgroup_kind;

/* Where the group of this process is mounted. */
typedef struct wf_cgroup_place {
    char dir[PATH_MAX];
    size_t top; /* length of the part of `dir` that is the mount point */
} wf_cgroup_place;

/* Find it in the text of /proc/self/cgroup and of /proc/self/mountinfo. False:
 * there is no such hierarchy, or it is not mounted here. */
bool wf_cgroup_find(wf_cgroup_kind kind, FILE *groups, FILE *mounts,
                    wf_cgroup_place *out);

#endif
