/* SPDX-License-Identifier: Apache-2.0 */
/* How much memory is left. A memfd has no size limit of its own, so "too big"
 * has to be found before the pages are touched, or the kernel kills us. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* A limit may sit at any group from ours up to the root. */
static uint64_t groups_headroom(void)
{
    char line[400];
    char *group;
    uint64_t least = group_headroom("");

    if (!read_line_of("/proc/self/cgroup", "0::", line, sizeof(line))) {
        return least;
    }
    line[strcspn(line, "\n")] = '\0';
    group = line + 3;
    while (group[0] == '/' && group[1] != '\0') {
        uint64_t room = group_headroom(group);

        least = room < least ? room : least;
        *strrchr(group, '/') = '\0';
    }
    return least;
}

uint64_t wf_memory_available(void)
{
    char line[128];
    uint64_t host = UINT64_MAX;
    uint64_t group = groups_headroom();

    if (read_line_of("/proc/meminfo", "MemAvailable:", line, sizeof(line))) {
        host = strtoull(line + strlen("MemAvailable:"), NULL, 10) * 1024;
    }
    return host < group ? host : group;
}
