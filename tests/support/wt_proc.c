/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "wt_proc.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

static bool isolated;

static unsigned count_entries(const char *path)
{
    DIR *dir = opendir(path);
    unsigned n = 0;

    if (dir == NULL) {
        return 0;
    }
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        n += e->d_name[0] != '.';
    }
    closedir(dir);
    return n;
}

/* The look itself opens one descriptor, always, so counts compare. */
unsigned wt_count_fds(void)
{
    return count_entries("/proc/self/fd");
}

unsigned wt_count_threads(void)
{
    return count_entries("/proc/self/task");
}

unsigned wt_count_mappings(void)
{
    FILE *f = fopen("/proc/self/maps", "re");
    unsigned n = 0;
    int c;

    if (f == NULL) {
        return 0;
    }
    for (c = getc(f); c != EOF; c = getc(f)) {
        n += c == '\n';
    }
    fclose(f);
    return n;
}

size_t wt_resident_kib(void)
{
    FILE *f = fopen("/proc/self/statm", "re");
    unsigned long pages = 0;

    if (f != NULL) {
        if (fscanf(f, "%*u %lu", &pages) != 1) {
            pages = 0;
        }
        fclose(f);
    }
    return pages * (size_t)sysconf(_SC_PAGESIZE) / 1024;
}

void wt_print_mappings(void)
{
    FILE *f = fopen("/proc/self/maps", "re");
    char line[512];

    while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
        fputs(line, stderr);
    }
    if (f != NULL) {
        fclose(f);
    }
}

void wt_print_fds(void)
{
    char path[64];
    char target[256];

    for (int fd = 0; fd < 1024; fd++) {
        ssize_t n;

        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        n = readlink(path, target, sizeof(target) - 1);
        if (n > 0) {
            target[n] = '\0';
            fprintf(stderr, "fd %d: %s\n", fd, target);
        }
    }
}

/* One child of ours, or 0. */
static pid_t some_child(void)
{
    char path[64];
    FILE *f;
    int pid = 0;

    snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
    f = fopen(path, "re");
    if (f != NULL) {
        if (fscanf(f, "%d", &pid) != 1) {
            pid = 0;
        }
        fclose(f);
    }
    return pid;
}

unsigned wt_kill_children(void)
{
    unsigned n = 0;

    for (pid_t pid = some_child(); pid > 0; pid = some_child()) {
        kill(pid, SIGKILL);
        n++;
        if (waitpid(pid, NULL, 0) != pid) {
            break;
        }
    }
    return n;
}

bool wt_isolate(void)
{
    isolated = unshare(CLONE_NEWNET | CLONE_NEWNS) == 0 &&
               mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
               mount("tmpfs", "/dev/shm", "tmpfs", 0, NULL) == 0;
    return isolated;
}

/* In a /dev/shm that others use too, only names that say so are weft's. */
static void list_shm(FILE *out)
{
    DIR *dir = opendir("/dev/shm");

    if (dir == NULL) {
        return;
    }
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        if (e->d_name[0] != '.' &&
            (isolated || strstr(e->d_name, "weft") != NULL)) {
            fprintf(out, "/dev/shm/%s\n", e->d_name);
        }
    }
    closedir(dir);
}

/* Among the sockets of the whole machine ours cannot be told from those of
 * other jobs that run now, so this needs a namespace of our own. */
static void list_sockets(FILE *out)
{
    FILE *f = isolated ? fopen("/proc/net/unix", "re") : NULL;
    char line[512];

    if (f == NULL) {
        return;
    }
    while (fgets(line, sizeof(line), f) != NULL) {
        const char *name = strchr(line, '@');

        if (name != NULL) {
            fprintf(out, "socket %s", name);
        }
    }
    fclose(f);
}

void wt_names_left(char *text, size_t room)
{
    FILE *out = fmemopen(text, room, "w");

    text[0] = '\0';
    if (out != NULL) {
        list_shm(out);
        list_sockets(out);
        fclose(out);
    }
}
