/* SPDX-License-Identifier: Apache-2.0 */
/* A ring of records from one writer to one reader, in memory they share.
 *
 * The ring is made of lines of 64 bytes. A record takes one or more whole
 * lines that follow each other without wrapping; what is left at the end is
 * skipped by a record of its own.
 *
 *   byte 0   commit word: 0 as long as nothing is here, else kind and length
 *   byte 8   word: the tag of a message, or the token of a large one
 *   byte 16  payload
 *
 * There is no shared tail. The reader polls the commit word of the line that
 * the next record will begin with, and the writer stores that last, with
 * release. That needs the first word of every free line to be 0, so the reader
 * stores 0 there for all lines of a record it is done with. This is what makes
 * the ring fast: a line that both sides write travels as a whole, while a line
 * that the reader has only read must first be taken back from its cache by the
 * writer, at several times the cost (docs/design/0003-messages.md).
 *
 * Then the reader publishes its head, with release, and not for every record. A
 * writer that finds no room sets `blocked`; the reader, having published it,
 * rings the writer's bell if that is set.
 *
 * Who writes what: the owner (the reader) makes the control block, and later
 * stores `head` and zero commit words; the writer stores `blocked`,
 * `withdrawn`, records and commit words. A writer that dies half way leaves a
 * commit word of 0, so its last record was never there. Whoever maps a segment
 * keeps it alive, so a dead owner harms nobody.
 *
 * Neither side trusts the other: positions are private, and what is read from
 * the shared memory is copied once and checked (record.h). */
#ifndef WF_TRANSPORT_SHM_RING_H
#define WF_TRANSPORT_SHM_RING_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/status.h>

#include "mem/board.h"

#define WF_RING_MAGIC 0x474e4957u /* "WING" */
#define WF_RING_VERSION 2u
#define WF_RING_LINE 64u
#define WF_RING_HEADER 16u
#define WF_RING_BYTES_MIN 4096u
#define WF_RING_BYTES_MAX (1u << 30)

/* 128 and not 64: some CPUs fetch lines in pairs.
 * NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): it is meant. */
typedef struct wf_ring {
    uint32_t magic;
    uint32_t version;
    uint32_t lines;
    uint32_t reader; /* index on the host */
    uint32_t writer; /* index on the host */
    alignas(128) _Atomic uint32_t blocked;
    _Atomic uint32_t withdrawn; /* messages that were offered, see record.h */
    alignas(128) _Atomic uint64_t head; /* lines read since the beginning */
} wf_ring;
_Static_assert(sizeof(wf_ring) == 384, "layout");

typedef struct wf_ring_reader {
    unsigned char *at; /* where the next record will begin */
    unsigned char *data;
    wf_ring *ring;
    uint64_t head;
    uint64_t published; /* the head that the writer can see */
    uint32_t lines;
} wf_ring_reader;

typedef struct wf_ring_writer {
    unsigned char *data;
    wf_ring *ring;
    uint64_t tail;
    uint64_t head; /* as last seen */
    uint32_t lines;
    uint32_t withdrawn; /* as the reader is told */
    bool broken;        /* the reader's head makes no sense */
} wf_ring_writer;

/* Begin a ring in zeroed memory; called by the owner before others see it. */
void wf_ring_init(wf_ring *ring, uint32_t lines, uint32_t reader,
                  uint32_t writer);
/* WEFT_ERR_PROTOCOL unless `ring` is what wf_ring_init makes. */
weft_status wf_ring_check(const wf_ring *ring, uint32_t lines, uint32_t reader,
                          uint32_t writer);

void wf_ring_read(wf_ring *ring, void *data, uint32_t lines,
                  wf_ring_reader *out);
void wf_ring_write(wf_ring *ring, void *data, uint32_t lines,
                   wf_ring_writer *out);

/* A quarter of the ring is the longest record, so that several are under way
 * while a long message passes; and never more than half, so that there is room
 * once all is read, wherever the tail stands. */
static inline uint32_t wf_ring_record_lines(uint32_t lines)
{
    return lines / 4;
}

/* The most payload that one record carries. */
static inline size_t wf_ring_payload_max(uint32_t lines)
{
    return (size_t)wf_ring_record_lines(lines) * WF_RING_LINE - WF_RING_HEADER;
}

static inline uint32_t wf_ring_lines_for(size_t payload)
{
    return (uint32_t)((WF_RING_HEADER + payload + WF_RING_LINE - 1) /
                      WF_RING_LINE);
}

/* --- the reader ---------------------------------------------------------- */

/* The commit word of the next record, or 0. Pairs with the release in
 * wf_ring_publish: the record behind it is complete. */
static inline uint64_t wf_ring_poll(const wf_ring_reader *r)
{
    return atomic_load_explicit((_Atomic uint64_t *)r->at,
                                memory_order_acquire);
}

/* Where in the ring the next record begins. */
static inline uint32_t wf_ring_index(const wf_ring_reader *r)
{
    return (uint32_t)(r->head & (r->lines - 1));
}

/* Give back the `lines` that the current record took. */
void wf_ring_consume(wf_ring_reader *r, uint32_t lines);

/* True if enough has been read since the head was last published. */
static inline bool wf_ring_should_tell(const wf_ring_reader *r)
{
    return r->head - r->published >= r->lines / 8;
}

/* Tell the writer, whose entry on the board is `writer`, what was read; true if
 * it waits for room: ring its bell. */
bool wf_ring_tell(wf_ring_reader *r, const wf_board_rank *writer);

/* How many messages the writer has withdrawn: after reads of its memory, which
 * show what they were then or the new count. */
static inline uint32_t wf_ring_withdrawn(const wf_ring_reader *r)
{
    /* Pairs with the fence in wf_ring_withdraw. */
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&r->ring->withdrawn, memory_order_relaxed);
}

/* --- the writer ---------------------------------------------------------- */

/* Room for a record with this payload, which begins 16 bytes on, or NULL. The
 * caller fills it in and publishes it before it claims another. */
unsigned char *wf_ring_claim(wf_ring_writer *w, size_t payload);

/* Let the reader have the claimed record. */
void wf_ring_publish(wf_ring_writer *w, unsigned char *record, uint64_t commit,
                     uint64_t word, size_t payload);

/* Say that room is waited for, or no more. */
void wf_ring_block(wf_ring_writer *w, bool blocked);

/* Count a message that is withdrawn, before its buffer is used again. */
void wf_ring_withdraw(wf_ring_writer *w);

#endif
