/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/mpi/mp.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/status.h"

/* How often a request that was cancelled is tested before it is left behind:
 * one that is half way through waits for its peer. */
#define CANCEL_TESTS 1000

/* --- buffers -------------------------------------------------------------- */

static mp_buf *buf_take(mp_buf **spare, size_t bytes)
{
    mp_buf *buf = *spare;

    if (buf != NULL) {
        *spare = buf->next;
        return buf;
    }
    return wf_alloc(sizeof(*buf) + bytes);
}

mp_buf *mp_frame_take(wf_port *port)
{
    return buf_take(&port->spare_frames, port->frame_bytes);
}

mp_buf *mp_chunk_take(wf_port *port)
{
    return buf_take(&port->spare_chunks,
                    sizeof(mp_chunk_head) + MP_CHUNK_BYTES);
}

void mp_buf_give(wf_port *port, mp_buf *buf, mp_use use)
{
    mp_buf **spare =
        use == MP_OUT_FRAME ? &port->spare_frames : &port->spare_chunks;

    buf->next = *spare;
    *spare = buf;
}

static void spares_free(mp_buf *buf)
{
    while (buf != NULL) {
        mp_buf *next = buf->next;

        wf_free(buf);
        buf = next;
    }
}

/* --- requests ------------------------------------------------------------- */

static bool flights_grow(mp_flights *f)
{
    int room = f->room > 0 ? 2 * f->room : 64;
    size_t n = (size_t)room;
    mp_flights to = {.n = f->n,
                     .room = room,
                     .request = wf_alloc(n * sizeof(*to.request)),
                     .status = wf_alloc(n * sizeof(*to.status)),
                     .index = wf_alloc(n * sizeof(*to.index)),
                     .buf = wf_alloc(n * sizeof(*to.buf))};
    mp_flights from = *f;
    bool grown = to.request != NULL && to.status != NULL && to.index != NULL &&
                 to.buf != NULL;

    if (grown) {
        wf_copy(to.request, f->request, (size_t)f->n * sizeof(*to.request));
        wf_copy(to.buf, f->buf, (size_t)f->n * sizeof(*to.buf));
        *f = to;
    } else {
        from = to;
    }
    wf_free(from.request);
    wf_free(from.status);
    wf_free(from.index);
    wf_free(from.buf);
    return grown;
}

bool mp_flights_room(wf_port *port)
{
    mp_flights *f = &port->flights;

    return f->n < f->room || flights_grow(f);
}

static void flights_add(wf_port *port, MPI_Request request, mp_buf *buf)
{
    mp_flights *f = &port->flights;

    f->request[f->n] = request;
    f->buf[f->n] = buf;
    f->n++;
}

void mp_flight_send(wf_port *port, mp_peer *peer, mp_buf *buf, mp_use use,
                    size_t n)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int over = 0;
    int code;

    buf->use = use;
    buf->peer = peer->slot;
    mp_net_lock();
    code = MPI_Isend(buf->data, (int)n, MPI_BYTE, peer->place,
                     use == MP_OUT_FRAME ? TAG_FRAME : TAG_CHUNK, port->comm,
                     &request);
    if (code == MPI_SUCCESS) {
        code = MPI_Test(&request, &over, MPI_STATUS_IGNORE);
    }
    mp_net_unlock();
    if (code != MPI_SUCCESS) {
        mp_peer_cut(port, peer, "MPI_Isend", code);
    }
    if (code != MPI_SUCCESS || over) {
        mp_buf_give(port, buf, use);
        return;
    }
    flights_add(port, request, buf);
    port->sending++;
    if (use == MP_OUT_CHUNK) {
        peer->chunks_out++;
        port->chunks_out++;
    }
}

void mp_flight_recv(wf_port *port, mp_peer *peer, mp_buf *buf)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int code;

    buf->use = MP_IN_CHUNK;
    buf->peer = peer->slot;
    buf->done = false;
    buf->next = NULL;
    mp_net_lock();
    code = MPI_Irecv(buf->data, (int)(sizeof(mp_chunk_head) + MP_CHUNK_BYTES),
                     MPI_BYTE, peer->place, TAG_CHUNK, port->comm, &request);
    mp_net_unlock();
    if (code != MPI_SUCCESS) {
        mp_buf_give(port, buf, MP_IN_CHUNK);
        mp_peer_cut(port, peer, "MPI_Irecv", code);
        return;
    }
    flights_add(port, request, buf);
    *peer->chunks_end = buf;
    peer->chunks_end = &buf->next;
    peer->posted++;
    port->chunks_in++;
}

