/* SPDX-License-Identifier: Apache-2.0 */
/* Regions with known rows, and a folder for their files. */
#ifndef WT_FILE_H
#define WT_FILE_H

#include <weft/file.h>

#include "wt.h"

/* Of a group of tests: a new folder, and the end of it with all that is in it.
 */
int wt_folder_make(void **state);
int wt_folder_remove(void **state);

/* A path in it; the caller's thread has eight of them at a time. */
const char *wt_path(const char *name);
/* Files in it. */
unsigned wt_folder_count(void);

/* Byte `column` of row `row`. */
unsigned char wt_row_byte(uint64_t seed, uint64_t row, uint64_t column);

/* Write to the rows that this rank owns, and 0xee between them / compare these,
 * and some that others own, from row `first` on, `rows` of them. */
void wt_rows_fill(weft_region *region, uint64_t seed);
void wt_rows_check(weft_region *region, uint64_t first, uint64_t rows,
                   uint64_t seed);
/* The same of some bytes of each row. */
void wt_rows_check_bytes(weft_region *region, uint64_t rows, uint64_t from,
                         uint64_t width, uint64_t seed);

/* Write a file of `n` bytes / change one bit of it / make it shorter or longer.
 */
void wt_file_write(const char *path, const void *bytes, size_t n);
void wt_file_flip(const char *path, uint64_t at);
void wt_file_resize(const char *path, uint64_t bytes);
uint64_t wt_file_size(const char *path);

#endif
