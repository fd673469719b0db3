/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between two ranks of a communicator.
 *
 * Messages from one rank to another with one tag arrive in the order sent.
 * Tags are the caller's; any 32-bit number will do. */
#ifndef WEFT_MESSAGE_H
#define WEFT_MESSAGE_H

#include <weft/comm.h>
#include <weft/request.h>

WEFT_BEGIN_DECLS

/**
 * Send `n` bytes to rank `to`. The blocking form returns when `buf` may be
 * changed again, which can be before the other rank has received it.
 */
WEFT_API weft_status weft_send(weft_comm *comm, const void *buf, size_t n,
                               uint32_t to, uint32_t tag);
WEFT_API weft_status weft_isend(weft_comm *comm, const void *buf, size_t n,
                                uint32_t to, uint32_t tag, weft_request **out);

/**
 * Receive the next message with `tag` from rank `from` into `room` bytes at
 * `buf`; `*n`, if not NULL, becomes its length when the receive completes. A
 * longer message fails the receive with WEFT_ERR_TRUNCATED; it is consumed and
 * the communicator stays good.
 */
WEFT_API weft_status weft_recv(weft_comm *comm, void *buf, size_t room,
                               uint32_t from, uint32_t tag, size_t *n);
WEFT_API weft_status weft_irecv(weft_comm *comm, void *buf, size_t room,
                                uint32_t from, uint32_t tag, size_t *n,
                                weft_request **out);

WEFT_END_DECLS

#endif
