/* SPDX-License-Identifier: Apache-2.0 */
/* Regions in files.
 *
 * A saved region is one file that says what is in it: shape, type, partition,
 * a checksum for each block. Any number of ranks writes and reads it together,
 * each its own rows; it appears under its name when it is whole. The rows lie
 * in it one after the other in global order, whatever the partition, and begin
 * on a page, so that the file can be mapped, too: then it is the tensor.
 *
 * Collective calls return the same on all ranks; the error names the rank that
 * failed and why. What is wrong with a file is reported as
 *   WEFT_ERR_INVALID      missing, of an unknown format, or it does not match
 *                         the region
 *   WEFT_ERR_PROTOCOL     damaged: cut off, or a checksum differs
 *   WEFT_ERR_UNSUPPORTED  intact, but this library cannot read it
 * and what the system says as WEFT_ERR_SYSTEM, WEFT_ERR_DENIED or
 * WEFT_ERR_NOMEM. Ranks wait for each other as long as the communicator's
 * timeout says; they need not be equally fast, but within that. */
#ifndef WEFT_FILE_H
#define WEFT_FILE_H

#include <weft/region.h>

WEFT_BEGIN_DECLS

/** Called now and then while a rank saves or loads, by the thread that called:
 * how many of its `bytes` are `done`. The last call has both equal. */
typedef void weft_progress_fn(void *ctx, uint64_t done, uint64_t bytes);

typedef struct weft_file_options {
    size_t size;       /* of this struct */
    uint32_t threads;  /* of each rank; 0: 1 */
    int32_t direct;    /* 1: past the page cache, where the file system can */
    int32_t no_verify; /* load: do not compare checksums */
    /** Raw files only: bytes of a row in the file (0: those of the region's
     * row), and which byte of the region's row they begin at. The other bytes
     * of the row stay as they are. */
    uint64_t file_row_bytes;
    uint64_t skip;
    weft_progress_fn *progress; /* or NULL */
    void *progress_ctx;
} weft_file_options;

/**
 * Write `region` to `path`, in place of what was there, whole or not at all:
 * the new file is made without a name, or under another, and gets its own when
 * it is on the disk. After a failure, kill -9 of any rank included, the old
 * file is as it was, and nothing is left of the new one (a file
 * ".weft-<random>" beside it, where the file system has no O_TMPFILE). A rank
 * that dies when the others have finished makes them fail all the same.
 *
 * A row that is written to meanwhile is saved as it is at some moment, maybe
 * half written. Padding between rows is not saved. Collective over `comm`,
 * which must have the ranks of the region, in their order.
 */
WEFT_API weft_status weft_region_save(weft_region *region, weft_comm *comm,
                                      const char *path,
                                      const weft_file_options *options);

/**
 * Fill `region` from a file of weft_region_save, whatever number of ranks wrote
 * it. Bytes of a row and type must be the same; the file may have fewer rows,
 * then the region's other rows stay. All ranks read `path`; all checksums are
 * compared. After a failure the rows may be old, new, or what was wrongly in
 * the file. Collective as weft_region_save.
 */
WEFT_API weft_status weft_region_load(weft_region *region, weft_comm *comm,
                                      const char *path,
                                      const weft_file_options *options);

/**
 * Fill it from raw row-major files without a header, read one after the other
 * as if they were one; or, if there is one path that ends in ".npy", from that.
 * Each file must be whole rows, and all together at most the region's rows. A
 * .npy (version 1 to 3) must be of the region's type, in C order, in the byte
 * order of this machine. A rank opens only files that hold rows of its own;
 * rank 0 looks at all of them. Collective as weft_region_save.
 */
WEFT_API weft_status weft_region_load_raw(weft_region *region, weft_comm *comm,
                                          const char *const *paths,
                                          size_t count,
                                          const weft_file_options *options);

/** What a file holds. */
typedef struct weft_file_info {
    uint32_t dims;
    uint64_t shape[WEFT_REGION_DIMS_MAX];
    weft_dtype type;
    uint64_t row_pitch; /* bytes from row to row in the file */
    weft_partition partition;
    uint64_t run;     /* WEFT_PARTITION_ROUND_ROBIN, else 0 */
    uint32_t parts;   /* ranks that wrote it */
    uint64_t data_at; /* where the rows begin, row after row in global order */
    uint64_t bytes;   /* of the file */
    int32_t stale;    /* 1: opened for writing and not synced since */
} weft_file_info;

/** Read and check the header of a file of weft_region_save, or of a .npy. */
WEFT_API weft_status weft_file_describe(const char *path, weft_file_info *out);

/** The rows that each of the ranks that wrote a file had; `count` must be the
 * info's `parts`. */
WEFT_API weft_status weft_file_parts(const char *path, uint64_t *rows,
                                     uint32_t count);

/** Check every block of a file of weft_region_save against its checksum. */
WEFT_API weft_status weft_file_verify(const char *path);

/**
 * The file itself as a region: the ranks, which must be of one node, map it.
 * With `writable`, what they write is in the file; else the processor does not
 * let them write. Rows are dealt equally; resize is not possible. Checksums are
 * not compared; weft_file_verify does that.
 *
 * One job at a time may have a file open for writing. While it has, and
 * afterwards unless it ended with weft_region_sync, the file says that its
 * checksums are out of date, and weft_region_load refuses it without no_verify.
 *
 * If another process makes the file shorter while it is mapped, touching the
 * rows that went is a bus error (SIGBUS). weft_region_save to the same path is
 * safe: it replaces the file and leaves this one to those who have it.
 *
 * Collective over `comm`.
 */
WEFT_API weft_status weft_region_open(weft_comm *comm, const char *path,
                                      int32_t writable, weft_region **out);

/**
 * The same with a new file, of this shape and type and all zero, in place of
 * what was at `path`. Its room is taken from the disk at once: WEFT_ERR_SYSTEM
 * if there is too little.
 */
WEFT_API weft_status weft_region_open_new(weft_comm *comm, const char *path,
                                          uint32_t dims, const uint64_t *shape,
                                          weft_dtype type, weft_region **out);

/**
 * Bring a region of weft_region_open or weft_region_open_new to the disk, with
 * new checksums. No rank may write to it before all have returned. Rows that
 * are written afterwards make the checksums wrong again, and the file does not
 * say so: end with this call. Collective over the ranks of the region.
 * WEFT_ERR_INVALID if it is in no file, or was opened for reading.
 */
WEFT_API weft_status weft_region_sync(weft_region *region);

WEFT_END_DECLS

#endif
