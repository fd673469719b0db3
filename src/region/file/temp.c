/* SPDX-License-Identifier: Apache-2.0 */
#include "region/file/temp.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/secret.h"
#include "base/status.h"
#include "comm/mail.h"
#include "mem/link.h"
#include "region/file/agree.h"
#include "region/region.h"

/* --- making -------------------------------------------------------------- */

/* Where the path leads in the end: what a link names is replaced, not the link.
 */
static weft_status resolve(const char *path, char **out)
{
    char *real = realpath(path, NULL);

    *out = wf_strdup(real != NULL ? real : path);
    free(real);
    return *out != NULL ? WEFT_OK : wf_fail_nomem("a path");
}

/* "dir/" of "dir/file". */
static size_t folder_length(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash == NULL ? 0 : (size_t)(slash - path) + 1;
}

static weft_status pick_name(wf_temp *temp)
{
    size_t folder = folder_length(temp->path);
    uint64_t random;
    weft_status st = wf_random(&random, sizeof(random));
    int n;

    if (st != WEFT_OK) {
        return st;
    }
    n = snprintf(temp->name, sizeof(temp->name), "%.*s.weft-%016" PRIx64,
                 (int)folder, temp->path, random);
    if (n < 0 || (size_t)n >= sizeof(temp->name)) {
        temp->name[0] = '\0';
        return wf_fail(WEFT_ERR_INVALID, "the path %.64s... is too long",
                       temp->path);
    }
    return WEFT_OK;
}

