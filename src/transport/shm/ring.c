/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/shm/ring.h"

#include <string.h>

#include "base/status.h"
#include "transport/shm/record.h"

void wf_ring_init(wf_ring *ring, uint32_t lines, uint32_t reader,
                  uint32_t writer)
{
    ring->magic = WF_RING_MAGIC;
    ring->version = WF_RING_VERSION;
    ring->lines = lines;
    ring->reader = reader;
    ring->writer = writer;
}

weft_status wf_ring_check(const wf_ring *ring, uint32_t lines, uint32_t reader,
                          uint32_t writer)
{
    if (ring->magic != WF_RING_MAGIC || ring->version != WF_RING_VERSION) {
        return wf_fail(WEFT_ERR_PROTOCOL,
                       "a message ring has magic %#x and version %u instead of "
                       "%#x and %u; do all ranks use the same weft?",
                       ring->magic, ring->version, WF_RING_MAGIC,
                       WF_RING_VERSION);
    }
    if (ring->lines != lines || ring->reader != reader ||
        ring->writer != writer) {
        return wf_fail(WEFT_ERR_PROTOCOL,
                       "a message ring of %u lines from %u to %u instead of %u "
                       "lines from %u to %u",
                       ring->lines, ring->writer, ring->reader, lines, writer,
                       reader);
    }
    return WEFT_OK;
}

void wf_ring_read(wf_ring *ring, void *data, uint32_t lines,
                  wf_ring_reader *out)
{
    *out = (wf_ring_reader){
        .at = data, .data = data, .ring = ring, .lines = lines};
}

void wf_ring_write(wf_ring *ring, void *data, uint32_t lines,
                   wf_ring_writer *out)
{
    *out = (wf_ring_writer){.data = data, .ring = ring, .lines = lines};
}

void wf_ring_consume(wf_ring_reader *r, uint32_t lines)
{
    unsigned char *at = r->at;

    for (uint32_t i = 0; i < lines; i++, at += WF_RING_LINE) {
        /* Ordered by the release of head in wf_ring_tell. */
        atomic_store_explicit((_Atomic uint64_t *)at, 0, memory_order_relaxed);
    }
    r->head += lines;
    r->at = r->data + (size_t)wf_ring_index(r) * WF_RING_LINE;
}

bool wf_ring_tell(wf_ring_reader *r, const wf_board_rank *writer)
{
    if (r->published == r->head) {
        return false;
    }
    r->published = r->head;
    /* Frees the lines, which are zero again; pairs with the acquire in
     * wf_ring_claim. */
    atomic_store_explicit(&r->ring->head, r->head, memory_order_release);
    /* A writer announces that it waits for room and then checks once more
     * before it sleeps: so one of the two sees the other. */
    wf_board_fence(writer);
    return atomic_load_explicit(&r->ring->blocked, memory_order_relaxed) != 0;
}

/* Are there `need` free lines? Reads the shared head only if its cached copy
 * says no. */
static bool ring_has_room(wf_ring_writer *w, uint32_t need)
{
    if (w->tail - w->head + need <= w->lines) {
        return true;
    }
    w->head = atomic_load_explicit(&w->ring->head, memory_order_acquire);
    if (w->tail - w->head > w->lines) {
        w->broken = true;
        return false;
    }
    return w->tail - w->head + need <= w->lines;
}

static void ring_set_commit(unsigned char *record, uint64_t commit)
{
    /* Publishes the record; pairs with the acquire in wf_ring_poll. */
    atomic_store_explicit((_Atomic uint64_t *)record, commit,
                          memory_order_release);
}

unsigned char *wf_ring_claim(wf_ring_writer *w, size_t payload)
{
    uint32_t need = wf_ring_lines_for(payload);
    uint32_t index = (uint32_t)(w->tail & (w->lines - 1));
    uint32_t skip = index + need > w->lines ? w->lines - index : 0;

    if (w->broken || !ring_has_room(w, skip + need)) {
        return NULL;
    }
    if (skip > 0) {
        ring_set_commit(w->data + (size_t)index * WF_RING_LINE,
                        wf_record_commit(WF_RECORD_SKIP, 0));
        w->tail += skip;
        index = 0;
    }
    return w->data + (size_t)index * WF_RING_LINE;
}

void wf_ring_publish(wf_ring_writer *w, unsigned char *record, uint64_t commit,
                     uint64_t word, size_t payload)
{
    memcpy(record + sizeof(commit), &word, sizeof(word));
    ring_set_commit(record, commit);
    w->tail += wf_ring_lines_for(payload);
}

void wf_ring_block(wf_ring_writer *w, bool blocked)
{
    atomic_store_explicit(&w->ring->blocked, blocked, memory_order_relaxed);
}

void wf_ring_withdraw(wf_ring_writer *w)
{
    atomic_store_explicit(&w->ring->withdrawn, ++w->withdrawn,
                          memory_order_relaxed);
    /* Before whatever is stored into the buffer from here on; pairs with the
     * fence in wf_ring_withdrawn. */
    atomic_thread_fence(memory_order_release);
}
