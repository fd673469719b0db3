/* SPDX-License-Identifier: Apache-2.0 */
/* What a launcher says in the environment about this process. */
#ifndef WF_BOOT_LAUNCHER_H
#define WF_BOOT_LAUNCHER_H

#include <stdbool.h>
#include <sys/types.h>
#include <weft/status.h>

typedef struct wf_boot_launch {
    const char *launcher; /* as weft_boot_launcher names it */
    uint32_t rank;
    uint32_t ranks;
    bool several_hosts; /* the launcher says so */
    const char *advice; /* what to do about that, without a directory */
    char job[1024];     /* differs between jobs; empty for a single rank */
} wf_boot_launch;

/* A row for each launcher: the variables that say who this process is, and what
 * is special about it. The first whose rank is set is the one; with none of
 * them, the process is alone. */
typedef struct wf_launcher {
    const char *name;
    const char *rank;
    const char *ranks;
    const char *local_ranks; /* how many of them on this host, or NULL */
    bool (*is_it)(void);     /* NULL: it is, if `rank` is set */
    weft_status (*hosts)(wf_boot_launch *launch); /* or NULL */
    weft_status (*job)(wf_boot_launch *launch);
    const char *advice; /* of wf_boot_launch */
} wf_launcher;

/* In the order in which they are looked for; the last has no name. */
extern const wf_launcher wf_launchers[];

/* WEFT_ERR_INVALID names the variable that is missing or wrong. */
weft_status wf_boot_read_launch(wf_boot_launch *out);

/* A variable of the environment; NULL if it is missing or empty. */
const char *wf_boot_env(const char *name);

/* What people call this job: WEFT_JOB, or what its launcher was given; NULL: it
 * has no name. */
const char *wf_boot_job_name(void);

/* The parent of a process; 0: it cannot be found. */
pid_t wf_boot_parent_of(pid_t pid);

/* The command line of MPICH's process on this host that has started us, with a
 * zero after each word; its length, 0 if there is no such process. */
size_t wf_boot_proxy_line(char *line, size_t room);

#endif
