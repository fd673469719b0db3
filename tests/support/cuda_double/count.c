/* SPDX-License-Identifier: Apache-2.0 */
/* How much memory of a doubled device is in use, by whom ever: the kernel knows
 * it, also after a process was killed. All of it has a telling name, and shows
 * among the descriptors and mappings of each process that holds it. */
#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "cuda_double/double.h"

#define NAME "weft-gpu:"

void wf_double_name(uint32_t tag, int device, uint64_t bytes, char *out)
{
    snprintf(out, WF_DOUBLE_NAME_MAX, NAME "%08x:%d:%llx:", tag, device,
             (unsigned long long)bytes);
}

int wf_double_name_read(const char *text, uint32_t tag, uint64_t *bytes)
{
    const char *name = strstr(text, NAME);
    unsigned found_tag;
    int device;
    unsigned long long n;

    if (name == NULL ||
        sscanf(name, NAME "%8x:%d:%llx:", &found_tag, &device, &n) != 3 ||
        found_tag != tag || device < 0 || device >= WF_DOUBLE_DEVICES) {
        return -1;
    }
    *bytes = n;
    return device;
}

/* Memory that was counted already, by its inode. */
typedef struct census {
    uint32_t tag;
    int device;
    unsigned long *seen;
    size_t count;
    size_t room;
    uint64_t bytes;
} census;

static void census_add(census *c, const char *text, unsigned long inode)
{
    uint64_t bytes = 0;

    if (wf_double_name_read(text, c->tag, &bytes) != c->device) {
        return;
    }
    for (size_t i = 0; i < c->count; i++) {
        if (c->seen[i] == inode) {
            return;
        }
    }
    if (c->count == c->room) {
        size_t room = c->room * 2 + 16;
        unsigned long *seen = wf_realloc(c->seen, room * sizeof(*seen));

        if (seen == NULL) {
            return;
        }
        c->seen = seen;
        c->room = room;
    }
    c->seen[c->count++] = inode;
    c->bytes += bytes;
}

static void count_mappings(census *c, const char *pid)
{
    char line[512];
    unsigned long inode;
    FILE *f;

    snprintf(line, sizeof(line), "/proc/%s/maps", pid);
    f = fopen(line, "re");
    while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
        if (strstr(line, NAME) != NULL &&
            sscanf(line, "%*s %*s %*s %*s %lu", &inode) == 1) {
            census_add(c, line, inode);
        }
    }
    if (f != NULL) {
        fclose(f);
    }
}

static void count_descriptors(census *c, const char *pid)
{
    char path[600];
    char target[128];
    struct dirent *e;
    struct stat s;
    ssize_t n;
    DIR *dir;

    snprintf(path, sizeof(path), "/proc/%s/fd", pid);
    dir = opendir(path);
    while (dir != NULL && (e = readdir(dir)) != NULL) {
        snprintf(path, sizeof(path), "/proc/%s/fd/%s", pid, e->d_name);
        n = readlink(path, target, sizeof(target) - 1);
        if (n > 0) {
            target[n] = '\0';
            if (strstr(target, NAME) != NULL && stat(path, &s) == 0) {
                census_add(c, target, (unsigned long)s.st_ino);
            }
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
}

uint64_t wf_double_used(uint32_t tag, int device)
{
    census c = {.tag = tag, .device = device};
    DIR *proc = opendir("/proc");
    struct dirent *e;

    while (proc != NULL && (e = readdir(proc)) != NULL) {
        if (isdigit((unsigned char)e->d_name[0])) {
            count_mappings(&c, e->d_name);
            count_descriptors(&c, e->d_name);
        }
    }
    if (proc != NULL) {
        closedir(proc);
    }
    wf_free(c.seen);
    return c.bytes;
}
