/* SPDX-License-Identifier: Apache-2.0 */
#include "agg/key.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"

#define LINE "weft-switch-key 1 %016" PRIx64 "%016" PRIx64 "\n"
#define LINE_BYTES (18 + 32 + 1)

weft_status wf_agg_key_create(const char *path)
{
    char text[LINE_BYTES + 1];
    wf_secret key;
    weft_status st = wf_random(&key, sizeof(key));
    int fd;

    if (st != WEFT_OK) {
        return st;
    }
    (void)snprintf(text, sizeof(text), LINE, key.k[0], key.k[1]);
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        return wf_fail_errno("create the key file %s", path);
    }
    if (write(fd, text, LINE_BYTES) != LINE_BYTES || fsync(fd) != 0) {
        st = wf_fail_errno("write the key file %s", path);
        unlink(path);
    }
    close(fd);
    return st;
}

static weft_status parse(const char *path, const char *text, wf_secret *out)
{
    char again[LINE_BYTES + 1];
    wf_secret key;

    if (sscanf(text, "weft-switch-key 1 %16" SCNx64 "%16" SCNx64, &key.k[0],
               &key.k[1]) != 2) {
        return wf_fail(WEFT_ERR_INVALID, "%s is no key of a switch", path);
    }
    /* Nothing but what wf_agg_key_create writes. */
    (void)snprintf(again, sizeof(again), LINE, key.k[0], key.k[1]);
    if (strcmp(text, again) != 0) {
        return wf_fail(WEFT_ERR_INVALID, "%s is no key of a switch", path);
    }
    *out = key;
    return WEFT_OK;
}

static weft_status read_open(const char *path, int fd, wf_secret *out)
{
    char text[LINE_BYTES + 2] = {0};
    struct stat status;

    if (fstat(fd, &status) != 0 || read(fd, text, sizeof(text) - 1) < 0) {
        return wf_fail_errno("read the key file %s", path);
    }
    if ((status.st_mode & 077) != 0) {
        return wf_fail(WEFT_ERR_INVALID,
                       "others may use the key file %s (mode %03o); it must "
                       "have mode 600",
                       path, status.st_mode & 0777u);
    }
    return parse(path, text, out);
}

weft_status wf_agg_key_read(const char *path, wf_secret *out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    weft_status st;

    if (fd < 0) {
        return wf_fail_errno("open the key file %s", path);
    }
    st = read_open(path, fd, out);
    close(fd);
    return st;
}
