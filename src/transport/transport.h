/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between two ranks: the contract that every transport keeps. This
 * header is the manual for whoever writes one; docs/design/0012-transports.md
 * says why it is so, and tests/conform checks all of it.
 *
 * Writing a transport
 *   It is a folder of src/transport that fills in a wf_transport, and a line in
 *   the table of src/weft.c. If it needs a foreign library, it is a shared
 *   library of its own: the row in the table has only `abi`, `name` and
 *   `library` (or `locate`, if there are several to choose from), and the
 *   library exports its wf_transport under the name WF_TRANSPORT_SYMBOL. It may
 *   call whatever is declared with WF_API (errors,
 *   log, memory, matching, handlers) and inline functions. A library that is
 *   not there reaches nobody, and that is logged; with WEFT_TRANSPORTS naming
 *   the transport it is an error.
 *
 * The life of a port
 *   A port is one rank's end of a transport. For each transport of the table:
 *
 *   prepare   (optional) before ranks know of each other: make the port as far
 *             as that goes, and give the address by which others will find it.
 *             Addresses travel with the records that ranks exchange to join.
 *   reaches   once all ranks know each other: can this transport lead there?
 *             Each rank is routed to the first transport of the table that
 *             reaches it. Both sides must answer alike, since both route.
 *   open      with the ranks that are routed here, if there are any.
 *   ...       messages
 *   close     also for a port that was prepared and is not needed.
 *
 * Calls
 *   Calls on one port are made by one thread at a time. No call blocks, but for
 *   open(), and for drop() as it says. A transport never calls back into the
 *   core, save from progress(): the handlers of active messages, `keep` and
 *   `lost`. Handlers may send; they do not call progress(). A call that returns
 *   a failure has started nothing: its wf_msg is not used.
 *
 * Messages
 *   Tagged messages are matched on (from, tag & mask). Messages from one rank
 *   that match the same receive are matched in the order sent; a message that
 *   comes before its receive is kept. Active messages from one rank are handled
 *   in the order sent; there is no order between the two kinds. match.h and
 * am.h do all of that for transports whose network does not.
 *
 * Sleeping
 *   progress() is called again and again while somebody waits. A waiter that
 *   has seen nothing happen for a while sleeps on its rank's bell on the board
 *   (mem/board.h), and the port must see to it that the bell rings when
 *   progress() has something to do. There are two ways:
 *
 *   - Peers ring it: descriptor() is absent or gives -1. The sender rings with
 *     wf_board_ring, for an active message with wf_board_ring_listener, and a
 *     progress() that did something and may have more to do rings its own.
 *   - A descriptor polls readable. Before it sleeps, the waiter calls arm(). If
 *     that is true, the core sleeps, and a thread of it watches the descriptor
 *     and wakes it. "False" means: not now, there is something to do;
 * then progress() is called again first. (UCX: ucp_worker_arm. A port that has
 *     no descriptor and whose peers cannot ring, as with MPI, makes a timerfd
 *     its descriptor.) What waits for room to be sent counts as something to
 *     do once there is room.
 *
 * Losing a peer
 *   The core tells a port with gone() that a rank died or left. A port finds
 * out by itself that a connection ended, or that a peer sent nonsense: what a
 * peer writes is checked before it is used as a size or an index. Either way it
 *   ends in the same steps, all from progress():
 *
 *   1. What arrived whole from that rank is delivered: handlers are called,
 *      tagged messages go to their receives or are kept, where receives and
 *      peeks still find them. (After nonsense, only what came before it.)
 *   2. All else that is pending with the rank fails, with WEFT_ERR_PEER, or
 *      with WEFT_ERR_PROTOCOL after nonsense; so do later calls for it, except
 *      receives that match what was kept. Receives from any rank go on waiting.
 *   3. `lost` of the setup is called, once for a rank, with that status. From
 *      then on nothing comes from it.
 *
 *   A port that finds a connection ended gives the core WF_LOSS_GRACE_NS to say
 *   gone() before it begins with step 1: those who share a host with the rank
 *   know how it went, and that it had said goodbye.
 *
 *   After gone() this is over by the end of the next progress(), or of one a
 *   moment later: the core may know of a goodbye before the last messages are
 *   here, where these went another way. The core takes no further step for a
 *   rank that a port has lost but to fail what needs it: a rank may be lost to
 *   one that others still talk to. */
