/* SPDX-License-Identifier: Apache-2.0 */
/* How much memory is left. A memfd has no size limit of its own, so "too big"
 * has to be found before the pages are touched, or the kernel kills us. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weft/memory.h>

#include "base/num.h"
#include "base/status.h"
#include "mem/cgroup.h"
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

uint64_t wf_memory_of_host(void)
{
    long pages = sysconf(_SC_PHYS_PAGES); /* quicker than /proc/meminfo */

    return pages > 0 ? (uint64_t)pages * wf_segment_page() : UINT64_MAX;
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
    wf_cgroups groups;
    uint64_t room;

    wf_cgroups_read("", UINT64_MAX, &groups);
    room = wf_cgroups_room(&groups);
    return wf_least(host, room);
}

/* Both in one unit, what is needed rounded up and what there is rounded down,
 * so that the first is always seen to be more. */
weft_status wf_memory_fail(const char *what, uint64_t needs, uint64_t room,
                           const char *where)
{
    bool large = needs >= (uint64_t)10 << 20;
    unsigned shift = large ? 20 : 10;
    const char *unit = large ? "MiB" : "KiB";
    uint64_t up = (needs >> shift) + ((needs & ((1u << shift) - 1)) != 0);

    return wf_fail(WEFT_ERR_NOMEM,
                   "%s needs %llu %s of memory, but %s has only %llu %s left",
                   what, (unsigned long long)up, unit, where,
                   (unsigned long long)(room >> shift), unit);
}

weft_status wf_memory_check(const char *what, uint64_t bytes)
{
    uint64_t host = wf_memory_on_host();
    wf_cgroups groups;
    uint64_t room;

    if (bytes > host) {
        return wf_memory_fail(what, bytes, host, "this host");
    }
    wf_cgroups_read("", bytes, &groups);
    room = wf_cgroups_room(&groups);
    return bytes > room ? wf_memory_fail(what, bytes, room, WF_MEMORY_GROUP)
                        : WEFT_OK;
}

weft_status weft_memory_get(weft_memory_info *out)
{
    wf_cgroups groups;

    if (out == NULL || out->size < sizeof(*out)) {
        return wf_fail(WEFT_ERR_INVALID,
                       "out is NULL or out->size is too small");
    }
    wf_cgroups_read("", UINT64_MAX, &groups);
    out->host_room = wf_memory_on_host();
    out->group_limit = wf_cgroups_limit(&groups);
    out->group_room = wf_cgroups_room(&groups);
    return WEFT_OK;
}
