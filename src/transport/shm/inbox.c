/* SPDX-License-Identifier: Apache-2.0 */
/* The inbox: a segment with the control blocks of all rings, then the lines of
 * each ring on pages of their own. Of a ring that nobody writes to only the
 * first page is allocated, which the owner polls. */
#include <unistd.h>

#include "base/fd.h"
#include "base/status.h"
#include "base/time.h"
#include "mem/await.h"
#include "transport/shm/shm.h"

#define INBOX_MAIL 0x696e626f782d3031ull /* "inbox-01" */

/* The mail from a rank to each other one, with the descriptor of its inbox. */
typedef struct inbox_hello {
    uint32_t magic;
    uint32_t version;
    uint64_t ring_bytes;
    uint64_t probe_address;
    uint64_t probe_value;
} inbox_hello;
_Static_assert(sizeof(inbox_hello) == 32, "layout");

weft_status shm_layout_of(uint32_t count, uint64_t ring_bytes, shm_layout *out)
{
    if (ring_bytes < WF_RING_BYTES_MIN || ring_bytes > WF_RING_BYTES_MAX ||
        (ring_bytes & (ring_bytes - 1)) != 0) {
        return wf_fail(WEFT_ERR_INVALID,
                       "WEFT_SHM_RING_BYTES is %llu; it must be a power of "
                       "two from %u to %u",
                       (unsigned long long)ring_bytes, WF_RING_BYTES_MIN,
                       WF_RING_BYTES_MAX);
    }
    out->lines = (uint32_t)(ring_bytes / WF_RING_LINE);
    out->data = wf_round_up((size_t)count * sizeof(wf_ring), wf_segment_page());
    out->bytes = out->data + (size_t)count * ring_bytes;
    return WEFT_OK;
}

wf_ring *shm_ring_at(const wf_segment *inbox, uint32_t index)
{
    return (wf_ring *)inbox->base + index;
}

void *shm_lines_at(const wf_segment *inbox, const shm_layout *layout,
                   uint32_t index)
{
    return (unsigned char *)inbox->base + layout->data +
           (size_t)index * layout->lines * WF_RING_LINE;
}

weft_status shm_inbox_create(wf_port *port, const wf_settings *settings)
{
    shm_layout layout = {0};
    weft_status st = shm_layout_of(port->count, settings->ring_bytes, &layout);

    if (st == WEFT_OK) {
        st = wf_segment_create("weft-inbox", layout.bytes, WF_HUGE_OFF,
                               &port->inbox);
    }
    if (st != WEFT_OK) {
        return st;
    }
    for (uint32_t i = 0; i < port->count; i++) {
        wf_ring *ring = shm_ring_at(&port->inbox, i);

        wf_ring_init(ring, layout.lines, port->self, i);
        wf_ring_read(ring, shm_lines_at(&port->inbox, &layout, i), layout.lines,
                     &port->in[i]);
    }
    return WEFT_OK;
}

static weft_status inbox_send(wf_port *port, const wf_settings *settings)
{
    inbox_hello hello = {WF_RING_MAGIC, WF_RING_VERSION, settings->ring_bytes,
                         (uint64_t)(uintptr_t)&port->probe, port->probe};

    for (uint32_t i = 0; i < port->count; i++) {
        weft_status st =
            port->peer[i].failed != WEFT_OK
                ? WEFT_OK
                : wf_host_post(port->host, port->peer[i].rank, INBOX_MAIL,
                               &hello, sizeof(hello), port->inbox.fd);

        if (st != WEFT_OK) {
            return st;
        }
    }
    return WEFT_OK;
}

/* Map the inbox `fd`, which this call owns, and find our ring in it. */
static weft_status inbox_attach(wf_port *port, shm_peer *peer,
                                const inbox_hello *hello, int fd)
{
    shm_layout layout = {0};
    weft_status st = shm_layout_of(port->count, hello->ring_bytes, &layout);
    wf_ring *ring;

    if (st != WEFT_OK) {
        close(fd);
        return st;
    }
    st = wf_segment_attach("the inbox of a peer", fd, layout.bytes, true,
                           &peer->inbox);
    if (st != WEFT_OK) {
        return st;
    }
    wf_segment_close_fd(&peer->inbox);
    ring = shm_ring_at(&peer->inbox, port->self);
    st = wf_ring_check(ring, layout.lines, peer->slot, port->self);
    if (st != WEFT_OK) {
        return st;
    }
    wf_ring_write(ring, shm_lines_at(&peer->inbox, &layout, port->self),
                  layout.lines, &peer->out);
    return WEFT_OK;
}

/* If each rank has a core, sender and receiver copy at the same time through
 * the ring, while a buffer that another core has read is slow to write again.
 * Reading is faster where the two share a core: one copy, and no alternation
 * (docs/design/0003-messages.md). */
static bool inbox_reads(const wf_port *port, const wf_settings *settings)
{
    return settings->cma == WF_CMA_ON || port->host->count > port->host->cpus;
}

/* Every rank of the host mails its inbox to all others, and leaves the job if
 * that fails. */
static weft_status inbox_take(wf_port *port, shm_peer *peer,
                              const wf_settings *settings, uint64_t deadline)
{
    wf_await await = {.host = port->host,
                      .needs = port->host->rank_of,
                      .count = port->host->count,
                      .by_socket = true,
                      .deadline_ns = deadline};
    inbox_hello hello;
    size_t n = sizeof(hello);
    size_t most;
    int fd = -1;
    weft_status st =
        wf_await_mail(&await, peer->rank, INBOX_MAIL, &hello, &n, &fd);

    if (st != WEFT_OK) {
        return st;
    }
    if (n != sizeof(hello) || fd < 0 || hello.magic != WF_RING_MAGIC ||
        hello.version != WF_RING_VERSION) {
        wf_close(fd);
        return wf_fail(WEFT_ERR_PROTOCOL,
                       "rank %u did not send its inbox as version %u has it; "
                       "do all ranks use the same weft?",
                       peer->rank, WF_RING_VERSION);
    }
    st = inbox_attach(port, peer, &hello, fd);
    if (st != WEFT_OK) {
        return st;
    }
    most = wf_ring_payload_max(peer->out.lines);
    peer->eager_bytes =
        settings->eager_bytes < most ? settings->eager_bytes : most;
    peer->readable =
        port->reads && settings->cma != WF_CMA_OFF &&
        shm_large_probe(port, peer, hello.probe_address, hello.probe_value);
    return WEFT_OK;
}

weft_status shm_inbox_swap(wf_port *port, const wf_settings *settings)
{
    uint64_t deadline = wf_now_ns() + settings->boot_timeout_ns;
    weft_status st = inbox_send(port, settings);

    port->reads = inbox_reads(port, settings);
    for (uint32_t i = 0; i < port->count && st == WEFT_OK; i++) {
        if (port->peer[i].failed == WEFT_OK) {
            st = inbox_take(port, &port->peer[i], settings, deadline);
        }
    }
    wf_segment_close_fd(&port->inbox);
    return st;
}
