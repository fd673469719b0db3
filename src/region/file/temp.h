/* SPDX-License-Identifier: Apache-2.0 */
/* A file that appears under its name when it is complete.
 *
 * Rank 0 makes it, without a name where the file system can (O_TMPFILE), so
 * that nothing is left of it if the process dies; else under a random name
 * beside the final one. The other ranks of its node get its descriptor by
 * mail; with ranks on other nodes it has a name that they open.
 *
 * A nameless file is linked to its name if that is free. To replace another
 * file it needs a temporary name first, as no system call does both. That is
 * ".NAME.weft-new", whose file is locked until it is renamed: what a process
 * leaves there that dies between the two calls is removed by the next one that
 * replaces this file. */
#ifndef WF_REGION_FILE_TEMP_H
#define WF_REGION_FILE_TEMP_H

#include "comm/comm.h"
#include "region/file/io.h"

#define WF_TEMP_NAME_MAX 4096

typedef struct wf_temp {
    wf_file file;
    char *path;                  /* rank 0: the wanted name */
    char name[WF_TEMP_NAME_MAX]; /* what it has now; empty: none */
} wf_temp;

/* Create a zeroed file of `bytes`, allocated on the disk. On rank 0 only.
 * `path` must outlive it; `named` asks for a name. */
weft_status wf_temp_create(const char *path, uint64_t bytes, bool named,
                           wf_temp *out);

/* Open on all ranks the file that rank 0 created with status `made`.
 * Collective; fails on all or none. */
weft_status wf_temp_share(weft_comm *comm, const char *path, weft_status made,
                          wf_temp *temp);

/* Give it its final name, replacing a file that has it, and flush the
 * directory. On rank 0 only; the file itself has been flushed before. */
weft_status wf_temp_publish(wf_temp *temp);

/* Close it; remove it if it has not been published. */
void wf_temp_close(wf_temp *temp);

#endif
