/* SPDX-License-Identifier: Apache-2.0 */
#include "wt_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "region/region.h"
#include "wt_data.h"

static char folder[512];

int wt_folder_make(void **state)
{
    const char *tmp = getenv("TMPDIR");

    (void)state;
    snprintf(folder, sizeof(folder), "%s/weft-test-XXXXXX",
             tmp != NULL ? tmp : "/tmp");
    return mkdtemp(folder) != NULL ? 0 : -1;
}

int wt_folder_remove(void **state)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;

    (void)state;
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        (void)unlinkat(dirfd(dir), entry->d_name, 0);
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return rmdir(folder);
}

const char *wt_path(const char *name)
{
    static _Thread_local char paths[8][600];
    static _Thread_local unsigned turn;
    char *path = paths[turn++ % 8];

    snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
    return path;
}

unsigned wt_folder_count(void)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    unsigned n = 0;

    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        n +=
            strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return n;
}

/* --- rows ---------------------------------------------------------------- */

unsigned char wt_row_byte(uint64_t seed, uint64_t row, uint64_t column)
{
    uint64_t x = (seed << 48) + row * 0x9e3779b97f4a7c15u + column * 0x2545f491;

    return (unsigned char)((x ^ x >> 29) * 0xbf58476d1ce4e5b9u >> 56);
}

static unsigned char *row_at(weft_region *region, uint64_t row, uint32_t *owner)
{
    return (unsigned char *)region->base +
           wf_partition_offset(&region->part, row, owner);
}

void wt_rows_fill(weft_region *region, uint64_t seed)
{
    for (uint64_t row = 0; row < region->part.rows; row++) {
        uint32_t owner;
        unsigned char *p = row_at(region, row, &owner);

        for (uint64_t c = 0; owner == region->rank && c < region->part.pitch;
             c++) {
            p[c] = c < region->row_bytes ? wt_row_byte(seed, row, c) : 0xee;
        }
    }
}

static void check_row(weft_region *region, uint64_t row, uint64_t from,
                      uint64_t width, uint64_t seed)
{
    uint32_t owner;
    const unsigned char *p = row_at(region, row, &owner);
    /* Of the rows of others some are enough: their owners look at all. */
    bool look = owner == region->rank ||
                (row % 16 == 0 && wf_region_maps(region, owner));

    for (uint64_t c = from; look && c < from + width; c++) {
        unsigned char want = wt_row_byte(seed, row, c - from);

        if (p[c] != want) {
            WT_FAIL("byte %llu of row %llu is %02x and should be %02x",
                    (unsigned long long)c, (unsigned long long)row, p[c], want);
        }
    }
}

void wt_rows_check(weft_region *region, uint64_t first, uint64_t rows,
                   uint64_t seed)
{
    for (uint64_t row = first; row < first + rows; row++) {
        check_row(region, row, 0, region->row_bytes, seed);
    }
}

void wt_rows_check_bytes(weft_region *region, uint64_t rows, uint64_t from,
                         uint64_t width, uint64_t seed)
{
    for (uint64_t row = 0; row < rows; row++) {
        check_row(region, row, from, width, seed);
    }
}

/* --- files --------------------------------------------------------------- */

void wt_file_write(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");

    if (f == NULL || fwrite(bytes, 1, n, f) != n || fclose(f) != 0) {
        WT_FAIL("cannot write %s: %s", path, strerror(errno));
    }
}

void wt_file_flip(const char *path, uint64_t at)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    unsigned char byte;

    WT_CHECK(fd >= 0 && pread(fd, &byte, 1, (off_t)at) == 1);
    byte ^= 4;
    WT_CHECK(pwrite(fd, &byte, 1, (off_t)at) == 1);
    close(fd);
}

void wt_file_resize(const char *path, uint64_t bytes)
{
    WT_CHECK(truncate(path, (off_t)bytes) == 0);
}

uint64_t wt_file_size(const char *path)
{
    struct stat st;

    WT_CHECK(stat(path, &st) == 0);
    return (uint64_t)st.st_size;
}
