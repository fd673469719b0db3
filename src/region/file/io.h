/* SPDX-License-Identifier: Apache-2.0 */
/* Reading and writing a file at an offset, all of it or an error that names
 * file and offset; and the headers of files. */
#ifndef WF_REGION_FILE_IO_H
#define WF_REGION_FILE_IO_H

#include <stdbool.h>
#include <weft/status.h>

#include "region/file/format.h"
#include "region/file/npy.h"
#include "region/partition.h"

/* The alignment of offset, length and address that O_DIRECT needs. */
#define WF_FILE_DIRECT_UNIT 4096u

typedef struct wf_file {
    int fd;
    int direct;       /* the same file, opened with O_DIRECT; or -1 */
    const char *name; /* the caller's, for errors */
} wf_file;

/* WEFT_ERR_INVALID if there is no such file, or it is not a regular one.
 * `bytes` may be NULL. */
weft_status wf_file_open(const char *name, bool writable, wf_file *out,
                         uint64_t *bytes);
/* Open it a second time with O_DIRECT, if the file system supports that. */
void wf_file_go_direct(wf_file *file, bool writable);
/* Takes one that was never opened (fd -1), too. */
void wf_file_close(wf_file *file);

weft_status wf_file_read(const wf_file *file, uint64_t at, void *to, size_t n);
weft_status wf_file_write(const wf_file *file, uint64_t at, const void *from,
                          size_t n);
/* WEFT_ERR_SYSTEM if this process may not write files of `bytes`. */
weft_status wf_file_check_limit(const char *name, uint64_t bytes);
/* Wait until it is on the disk. */
weft_status wf_file_flush(const wf_file *file);

/* Write the header, with the CRC of it, and bring the file to the disk. */
weft_status wf_file_write_header(const wf_file *file, wf_file_header *header);

/* Write how many rows each rank has, and note their CRC in the header. */
weft_status wf_file_write_parts(const wf_file *file, wf_file_header *header,
                                const wf_partition *part);

/* Like wf_file_write_header, with the flag DIRTY: before the table, or anything
 * that it has checksums of, is written. */
weft_status wf_file_mark_dirty(const wf_file *file,
                               const wf_file_header *header);

/* Read and check the header of a saved region, the rows of its parts, its
 * table. `rows` has room for header->parts, `table` for header->blocks. */
weft_status wf_file_read_header(const wf_file *file, uint64_t bytes,
                                wf_file_header *out);
weft_status wf_file_read_parts(const wf_file *file,
                               const wf_file_header *header, uint64_t *rows);
weft_status wf_file_read_table(const wf_file *file,
                               const wf_file_header *header, uint32_t *table);

/* The same of a .npy file, whose length is checked, too. */
weft_status wf_file_read_npy(const wf_file *file, uint64_t bytes, wf_npy *out);

#endif
