/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between two ranks of a communicator.
 *
 * Tags are the caller's: any 32-bit number but WEFT_ANY_TAG. A message is
 * matched by communicator, sender and tag. Messages that one rank sends to
 * another and that the same receive could take are taken in the order sent; of
 * receives that could take the same message, the one that was called first
 * gets it, whether it names the sender or takes from any rank, and whether it
 * blocks or not. Between calls on different threads "first" is what happens to
 * be first.
 *
 * Receives from any rank take turns between the ways messages come in, and
 * take what came first on each, so that no sender is passed over for ever.
 *
 * Lengths are in bytes and may exceed 32 bits. Buffers of length 0 may be NULL.
 * All calls fail with WEFT_ERR_INVALID, and have no effect, if an argument is
 * not valid, and at once if the communicator is broken (see comm.h). A
 * peer that dies fails what is pending with it with WEFT_ERR_PEER and breaks
 * the communicator; a message that had arrived whole can still be received
 * before that. One that leaves the job in good order fails only what waits for
 * it. A non-blocking call may fail with WEFT_ERR_NOMEM; then `*out` is not
 * written. The communicator's timeout runs for each message; for a request of
 * weft_irecv only while somebody waits for it, or a callback does, since it may
 * stand ready for a message that comes some day.
 */
#ifndef WEFT_MESSAGE_H
#define WEFT_MESSAGE_H

#include <weft/comm.h>
#include <weft/request.h>

WEFT_BEGIN_DECLS

/** Instead of a rank, in receives and probes: any sender, the calling rank
 * itself included. */
#define WEFT_ANY_SOURCE UINT32_MAX

/** Instead of a tag, in receives and probes: any tag. No message can be sent
 * with it. */
#define WEFT_ANY_TAG UINT32_MAX

/** What is known of a message. */
typedef struct weft_message_info {
    uint32_t from; /* the rank that sent it, in the communicator */
    uint32_t tag;
    size_t n; /* its whole length, also if it was truncated */
} weft_message_info;

/**
 * Send `n` bytes to rank `to`. The blocking form returns when `buf` may be
 * changed again, which can be before the other rank has received it; a long
 * message waits for its receive, also one to the calling rank itself. The
 * non-blocking form borrows `buf` until the request completes.
 */
WEFT_API weft_status weft_send(weft_comm *comm, const void *buf, size_t n,
                               uint32_t to, uint32_t tag);
WEFT_API weft_status weft_isend(weft_comm *comm, const void *buf, size_t n,
                                uint32_t to, uint32_t tag, weft_request **out);

/**
 * Receive the next message with `tag` (or WEFT_ANY_TAG) from rank `from` (or
 * WEFT_ANY_SOURCE) into `room` bytes at `buf`. `*info`, unless `info` is NULL,
 * is filled in when the receive completes; the non-blocking form borrows it and
 * `buf` until then.
 *
 * A message longer than `room` fails the receive with WEFT_ERR_TRUNCATED; its
 * beginning is in `buf`, `*info` is filled in, it is consumed and the
 * communicator stays good. A receive from any rank goes on while another rank
 * of the communicator lives, and fails with WEFT_ERR_PEER when none is left.
 */
WEFT_API weft_status weft_recv(weft_comm *comm, void *buf, size_t room,
                               uint32_t from, uint32_t tag,
                               weft_message_info *info);
WEFT_API weft_status weft_irecv(weft_comm *comm, void *buf, size_t room,
                                uint32_t from, uint32_t tag,
                                weft_message_info *info, weft_request **out);

/**
 * Send `n` bytes at `src` to rank `to` and receive a message into `room` bytes
 * at `dst`, both at once: ranks that do so in a ring, or one with itself, do
 * not wait for each other in vain. The two messages are like those of
 * weft_isend and weft_irecv, and match other sends and receives. The buffers
 * must not overlap.
 *
 * It is over when both are. WEFT_ERR_TRUNCATED tells that the message received
 * was too long for `room`; the other one was sent.
 */
WEFT_API weft_status weft_sendrecv(weft_comm *comm, const void *src, size_t n,
                                   uint32_t to, uint32_t send_tag, void *dst,
                                   size_t room, uint32_t from,
                                   uint32_t recv_tag, weft_message_info *info);
WEFT_API weft_status weft_isendrecv(weft_comm *comm, const void *src, size_t n,
                                    uint32_t to, uint32_t send_tag, void *dst,
                                    size_t room, uint32_t from,
                                    uint32_t recv_tag, weft_message_info *info,
                                    weft_request **out);

/**
 * Wait until a message has arrived that a receive with the same `from` and
 * `tag` would take, and say what it is; the message stays. `info` may be NULL.
 *
 * A receive that then names info.from and info.tag takes that very message,
 * unless another receive on this communicator, of another thread, say, takes it
 * in between: threads that probe and receive need a lock around both, or a
 * communicator each. Messages that an earlier receive will take are not seen.
 */
WEFT_API weft_status weft_probe(weft_comm *comm, uint32_t from, uint32_t tag,
                                weft_message_info *info);

/**
 * The same without waiting: `*found` becomes 1, and `*info` is filled in, if
 * such a message has arrived, else 0. Each call moves pending operations on.
 * Fails like weft_probe if no such message can come any more.
 */
WEFT_API weft_status weft_iprobe(weft_comm *comm, uint32_t from, uint32_t tag,
                                 int *found, weft_message_info *info);

WEFT_END_DECLS

#endif
