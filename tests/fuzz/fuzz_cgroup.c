/* SPDX-License-Identifier: Apache-2.0 */
/* The paths of control groups and mounts are chosen by whoever set them up. The
 * text is that of /proc/self/cgroup, a zero byte, and that of
 * /proc/self/mountinfo. What is found is a path below a mount point. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "mem/cgroup.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void must(int holds)
{
    if (!holds) {
        abort();
    }
}

static FILE *open_text(const uint8_t *data, size_t n)
{
    /* fmemopen takes no empty buffer. */
    FILE *f = n > 0 ? fmemopen((void *)(uintptr_t)data, n, "r")
                    : fopen("/dev/null", "re");

    must(f != NULL);
    return f;
}

static void find(wf_cgroup_kind kind, const uint8_t *data, size_t n)
{
    const uint8_t *zero = n > 0 ? memchr(data, 0, n) : NULL;
    size_t first = zero != NULL ? (size_t)(zero - data) : n;
    size_t skip = zero != NULL ? first + 1 : first;
    FILE *groups = open_text(data, first);
    FILE *mounts = open_text(data + skip, n - skip);
    wf_cgroup_path path;

    memset(&path, 0x5a, sizeof(path));
    if (wf_cgroup_find(kind, groups, mounts, &path)) {
        must(memchr(path.dir, 0, sizeof(path.dir)) != NULL);
        must(path.dir[0] == '/');
        must(path.top <= strlen(path.dir));
        must(path.dir[path.top] == '/' || path.dir[path.top] == 0);
        must(strstr(path.dir + path.top, "/..") == NULL);
    }
    fclose(groups);
    fclose(mounts);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    find(WF_CGROUP_V2, data, n);
    find(WF_CGROUP_V1, data, n);
    find(WF_CGROUP_V1_CPU, data, n);
    return 0;
}
