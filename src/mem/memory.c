/* SPDX-License-Identifier: Apache-2.0 */
/* How much memory is left. A memfd has no size limit of its own, so "too big"
 * has to be found before the pages are touched, or the kernel kills us. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "mem/segment.h"

static bool read_line_of(const char *path, const char *prefix, char *line,
                         size_t room)
{
    FILE *f = fopen(path, "re");
    bool found = false;

    if (f == NULL) {
        return false;
    }
    while (!found && fgets(line, (int)room, f) != NULL) {
        found = strncmp(line, prefix, strlen(prefix)) == 0;
    }
    fclose(f);
    return found;
}

static bool read_number(const char *path, uint64_t *out)
{
    char line[64];
    char *end;

    if (!read_line_of(path, "", line, sizeof(line))) {
        return false;
    }
    *out = strtoull(line, &end, 10);
    return end != line; /* "max" means no limit */
}

/* What one control group (version 2) leaves to its members. */
static uint64_t group_headroom(const char *group)
{
    char path[512];
    uint64_t limit;
    uint64_t used;

    snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.max", group);
    if (!read_number(path, &limit)) {
        return UINT64_MAX;
    }
    snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.current", group);
    if (!read_number(path, &used)) {
        return UINT64_MAX;
    }
    return used < limit ? limit - used : 0;
}

/* The path of our group below the mount, "" for the root and where there is no
 * version 2. */
static void own_group(char *path, size_t room)
{
    char line[400];

    path[0] = '\0';
    if (read_line_of("/proc/self/cgroup", "0::", line, sizeof(line))) {
        line[strcspn(line, "\n")] = '\0';
        snprintf(path, room, "%s", line + 3);
    }
}

/* A limit may sit at any group from ours up to the root. */
uint64_t wf_memory_in_group(void)
{
    char group[400];
    uint64_t least = group_headroom("");

    own_group(group, sizeof(group));
    while (group[0] == '/' && group[1] != '\0') {
        uint64_t room = group_headroom(group);

        least = room < least ? room : least;
        *strrchr(group, '/') = '\0';
    }
    return least;
}

uint64_t wf_memory_group_id(void)
{
    char group[400];
    char path[512];
    struct stat s;

    own_group(group, sizeof(group));
    snprintf(path, sizeof(path), "/sys/fs/cgroup%s", group);
    /* The directory itself: paths are relative to a namespace. */
    return stat(path, &s) == 0 ? (uint64_t)s.st_ino : 0;
}

/* "Name:   17 kB" of /proc/meminfo, in units of `unit`. */
static bool meminfo(const char *name, uint64_t unit, uint64_t *out)
{
    char line[128];

    if (!read_line_of("/proc/meminfo", name, line, sizeof(line))) {
        return false;
    }
    *out = strtoull(line + strlen(name), NULL, 10) * unit;
    return true;
}

uint64_t wf_memory_on_host(void)
{
    uint64_t bytes = UINT64_MAX;

    (void)meminfo("MemAvailable:", 1024, &bytes);
    return bytes;
}

uint64_t wf_memory_huge_free(void)
{
    uint64_t pages = 0;
    uint64_t reserved = 0;
    uint64_t size = 0;

    if (!meminfo("HugePages_Free:", 1, &pages) ||
        !meminfo("HugePages_Rsvd:", 1, &reserved) ||
        !meminfo("Hugepagesize:", 1024, &size) || size != WF_HUGE_PAGE) {
        return 0;
    }
    return pages > reserved ? (pages - reserved) * size : 0;
}

uint64_t wf_memory_available(void)
{
    uint64_t host = wf_memory_on_host();
    uint64_t group = wf_memory_in_group();

    return host < group ? host : group;
}