#ifndef WF_TRANSPORT_TRANSPORT_H
#define WF_TRANSPORT_TRANSPORT_H

#include <stdbool.h>
#include <weft/status.h>

#include "base/settings.h"
#include "mem/host.h"

#define WF_TRANSPORT_ABI 8u
#define WF_TRANSPORT_SYMBOL "wf_transport_module"

#define WF_LOSS_GRACE_NS 150000000ull

#define WF_FROM_ANY UINT32_MAX
#define WF_TAG_EXACT UINT64_MAX

/* Bounds of active messages that every transport can carry; and of a payload
 * for those that can carry more (wf_transport.am_payload). */
#define WF_AM_IDS 16
#define WF_AM_HEADER_MAX 64
#define WF_AM_PAYLOAD_MAX 8192
#define WF_AM_PAYLOAD_MOST 129024

typedef struct wf_port wf_port;

/* A tagged message under way. The caller brings the memory, and keeps it and
 * the buffer until `done`, until drop() or until the port is closed; it reads
 * the first six fields only. */
typedef struct wf_msg {
    bool done;
    weft_status status; /* valid once done */
    uint32_t from;      /* receives: who sent it */
    uint64_t tag;       /* receives: its tag */
    size_t n;           /* receives: its whole length, also when truncated */
    /* While a long one is under way, so many of its bytes have moved: it
     * changes with each piece that comes, and at a sender with each that goes,
     * unless the receiver takes them itself. */
    size_t moved;
    /* The transport's own. */
    struct wf_msg *next;
    uint64_t mask;
    uint32_t peer;
    uint32_t state;
    void *buf;
    size_t room;
    uint64_t token;
} wf_msg;

/* `header` and `payload` are valid during the call, aligned to 16 bytes. */
typedef void wf_am_fn(void *ctx, uint32_t from, const void *header,
                      size_t header_bytes, const void *payload,
                      size_t payload_bytes);

/* Like wf_am_fn, but where the network has the message: neither part is
 * aligned. False: it was not touched, and the handler is to have it. */
typedef bool wf_am_early_fn(void *ctx, uint32_t from, const void *header,
                            size_t header_bytes, const void *payload,
                            size_t payload_bytes);

/* Writes the payload of an active message that is sent; `payload` is aligned to
 * 64 bytes. It makes no call of a port. */
typedef void wf_am_fill_fn(void *ctx, void *payload);

/* Shall a tagged message be kept that no receive waits for? */
typedef bool wf_keep_fn(void *ctx, uint64_t tag);

/* Nothing more comes from `rank`: WEFT_ERR_PEER or WEFT_ERR_PROTOCOL. */
typedef void wf_loss_fn(void *ctx, uint32_t rank, weft_status why);

/* What a port is opened with. The list of ranks is valid during open() only. */
typedef struct wf_port_setup {
    wf_host *host;
    const wf_settings *settings;
    const uint32_t *rank; /* those that are routed here, in order */
    uint32_t ranks;
    /* Asked about each message that comes before its receive: one that is not
     * to be kept is dropped, and its sender, if it waits, goes on waiting.
     * NULL: all are kept. */
    wf_keep_fn *keep;
    wf_loss_fn *lost; /* may be NULL */
    void *ctx;        /* of these two */
} wf_port_setup;

