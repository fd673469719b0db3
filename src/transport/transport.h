/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between two ranks: the contract that self, shm, and later ucx and
 * mpi, keep.
 *
 * A port is one rank's end of a transport, joined with the ports of all other
 * ranks it can reach. Calls on one port are made by one thread at a time. No
 * call blocks. A transport never calls back into the core, save for the
 * handlers of active messages, from progress(). Handlers may send.
 *
 * Tagged messages are matched on (from, tag & mask). Messages from one rank
 * that match the same receive are matched in the order sent; a message that
 * comes before its receive is kept. Active messages from one rank are handled
 * in the order sent; there is no order between the two kinds.
 *
 * A rank that is told of with gone() fails everything pending with it, by the
 * end of the next progress(), and all later calls for it with WEFT_ERR_PEER,
 * except messages that arrived whole before it went; receives from any rank go
 * on waiting. What a peer writes is checked before it is used as a size or an
 * index; nonsense fails all that is pending with it with WEFT_ERR_PROTOCOL and
 * does no more harm.
 *
 * A call that returns a failure has started nothing: its wf_msg is not used. */
#ifndef WF_TRANSPORT_TRANSPORT_H
#define WF_TRANSPORT_TRANSPORT_H

#include <stdbool.h>
#include <weft/status.h>

#include "base/settings.h"
#include "mem/host.h"

#define WF_TRANSPORT_ABI 1u
#define WF_FROM_ANY UINT32_MAX
#define WF_TAG_EXACT UINT64_MAX

/* Bounds of active messages that every transport can carry. */
#define WF_AM_IDS 16
#define WF_AM_HEADER_MAX 64
#define WF_AM_PAYLOAD_MAX 4096

typedef struct wf_port wf_port;

/* A tagged message under way. The caller brings the memory, and keeps it and
 * the buffer until `done` or until the port is closed; it reads the first five
 * fields only. */
typedef struct wf_msg {
    bool done;
    weft_status status; /* valid once done */
    uint32_t from;      /* receives: who sent it */
    uint64_t tag;       /* receives: its tag */
    size_t n;           /* receives: its whole length, also when truncated */
    /* The transport's own. */
    struct wf_msg *next;
    uint64_t mask;
    uint32_t peer;
    uint32_t state;
    void *buf;
    size_t room;
    size_t moved;
    uint64_t token;
} wf_msg;

/* `header` and `payload` are valid during the call only, and aligned to 16
 * bytes. */
typedef void wf_am_fn(void *ctx, uint32_t from, const void *header,
                      size_t header_bytes, const void *payload,
                      size_t payload_bytes);

/* Shall a tagged message be kept that no receive waits for? */
typedef bool wf_keep_fn(void *ctx, uint64_t tag);

typedef struct wf_transport {
    uint32_t abi;     /* WF_TRANSPORT_ABI; anything else is refused */
    const char *name; /* "shm"; also the middle of WEFT_SHM_* settings */
    /* Can this transport join this rank with `rank`, here and now? */
    bool (*reaches)(const wf_host *host, uint32_t rank);
    /* Collective over the ranks that are reached. Fails with nothing left
     * behind. */
    weft_status (*open)(wf_host *host, const wf_settings *settings,
                        wf_port **out);
    /* Lets go at once: what is still pending is never completed, and peers
     * see nothing of it. Takes NULL. */
    void (*close)(wf_port *port);
    /* `buf` is borrowed until done, which may be at once. The receiver may get
     * it before or after that. */
    weft_status (*send)(wf_port *port, uint32_t to, uint64_t tag,
                        const void *buf, size_t n, wf_msg *msg);
    /* `from` may be WF_FROM_ANY; bits of the tag outside `mask` match any. A
     * message longer than `room` is consumed and gives WEFT_ERR_TRUNCATED. */
    weft_status (*recv)(wf_port *port, uint32_t from, uint64_t tag,
                        uint64_t mask, void *buf, size_t room, wf_msg *msg);
    /* Has a message arrived that such a receive would match? Fills `found`
     * (from, tag, n) of the oldest one and leaves the message where it is. No
     * message arrives in this call: what one peek has not found the next one
     * does not find either, unless progress() or send() came between. */
    bool (*peek)(wf_port *port, uint32_t from, uint64_t tag, uint64_t mask,
                 wf_msg *found);
    /* Take a receive back that has not matched yet: true, and `msg` is done
     * with WEFT_ERR_ABORTED. False: it is matched and will complete. */
    bool (*cancel)(wf_port *port, wf_msg *msg);
    /* Forget a message, whatever its state: neither `msg` nor its buffer is
     * touched again. The peer may be left waiting; this is for what has failed
     * anyway. */
    void (*drop)(wf_port *port, wf_msg *msg);
    /* Have `fn` asked about each message that comes before its receive; one
     * that is not to be kept is dropped, and its sender, if it waits, goes on
     * waiting. Without it, all are kept. */
    void (*ask)(wf_port *port, wf_keep_fn *fn, void *ctx);
    /* Let go of all messages that were kept and have such a tag. */
    void (*forget)(wf_port *port, uint64_t tag, uint64_t mask);
    /* Have `fn` called for active messages with this id (< WF_AM_IDS). */
    void (*handle)(wf_port *port, uint32_t id, wf_am_fn *fn, void *ctx);
    /* Send one; both parts are copied before it returns. */
    weft_status (*am)(wf_port *port, uint32_t to, uint32_t id,
                      const void *header, size_t header_bytes,
                      const void *payload, size_t payload_bytes);
    /* Move what can be moved; the number of things that happened. */
    unsigned (*progress)(wf_port *port);
    /* Is there something that leaves, or is read, only by further calls of
     * progress()? Before a rank leaves, it goes on until this is false. A
     * waiter may sleep all the same: it is woken when there is something to
     * do. */
    bool (*busy)(const wf_port *port);
    /* In a forked child, on its only thread: let go of all that is pending, and
     * of what is shared with the peers, so that no call later reaches them;
     * progress() is not called again. Optional where nothing is shared and
     * nothing can be pending. */
    void (*orphan)(wf_port *port);
    /* `rank` died or left. */
    void (*gone)(wf_port *port, uint32_t rank);
    /* Will no more messages come from `rank`? It is gone, or was cut off, and
     * what had arrived of it can be received or peeked at. */
    bool (*lost)(const wf_port *port, uint32_t rank);
    /* A descriptor that polls readable when progress() may have work, or -1:
     * then this rank's bell on the board rings, by a peer or by a progress()
     * that did something and may have more to do; for an active message, with
     * wf_board_ring_listener. Optional. */
    int (*wake_fd)(wf_port *port);
} wf_transport;

extern const wf_transport wf_transport_self;
extern const wf_transport wf_transport_shm;

#endif
