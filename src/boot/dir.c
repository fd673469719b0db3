/* SPDX-License-Identifier: Apache-2.0 */
/* A table over a directory that all ranks see.
 *
 *     PATH/weft-JOB/        made by whoever comes first; only this user's
 *         v-KEY             a value; written under another name, then renamed,
 *                           so that a file that can be seen is whole
 *         done-RANK         this rank needs the table no more
 *         tmp-RANK          a value or mark on its way
 *
 * Nothing is removed while anybody may still read: a rank that closes the table
 * leaves its mark, then looks for those of all ranks. If they are all there it
 * removes everything. Several ranks may find that at once, and then each
 * removes what it still finds; one that finds a mark missing leaves, since
 * either a rank is still to come, or the removal has begun. So a JOB is used
 * once. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/secret.h"
#include "base/status.h"
#include "base/time.h"
#include "boot/boot.h"

/* A file name; well below what any file system allows. */
enum { NAME_ROOM = 160 };

/* Between two looks for a value. */
enum { PAUSE_MIN_NS = 50000, PAUSE_MAX_NS = 2000000 };

typedef struct dir {
    wf_boot boot;
    char *path;           /* of the directory that was given */
    char name[NAME_ROOM]; /* of ours in it */
    int parent;
    int fd;
    bool done;
} dir;

/* `prefix` and `text`, with what is not a letter, digit, '_' or '-' as %XX, so
 * that different texts have different names. What does not fit is replaced by
 * a hash. */
static void dir_file_name(const char *prefix, const char *text,
                          char out[NAME_ROOM])
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyz"
                                "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    static const wf_secret fixed = {{0x66696c65206e616du, 0x6573000000000001u}};
    enum { HASH_ROOM = 18 };
    size_t n = (size_t)snprintf(out, NAME_ROOM, "%s", prefix);

    for (const char *p = text; *p != '\0'; p++) {
        if (n + 4 > NAME_ROOM - HASH_ROOM) {
            snprintf(
                out + n, NAME_ROOM - n, "-%016llx",
                (unsigned long long)wf_keyed_hash(&fixed, text, strlen(text)));
            return;
        }
        n += (size_t)snprintf(out + n, NAME_ROOM - n,
                              strchr(plain, *p) != NULL ? "%c" : "%%%02X",
                              (unsigned char)*p);
    }
}

/* --- writing ------------------------------------------------------------- */