typedef struct wf_transport {
    uint32_t abi;        /* WF_TRANSPORT_ABI; anything else is refused */
    const char *name;    /* "shm"; also the middle of WEFT_SHM_* settings */
    const char *library; /* not NULL: this is only a row, load that file */
    /* The longest payload of an active message: more than WF_AM_PAYLOAD_MAX
     * where each message costs much, WF_AM_PAYLOAD_MOST at most. 0: the
     * former. */
    uint32_t am_payload;
    /* Not NULL: this is only a row; load the file that it gives.
     * WEFT_ERR_UNSUPPORTED: there is none for this machine. */
    weft_status (*locate)(const wf_settings *settings, const char **file);
    /* Optional. Make this rank's end and fill in `address->data` and n, which
     * are read until open() or close(). A transport with this member reaches
     * only ranks that gave an address, which wf_join_address finds in
     * host->table. WEFT_ERR_UNSUPPORTED: not on this machine; then it reaches
     * nobody here, and that is logged. */
    weft_status (*prepare)(const wf_settings *settings, wf_port **out,
                           wf_address *address);
    /* Can this transport join this rank with `rank`, here and now? */
    bool (*reaches)(const wf_host *host, uint32_t rank);
    /* Collective over the ranks that are routed here, which do the same, in the
     * order of the table. `*port` is what prepare() made, or NULL without it;
     * on failure it is still the caller's to close, and nothing else is left
     * behind. */
    weft_status (*open)(const wf_port_setup *setup, wf_port **port);
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
    /* Forget a message, whatever its state, of an operation that has failed.
     * When this returns, neither `msg` nor its buffer is read or written again,
     * by this process or by the network: the buffer is the program's, which may
     * unmap it. The peer may be left waiting; it never gets other bytes than
     * those that were sent.
     *
     * Where the network may be at work on the buffer, a transport has three
     * ways to keep this, and takes the first one that it has: cancel (UCX does
     * for receives that have not matched); cut the connection with that peer,
     * which ends all that is pending with it and is reported as its loss, and
     * wait until the own side has let go (UCX: close the endpoint by force); or
     * not to lend the network a program's buffer at all, but memory of its own
     * that can outlive the message (MPI). It may take as long as that, but
     * never waits for the peer. */
    void (*drop)(wf_port *port, wf_msg *msg);
    /* Let go of all messages that were kept and have such a tag. */
    void (*forget)(wf_port *port, uint64_t tag, uint64_t mask);
    /* Have `fn` called for active messages with this id (< WF_AM_IDS). */
    void (*handle)(wf_port *port, uint32_t id, wf_am_fn *fn, void *ctx);
    /* Optional. Offer each such message to `fn` first, with the same `ctx`:
     * it spares the copy of a long payload from the network's memory. `fn` may
     * send active messages, and makes no other call of a port. */
    void (*handle_early)(wf_port *port, uint32_t id, wf_am_early_fn *fn);
    /* Send one; both parts are copied before it returns. */
    weft_status (*am)(wf_port *port, uint32_t to, uint32_t id,
                      const void *header, size_t header_bytes,
                      const void *payload, size_t payload_bytes);
    /* Optional where am_payload is 0. Send one whose payload is written where
     * it is sent from: `fill` is called once, before this returns, or not at
     * all if this fails. It spares the copy of a long payload. */
    weft_status (*am_fill)(wf_port *port, uint32_t to, uint32_t id,
                           const void *header, size_t header_bytes,
                           size_t payload_bytes, wf_am_fill_fn *fill,
                           void *ctx);
    /* Move what can be moved; the number of things that happened. */
    unsigned (*progress)(wf_port *port);
    /* Is there something that leaves, or is read, only by further calls of
     * progress()? Before a rank leaves, it goes on until this is false. A
     * waiter may sleep all the same: it is woken when needed. */
    bool (*busy)(const wf_port *port);
    /* Optional: this rank is about to leave. From now on busy() is true also
     * while something that was sent may not reach its peer without us. Called
     * again if more was sent since. */
    void (*leaving)(wf_port *port);
    /* In a forked child, on its only thread: let go of all that is pending, and
     * of what is shared with the peers, so that no call later reaches them;
     * progress() is not called again. Optional where nothing is shared and
     * nothing can be pending. */
    void (*orphan)(wf_port *port);
    /* `rank` died or left. */
    void (*gone)(wf_port *port, uint32_t rank);
    /* Optional: is there a connection with `rank`? A rank that leaves says
     * goodbye on those that there are, and opens no other. Left out where
     * ranks are reached without connections that can end. */
    bool (*connected)(const wf_port *port, uint32_t rank);
    /* Optional, both or none: see "Sleeping". The descriptor is asked for once,
     * after open(); it stays the port's and open until close(). */
    int (*descriptor)(const wf_port *port);
    bool (*arm)(wf_port *port);
} wf_transport;

extern const wf_transport wf_transport_self;
extern const wf_transport wf_transport_shm;

#endif
