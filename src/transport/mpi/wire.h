/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks say to each other over MPI, and the checks of it. No part of this
 * needs MPI. mp.h says what frames and chunks are for.
 *
 * MPI tells from whom a message came, so no frame has to prove that. Each frame
 * and chunk has the number of the job: what is left of a job that ended may
 * come to a communicator for which MPI uses the old one's context again. It is
 * no secret; who is in the job is for MPI's own start to decide. */
#ifndef WF_TRANSPORT_MPI_WIRE_H
#define WF_TRANSPORT_MPI_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "boot/boot.h"

/* Frames that may be under way to one rank. */
#define MP_CREDITS 32u
/* Bytes of a large message that go together. */
#define MP_CHUNK_BYTES ((size_t)256 << 10)

typedef enum mp_kind {
    MP_EAGER = 1, /* a message with `tag`, of n bytes */
    MP_OFFER,     /* n bytes with `tag` are offered under `token` */
    MP_WANT,      /* n bytes of what is offered under `token` are wanted */
    MP_AM,        /* word: id, and bytes of the header above 8 bits */
    /* These cost no credit. */
    MP_CREDIT, /* nothing, or: all was read that came before question `token` */
    MP_ASK,    /* question `token`: was all read? */
    MP_BYE     /* the sender reads no more */
} mp_kind;

typedef struct mp_head {
    uint64_t job;
    uint32_t seq;     /* counts the frames from one rank to another */
    uint32_t credits; /* so many frames were read since the last one */
    uint32_t kind;
    uint32_t word;
    uint64_t tag;
    uint64_t n;
    uint64_t token;
} mp_head;
_Static_assert(sizeof(mp_head) == 48, "what follows is aligned to 16");

typedef struct mp_chunk_head {
    uint64_t job;
    uint64_t token;
} mp_chunk_head;
_Static_assert(sizeof(mp_chunk_head) == 16, "what follows is aligned to 16");

/* What a rank asks the bootstrap table; the value of MP_BOOT_SET follows. */
typedef enum mp_boot_verb {
    MP_BOOT_SET = 1,
    MP_BOOT_GET,
    MP_BOOT_DONE /* nothing more comes from this rank */
} mp_boot_verb;

typedef struct mp_boot_head {
    uint64_t verb;
    uint64_t id; /* of a question */
    uint64_t n;  /* bytes of the value behind this */
    char key[WF_BOOT_KEY_MAX + 1];
} mp_boot_head;

static inline bool mp_costs_credit(uint32_t kind)
{
    return kind < MP_CREDIT;
}

/* The parts of an active message's `word`. */
static inline uint32_t mp_am_id(const mp_head *head)
{
    return head->word & 0xff;
}

static inline size_t mp_am_header(const mp_head *head)
{
    return head->word >> 8;
}

/* Where the payload of an active message lies behind the head. */
static inline size_t mp_am_payload(size_t header_bytes)
{
    return (header_bytes + 15) & ~(size_t)15;
}

/* Are these `n` bytes a frame, or a chunk, of this job? Its head can be read
 * then, and is `data`. Anything else is a stray, and nobody's fault. */
bool mp_wire_is_frame(const void *data, size_t n, uint64_t job);
bool mp_wire_is_chunk(const void *data, size_t n, uint64_t job);

/* May this be under way to us while `seq` is the number of the next frame? */
bool mp_wire_is_near(const mp_head *head, uint32_t seq);

/* Does a correct rank send such a head with `body` bytes behind it, to one that
 * has `credits` left? */
bool mp_wire_check(const mp_head *head, size_t body, uint32_t credits);

/* Does a correct rank send `body` bytes of data in a chunk of what is wanted
 * under `token`, of which `left` bytes are to come? Without data it ends. */
bool mp_wire_check_chunk(const mp_chunk_head *head, size_t body, uint64_t token,
                         size_t left);

/* Are these `n` bytes a question to the table? */
bool mp_wire_check_boot(const void *data, size_t n);

#endif