/* Errors of a full disk or quota may show up only in close(). */
static weft_status dir_write_file(const dir *d, const char *name,
                                  const void *value, size_t n)
{
    int fd =
        openat(d->fd, name,
               O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    weft_status st = WEFT_OK;

    if (fd < 0) {
        return wf_fail_errno("create %s/%s/%s", d->path, d->name, name);
    }
    if (!wf_write_all(fd, value, n)) {
        st = wf_fail_errno("write %s/%s/%s", d->path, d->name, name);
    }
    if (close(fd) != 0 && st == WEFT_OK) {
        st = wf_fail_errno("write %s/%s/%s", d->path, d->name, name);
    }
    return st;
}

static weft_status dir_publish(const dir *d, const char *name,
                               const void *value, size_t n)
{
    char temp[NAME_ROOM];
    weft_status st;

    snprintf(temp, sizeof(temp), "tmp-%u", d->boot.api.rank);
    st = dir_write_file(d, temp, value, n);
    if (st == WEFT_OK && renameat(d->fd, temp, d->fd, name) != 0) {
        st = wf_fail_errno("rename %s/%s/%s", d->path, d->name, temp);
    }
    if (st != WEFT_OK) {
        unlinkat(d->fd, temp, 0);
    }
    return st;
}

static weft_status dir_set(void *ctx, const char *key, const void *value,
                           size_t n)
{
    const dir *d = ctx;
    char name[NAME_ROOM];
    weft_status st = wf_boot_check_entry(key, value, n);

    if (st != WEFT_OK) {
        return st;
    }
    dir_file_name("v-", key, name);
    if (faccessat(d->fd, name, F_OK, 0) == 0) {
        return wf_fail(WEFT_ERR_INVALID,
                       "boot key '%s' is set already in %s/%s; if an earlier "
                       "job left that behind, remove it or give this job "
                       "another name (WEFT_JOB)",
                       key, d->path, d->name);
    }
    return dir_publish(d, name, value, n);
}

/* --- reading ------------------------------------------------------------- */

/* Returns how many bytes there were, up to `n`, or -1. */
static ssize_t read_all(int fd, char *p, size_t n)
{
    size_t have = 0;

    while (have < n) {
        ssize_t got = read(fd, p + have, n - have);

        if (got < 0 && errno != EINTR) {
            return -1;
        }
        if (got == 0) {
            break;
        }
        have += got > 0 ? (size_t)got : 0;
    }
    return (ssize_t)have;
}

static weft_status dir_read(int fd, const char *key, void *value, size_t *n)
{
    struct stat info;
    ssize_t got;

    if (fstat(fd, &info) != 0) {
        return wf_fail_errno("boot key '%s'", key);
    }
    if (!S_ISREG(info.st_mode) || info.st_size > WEFT_BOOT_VALUE_MAX) {
        return wf_fail(WEFT_ERR_PROTOCOL,
                       "the file of boot key '%s' is malformed", key);
    }
    if ((size_t)info.st_size > *n) {
        return wf_boot_fail_room(key, (size_t)info.st_size, *n);
    }
    got = read_all(fd, value, (size_t)info.st_size);
    if (got < 0) {
        return wf_fail_errno("read boot key '%s'", key);
    }
    if (got != info.st_size) {
        return wf_fail(WEFT_ERR_PROTOCOL,
                       "boot key '%s' was changed while it was read", key);
    }
    *n = (size_t)got;
    return WEFT_OK;
}

static weft_status dir_get(void *ctx, const char *key, void *value, size_t *n,
                           uint32_t timeout_ms)
{
    const dir *d = ctx;
    uint64_t deadline = wf_now_ns() + WF_MS * timeout_ms;
    struct timespec pause = {.tv_nsec = PAUSE_MIN_NS};
    char name[NAME_ROOM];
    weft_status st = wf_boot_check_room(key, value, n);
    int fd;

    if (st != WEFT_OK) {
        return st;
    }
    dir_file_name("v-", key, name);
    while ((fd = openat(d->fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW)) < 0) {
        if (errno != ENOENT && errno != EINTR && errno != ESTALE) {
            return wf_fail_errno("open %s/%s/%s", d->path, d->name, name);
        }
        if (wf_now_ns() >= deadline) {
            return wf_fail(WEFT_ERR_TIMEOUT,
                           "nobody set boot key '%s' in %s/%s within %u ms",
                           key, d->path, d->name, timeout_ms);
        }
        nanosleep(&pause, NULL);
        pause.tv_nsec =
            pause.tv_nsec < PAUSE_MAX_NS / 2 ? 2 * pause.tv_nsec : PAUSE_MAX_NS;
    }
    st = dir_read(fd, key, value, n);
    close(fd);
    return st;
}

/* --- the end ------------------------------------------------------------- */

static void dir_done(void *ctx)
{
    dir *d = ctx;
    wf_failure before = wf_failure_of(WEFT_OK);
    char name[NAME_ROOM];

    if (d->done) {
        return;
    }
    d->done = true;
    snprintf(name, sizeof(name), "done-%u", d->boot.api.rank);
    if (dir_publish(d, name, NULL, 0) != WEFT_OK) {
        wf_log(WEFT_LOG_WARN, "boot: %s/%s will be left behind: %s", d->path,
               d->name, weft_error_detail());
    }
    wf_failure_again(&before);
}

static bool dir_all_done(const dir *d)
{
    for (uint32_t rank = 0; rank < d->boot.api.ranks; rank++) {
        char name[NAME_ROOM];

        snprintf(name, sizeof(name), "done-%u", rank);
        if (faccessat(d->fd, name, F_OK, 0) != 0) {
            return false;
        }
    }
    return true;
}

/* Another rank may be doing the same, so what is gone already is fine. */
static void dir_remove(const dir *d)
{
    int fd = openat(d->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *e;

    if (list == NULL) {
        wf_close(fd);
        return;
    }
    while ((e = readdir(list)) != NULL) {
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
            unlinkat(d->fd, e->d_name, 0);
        }
    }
    closedir(list);
    if (unlinkat(d->parent, d->name, AT_REMOVEDIR) != 0 && errno != ENOENT &&
        errno != ENOTEMPTY && errno != EEXIST) {
        wf_log(WEFT_LOG_WARN, "boot: cannot remove %s/%s: %s", d->path, d->name,
               strerror(errno));
    }
}

static void dir_free(dir *d)
{
    wf_close(d->fd);
    wf_close(d->parent);
    wf_free(d->path);
    wf_free(d);
}

static void dir_close(wf_boot *boot)
{
    dir *d = (dir *)boot;

    dir_done(d);
    if (dir_all_done(d)) {
        dir_remove(d);
    }
    dir_free(d);
}

/* --- the beginning ------------------------------------------------------- */

/* Whoever else can write there could make us read anything. */
static weft_status dir_check_owner(const dir *d)
{
    struct stat info;

    if (fstat(d->fd, &info) != 0) {
        return wf_fail_errno("%s/%s", d->path, d->name);
    }
    if (info.st_uid != geteuid() || (info.st_mode & 022) != 0) {
        return wf_fail(WEFT_ERR_DENIED,
                       "%s/%s belongs to user %u and has mode %03o; it must "
                       "belong to user %u and not be writable by others",
                       d->path, d->name, (unsigned)info.st_uid,
                       (unsigned)info.st_mode & 0777, (unsigned)geteuid());
    }
    return WEFT_OK;
}

static weft_status dir_enter(dir *d)
{
    d->parent = open(d->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (d->parent < 0) {
        return wf_fail_errno("boot directory %s", d->path);
    }
    if (mkdirat(d->parent, d->name, 0700) != 0 && errno != EEXIST) {
        return wf_fail_errno("make %s/%s", d->path, d->name);
    }
    d->fd = openat(d->parent, d->name,
                   O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (d->fd < 0) {
        return wf_fail_errno("open %s/%s", d->path, d->name);
    }
    return dir_check_owner(d);
}

weft_status weft_boot_open_dir(const char *path, const char *key, uint32_t rank,
                               uint32_t ranks, weft_boot **out)
{
    weft_status st = wf_boot_check_rank(rank, ranks, out);
    dir *d;

    if (st != WEFT_OK) {
        return st;
    }
    if (path == NULL || path[0] == '\0' || key == NULL || key[0] == '\0') {
        return wf_fail(WEFT_ERR_INVALID, "path or key is NULL or empty");
    }
    d = wf_zalloc(sizeof(*d));
    if (d == NULL) {
        return wf_fail_nomem("the boot table");
    }
    d->boot.close = dir_close;
    d->boot.api = (weft_boot){
        .size = sizeof(weft_boot),
        .rank = rank,
        .ranks = ranks,
        .ctx = d,
        .set = dir_set,
        .get = dir_get,
        .done = dir_done,
    };
    d->fd = -1;
    d->parent = -1;
    dir_file_name("weft-", key, d->name);
    d->path = wf_strdup(path);
    st = d->path == NULL ? wf_fail_nomem("the boot table") : dir_enter(d);
    if (st != WEFT_OK) {
        dir_free(d);
        return st;
    }
    *out = &d->boot.api;
    return WEFT_OK;
}