/* --- what is over --------------------------------------------------------- */

static void flight_landed(wf_port *port, mp_buf *buf, const MPI_Status *status,
                          int code)
{
    mp_peer *peer = buf->peer != NOBODY ? &port->peer[buf->peer] : NULL;
    int n = 0;

    port->sending -= buf->use != MP_IN_CHUNK;
    port->chunks_out -= buf->use == MP_OUT_CHUNK;
    port->chunks_in -= buf->use == MP_IN_CHUNK;
    if (peer != NULL && buf->use == MP_IN_CHUNK && mp_net_is_too_long(code)) {
        buf->n = SIZE_MAX;
        buf->done = true;
        mp_peer_wake(port, peer);
        return;
    }
    if (peer != NULL && code != MPI_SUCCESS) {
        mp_peer_cut(port, peer, "a message over MPI", code);
    }
    if (peer != NULL && buf->use == MP_IN_CHUNK) {
        MPI_Get_count(status, MPI_BYTE, &n);
        buf->n = code == MPI_SUCCESS && n > 0 ? (size_t)n : 0;
        buf->done = true;
        mp_peer_wake(port, peer);
        return;
    }
    if (peer != NULL && buf->use == MP_OUT_CHUNK) {
        peer->chunks_out--;
        mp_peer_wake(port, peer);
    }
    mp_buf_give(port, buf, buf->use);
}

/* Take those that are over out of the arrays, to which nothing is added
 * meanwhile. */
static void flights_take(wf_port *port, int over, bool failed)
{
    mp_flights *f = &port->flights;

    for (int i = 0; i < over; i++) {
        int at = f->index[i];
        mp_buf *buf = f->buf[at];
        MPI_Status status = f->status[i];

        f->request[at] = MPI_REQUEST_NULL;
        f->buf[at] = NULL;
        flight_landed(port, buf, &status,
                      failed ? status.MPI_ERROR : MPI_SUCCESS);
    }
}

/* Close the gaps. */
static void flights_pack(mp_flights *f)
{
    int to = 0;

    for (int from = 0; from < f->n; from++) {
        if (f->buf[from] != NULL) {
            f->buf[to] = f->buf[from];
            f->request[to++] = f->request[from];
        }
    }
    f->n = to;
}

unsigned mp_flights_test(wf_port *port)
{
    mp_flights *f = &port->flights;
    int over = 0;
    int code;

    if (f->n == 0) {
        return 0;
    }
    mp_net_lock();
    code = MPI_Testsome(f->n, f->request, &over, f->index, f->status);
    mp_net_unlock();
    if (over == MPI_UNDEFINED || over <= 0) {
        return 0;
    }
    flights_take(port, over, code == MPI_ERR_IN_STATUS);
    flights_pack(f);
    return (unsigned)over;
}

void mp_flights_part(wf_port *port, const mp_peer *peer)
{
    mp_flights *f = &port->flights;

    for (int i = 0; i < f->n; i++) {
        if (f->buf[i] == NULL || f->buf[i]->peer != peer->slot) {
            continue;
        }
        f->buf[i]->peer = NOBODY;
        if (f->buf[i]->use == MP_IN_CHUNK && !port->orphan) {
            mp_net_lock();
            MPI_Cancel(&f->request[i]);
            mp_net_unlock();
        }
    }
}

/* Wait a moment for a request to end; false if it does not. */
static bool request_end(MPI_Request *request)
{
    int over = 0;

    for (unsigned i = 0; i < CANCEL_TESTS && !over; i++) {
        mp_net_lock();
        if (MPI_Test(request, &over, MPI_STATUS_IGNORE) != MPI_SUCCESS) {
            over = 1;
        }
        mp_net_unlock();
    }
    return over != 0;
}

