/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank's record says of the machine that it runs on. */
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"
#include "mem/cgroup.h"
#include "mem/join.h"

/* Two ranks may share memory only if this is the same for both, so it must not
 * be guessed. */
static weft_status read_boot_id(char *out, size_t room)
{
    static const char path[] = "/proc/sys/kernel/random/boot_id";
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n;

    if (fd < 0) {
        return wf_fail_errno("%s", path);
    }
    n = read(fd, out, room - 1);
    close(fd);
    if (n <= 0) {
        return wf_fail(WEFT_ERR_SYSTEM, "%s is empty", path);
    }
    out[n] = '\0';
    out[strcspn(out, "\n")] = '\0';
    return WEFT_OK;
}

static uint64_t namespace_id(const char *path)
{
    struct stat s;

    return stat(path, &s) == 0 ? (uint64_t)s.st_ino : 0;
}

static void read_cpus(unsigned char *out, size_t room)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof(set), &set) != 0) {
        return;
    }
    for (size_t i = 0; i < CPU_SETSIZE && i < room * 8; i++) {
        if (CPU_ISSET(i, &set)) {
            out[i / 8] |= (unsigned char)(1u << (i % 8));
        }
    }
}

/* The scheduler shares a core among control groups first or, with autogroups,
 * among the sessions of processes that are in none: giving it up with
 * sched_yield reaches processes of one's own only. */
static int64_t scheduling_session(void)
{
    uint64_t group = wf_cgroup_scheduled("");
    int fd =
        open("/proc/sys/kernel/sched_autogroup_enabled", O_RDONLY | O_CLOEXEC);
    char on = '0';

    if (fd >= 0) {
        if (read(fd, &on, 1) != 1) {
            on = '0';
        }
        close(fd);
    }
    if (group != 0) {
        /* Sessions are numbers of processes, and positive. */
        return -(int64_t)(group & INT64_MAX);
    }
    return on == '1' ? (int64_t)getsid(0) : 0;
}

weft_status wf_join_describe(const wf_settings *settings,
                             const uint64_t socket[2], wf_join_record *out)
{
    memset(out, 0, sizeof(*out));
    out->pid = (int32_t)getpid();
    out->socket[0] = socket[0];
    out->socket[1] = socket[1];
    out->node.user = geteuid();
    out->node.netns = namespace_id("/proc/self/ns/net");
    out->node.userns = namespace_id("/proc/self/ns/user");
    out->node.session = scheduling_session();
    gethostname(out->node.host, sizeof(out->node.host) - 1);
    snprintf(out->node.node, sizeof(out->node.node), "%s", settings->node);
    read_cpus(out->node.cpus, sizeof(out->node.cpus));
    return read_boot_id(out->node.boot_id, sizeof(out->node.boot_id));
}