static int open_nameless(const char *path)
{
    size_t folder = folder_length(path);
    char name[WF_TEMP_NAME_MAX];
    int n = folder == 0
                ? snprintf(name, sizeof(name), ".")
                : snprintf(name, sizeof(name), "%.*s", (int)folder, path);

    if (n < 0 || (size_t)n >= sizeof(name)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    return open(name, O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
}

static weft_status open_temp(wf_temp *temp, bool named)
{
    weft_status st;

    if (!named) {
        temp->file.fd = open_nameless(temp->path);
        if (temp->file.fd >= 0) {
            return WEFT_OK;
        }
    }
    st = pick_name(temp);
    if (st != WEFT_OK) {
        return st;
    }
    temp->file.fd =
        open(temp->name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (temp->file.fd < 0) {
        temp->name[0] = '\0';
        return wf_fail_errno("cannot make a file for %s", temp->path);
    }
    return WEFT_OK;
}

/* What has the name now must be a file; the new one may be read by the same
 * people. */
static weft_status follow_old(const wf_temp *temp)
{
    struct stat old;

    if (stat(temp->path, &old) != 0) {
        return WEFT_OK;
    }
    if (!S_ISREG(old.st_mode)) {
        return wf_fail(WEFT_ERR_INVALID, "%s is there and no regular file",
                       temp->path);
    }
    if (fchmod(temp->file.fd, old.st_mode & 0777) != 0) {
        return wf_fail_errno("fchmod for %s", temp->path);
    }
    return WEFT_OK;
}

/* Take the room at once: that the disk is full is known before anything is
 * written, and a mapping of the file meets no bus error. */
static weft_status take_room(const wf_temp *temp, uint64_t bytes)
{
    weft_status st = wf_file_check_limit(temp->path, bytes);

    if (st != WEFT_OK) {
        return st;
    }
    while (fallocate(temp->file.fd, 0, 0, (off_t)bytes) != 0) {
        if (errno == EINTR) {
            continue;
        }
        if (errno != EOPNOTSUPP && errno != ENOSYS) {
            return wf_fail_errno("no room for the %" PRIu64 " bytes of %s",
                                 bytes, temp->path);
        }
        if (ftruncate(temp->file.fd, (off_t)bytes) != 0) {
            return wf_fail_errno("cannot make %s %" PRIu64 " bytes long",
                                 temp->path, bytes);
        }
        break;
    }
    return WEFT_OK;
}

weft_status wf_temp_create(const char *path, uint64_t bytes, bool named,
                           wf_temp *out)
{
    weft_status st;

    memset(out, 0, sizeof(*out));
    out->file = (wf_file){-1, -1, path};
    st = resolve(path, &out->path);
    if (st == WEFT_OK) {
        st = open_temp(out, named);
    }
    if (st == WEFT_OK) {
        st = follow_old(out);
    }
    return st == WEFT_OK ? take_room(out, bytes) : st;
}

/* --- sharing ------------------------------------------------------------- */

static weft_status mail_out(weft_comm *comm, uint64_t key, const wf_temp *temp)
{
    wf_mail_group group = wf_mail_group_of(comm);
    uint8_t note = 0;
    weft_status st = WEFT_OK;

    for (uint32_t r = 1; r < comm->size && st == WEFT_OK; r++) {
        st = wf_mail_post(&group, r, key, &note, sizeof(note), temp->file.fd);
    }
    return st;
}

static weft_status mail_in(weft_comm *comm, uint64_t key, wf_temp *temp)
{
    wf_mail_group group = wf_mail_group_of(comm);
    uint8_t note;
    size_t n = sizeof(note);
    int fd = -1;
    weft_status st = wf_mail_take(&group, 0, key, &note, &n, &fd);

    if (st == WEFT_OK && fd < 0) {
        st = wf_link_fail_lost(0);
    }
    temp->file.fd = fd;
    return st;
}

static weft_status open_by_name(wf_temp *temp)
{
    temp->file.fd = open(temp->name, O_RDWR | O_CLOEXEC);
    if (temp->file.fd < 0) {
        return wf_fail_errno("cannot open %s, which rank 0 made", temp->name);
    }
    return WEFT_OK;
}

weft_status wf_temp_share(weft_comm *comm, const char *path, weft_status made,
                          wf_temp *temp)
{
    weft_status st;
    uint64_t key;

    if (comm->rank != 0) {
        memset(temp, 0, sizeof(*temp));
        temp->file = (wf_file){-1, -1, path};
    }
    st = wf_file_tell(comm, made, temp->name, sizeof(temp->name));
    if (st != WEFT_OK) {
        return st;
    }
    temp->name[sizeof(temp->name) - 1] = '\0';
    /* No two operations of a communicator have the same number. */
    key =
        wf_mail_key(comm->member, comm->size,
                    (uint64_t)comm->id << 32 | comm->sequence, WF_MAIL_TICKET);
    if (!comm->one_node) {
        st = comm->rank == 0 ? WEFT_OK : open_by_name(temp);
    } else {
        st = comm->rank == 0 ? mail_out(comm, key, temp)
                             : mail_in(comm, key, temp);
    }
    return wf_file_agree(comm, st);
}

/* --- the end ------------------------------------------------------------- */

static void own_path(const wf_temp *temp, char *out, size_t room)
{
    snprintf(out, room, "/proc/self/fd/%d", temp->file.fd);
}

/* Give the nameless file a name that nobody has; false with errno if not. */
static bool link_as(const wf_temp *temp, const char *name)
{
    char self[64];

    own_path(temp, self, sizeof(self));
    return linkat(AT_FDCWD, self, AT_FDCWD, name, AT_SYMLINK_FOLLOW) == 0;
}

/* A descriptor that holds the lock of the nameless file, or that shows that
 * this job has it already; -1: there are no locks. Not the file's own one,
 * which others have, too, and would keep locked after this. */
static int lock_own(const wf_temp *temp)
{
    char self[64];
    int fd;

    own_path(temp, self, sizeof(self));
    fd = open(self, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0 && errno != EWOULDBLOCK) {
        close(fd);
        return -1;
    }
    return fd;
}

static bool is_at(int fd, const char *name)
{
    struct stat file;
    struct stat there;

    return fstat(fd, &file) == 0 && lstat(name, &there) == 0 &&
           file.st_dev == there.st_dev && file.st_ino == there.st_ino;
}

/* Remove what a process that died has left under `name`. Who removes or renames
 * it has its lock, so that between the look and the removal nobody else does.
 */
static void remove_left(const char *name)
{
    int fd = open(name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

    if (fd < 0) {
        return;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 && is_at(fd, name)) {
        (void)unlink(name);
    }
    close(fd);
}

/* Name the locked file ".NAME.weft-new"; false if somebody else, who is about
 * to replace this file, too, has that name. */
static bool link_beside(wf_temp *temp)
{
    size_t folder = folder_length(temp->path);
    int n = snprintf(temp->name, sizeof(temp->name), "%.*s.%s.weft-new",
                     (int)folder, temp->path, temp->path + folder);

    if (n > 0 && (size_t)n < sizeof(temp->name)) {
        if (link_as(temp, temp->name)) {
            return true;
        }
        remove_left(temp->name);
        if (link_as(temp, temp->name)) {
            return true;
        }
    }
    temp->name[0] = '\0';
    return false;
}

static weft_status link_anywhere(wf_temp *temp)
{
    weft_status st = pick_name(temp);

    if (st == WEFT_OK && !link_as(temp, temp->name)) {
        st = wf_fail_errno("cannot name the new %s", temp->path);
        temp->name[0] = '\0';
    }
    return st;
}

/* Take the place of what has the wanted name. */
static weft_status take_place(wf_temp *temp)
{
    weft_status st = WEFT_OK;

    if (rename(temp->name, temp->path) != 0) {
        st = wf_fail_errno("cannot replace %s", temp->path);
        (void)unlink(temp->name);
    }
    temp->name[0] = '\0';
    return st;
}

static weft_status replace(wf_temp *temp)
{
    int lock = temp->name[0] != '\0' ? -1 : lock_own(temp);
    weft_status st = WEFT_OK;

    if (temp->name[0] == '\0' && (lock < 0 || !link_beside(temp))) {
        st = link_anywhere(temp);
    }
    if (st == WEFT_OK) {
        st = take_place(temp);
    }
    wf_close(lock);
    return st;
}

/* A rename is on the disk when its folder is. Not all file systems can do
 * that, and the file is in place already: a failure is none. */
static void flush_folder(const char *path)
{
    size_t folder = folder_length(path);
    char name[WF_TEMP_NAME_MAX];
    int fd;

    snprintf(name, sizeof(name), "%.*s", folder == 0 ? 1 : (int)folder,
             folder == 0 ? "." : path);
    fd = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        (void)fsync(fd);
        close(fd);
    }
}

weft_status wf_temp_publish(wf_temp *temp)
{
    bool there = temp->name[0] == '\0' && link_as(temp, temp->path);
    weft_status st = there ? WEFT_OK : replace(temp);

    if (st == WEFT_OK) {
        flush_folder(temp->path);
    }
    return st;
}

void wf_temp_close(wf_temp *temp)
{
    if (temp->name[0] != '\0') {
        /* Ranks that were told the name all try; the first one does it. */
        (void)unlink(temp->name);
    }
    wf_file_close(&temp->file);
    wf_free(temp->path);
    temp->path = NULL;
}
