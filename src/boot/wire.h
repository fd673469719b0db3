/* SPDX-License-Identifier: Apache-2.0 */
/* The protocol between the ranks of a host and rank 0 while the job forms.
 *
 * A message is a head of 20 bytes, a key and a value, in the byte order of the
 * host, which both share:
 *
 *     HELLO  rank -> 0   value: rank and number of ranks, 4 bytes each
 *     SET    rank -> 0   key, value
 *     GET    rank -> 0   key
 *     DONE   rank -> 0   the rank needs the table no more
 *     ACK    0 -> rank   of HELLO or SET; value: why it failed, as text
 *     VALUE  0 -> rank   of GET; value: the bytes or, if it failed, why
 *
 * Each request has a number of its own, which its answer repeats. */
#ifndef WF_BOOT_WIRE_H
#define WF_BOOT_WIRE_H

#include "boot/boot.h"

typedef enum wf_wire_kind {
    WF_WIRE_HELLO = 1,
    WF_WIRE_SET,
    WF_WIRE_GET,
    WF_WIRE_DONE,
    WF_WIRE_ACK,
    WF_WIRE_VALUE
} wf_wire_kind;

typedef struct wf_wire_msg {
    wf_wire_kind kind;
    uint32_t id;
    weft_status status; /* of an answer, else WEFT_OK */
    char key[WF_BOOT_KEY_MAX + 1];
    const void *value; /* points into the parsed bytes */
    size_t n;
} wf_wire_msg;

/* The value of HELLO. */
typedef struct wf_wire_hello {
    uint32_t rank;
    uint32_t ranks;
} wf_wire_hello;

typedef enum wf_wire_found {
    WF_WIRE_PART,  /* more bytes are needed; nothing is wrong so far */
    WF_WIRE_WHOLE, /* `*out` and `*used` are set */
    WF_WIRE_BAD    /* malformed */
} wf_wire_found;

/* Parse one message at the start of `n` bytes that came from a peer. Pure. */
wf_wire_found wf_wire_parse(const void *bytes, size_t n, wf_wire_msg *out,
                            size_t *used);

/* The encoded size of a message; wf_wire_write writes as many bytes. */
size_t wf_wire_size(const wf_wire_msg *msg);
void wf_wire_write(const wf_wire_msg *msg, void *bytes);

#endif