void mp_flights_fini(wf_port *port)
{
    mp_flights *f = &port->flights;

    for (int i = 0; i < f->n; i++) {
        if (port->orphan || request_end(&f->request[i])) {
            wf_free(f->buf[i]);
        } else {
            mp_net_keep(f->request[i], f->buf[i]);
        }
    }
    spares_free(port->spare_frames);
    spares_free(port->spare_chunks);
    wf_free(f->request);
    wf_free(f->status);
    wf_free(f->index);
    wf_free(f->buf);
}

/* --- receives for frames -------------------------------------------------- */

weft_status mp_slots_init(wf_port *port)
{
    uint32_t n = 16 + (port->count < 48 ? port->count : 48);

    port->slot = wf_zalloc(n * sizeof(*port->slot));
    port->slot_request = wf_alloc(n * sizeof(*port->slot_request));
    port->slot_status = wf_alloc(n * sizeof(*port->slot_status));
    port->slot_index = wf_alloc(n * sizeof(*port->slot_index));
    if (port->slot == NULL || port->slot_request == NULL ||
        port->slot_status == NULL || port->slot_index == NULL) {
        return wf_fail_nomem("%u receives of MPI", n);
    }
    for (uint32_t i = 0; i < n; i++) {
        port->slot[i].index = i;
        port->slot[i].data = wf_alloc(port->frame_bytes);
        port->slot_request[i] = MPI_REQUEST_NULL;
        port->slots++;
        if (port->slot[i].data == NULL) {
            return wf_fail_nomem("%u receives of MPI", n);
        }
    }
    return WEFT_OK;
}

/* Called under the lock. Open MPI frees requests that have failed, those that
 * are to be started again too. */
static int slot_start(wf_port *port, mp_slot *slot)
{
    MPI_Request *request = &port->slot_request[slot->index];
    int code = MPI_SUCCESS;

    if (*request == MPI_REQUEST_NULL) {
        code = MPI_Recv_init(slot->data, (int)port->frame_bytes, MPI_BYTE,
                             MPI_ANY_SOURCE, TAG_FRAME, port->comm, request);
    }
    if (code == MPI_SUCCESS) {
        code = MPI_Start(request);
    }
    slot->posted = code == MPI_SUCCESS;
    port->slots_posted += code == MPI_SUCCESS;
    return code;
}

weft_status mp_slots_start(wf_port *port)
{
    int code = MPI_SUCCESS;

    mp_net_lock();
    for (uint32_t i = 0; i < port->slots && code == MPI_SUCCESS; i++) {
        code = slot_start(port, &port->slot[i]);
    }
    mp_net_unlock();
    return code == MPI_SUCCESS
               ? WEFT_OK
               : mp_net_fail(WEFT_ERR_SYSTEM, "a receive of MPI", code);
}

void mp_slot_restart(wf_port *port, mp_slot *slot)
{
    int code;

    if (port->orphan) {
        return;
    }
    mp_net_lock();
    code = slot_start(port, slot);
    mp_net_unlock();
    if (code != MPI_SUCCESS) {
        (void)mp_net_fail(WEFT_ERR_SYSTEM, "MPI_Start", code);
        wf_log(WEFT_LOG_ERROR, "%s", weft_error_detail());
    }
}

/* A receive that is half way through goes on in memory that stays. */
static void slot_end(wf_port *port, mp_slot *slot)
{
    MPI_Request *request = &port->slot_request[slot->index];

    if (port->orphan || *request == MPI_REQUEST_NULL) {
        wf_free(slot->data);
        return;
    }
    mp_net_lock();
    if (slot->posted) {
        MPI_Cancel(request);
    }
    mp_net_unlock();
    if (slot->posted && !request_end(request)) {
        mp_net_keep(*request, slot->data);
        return;
    }
    mp_net_lock();
    MPI_Request_free(request);
    mp_net_unlock();
    wf_free(slot->data);
}

void mp_slots_fini(wf_port *port)
{
    for (uint32_t i = 0; i < port->slots; i++) {
        slot_end(port, &port->slot[i]);
    }
    wf_free(port->slot);
    wf_free(port->slot_request);
    wf_free(port->slot_status);
    wf_free(port->slot_index);
}
