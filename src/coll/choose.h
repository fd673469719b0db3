/* SPDX-License-Identifier: Apache-2.0 */
/* The chooser: which engine serves which call on a communicator. */
#ifndef WF_COLL_CHOOSE_H
#define WF_COLL_CHOOSE_H

#include "coll/engine.h"

/* An engine, and what it keeps with the communicator. */
typedef struct wf_coll_seat {
    const wf_engine *engine;
    void *state;
    bool used; /* it serves some calls here */
} wf_coll_seat;

/* Who serves the calls of a kind that an offer covers. */
typedef struct wf_coll_row {
    wf_offer offer;
    wf_coll_seat *seat;
} wf_coll_row;

/* What src/coll keeps with a communicator; it does not change. */
typedef struct wf_coll {
    /* Blocking calls of a kind of fewer than so many bytes are for the fast
     * path of the engine by which members meet. That and its state do not
     * depend on the kind: what is read next need not wait for it. */
    weft_status (*quick)(wf_coll_op *op);
    void *quick_state;
    size_t quick_until[WF_CALL_KINDS];
    /* By kind: the first row that covers a call serves it, and some row covers
     * all, of an engine that does not hand on. */
    wf_coll_row row[WF_CALL_KINDS][WF_ENGINES];
    wf_coll_seat seat[WF_ENGINES];
    const wf_coll_seat *memory; /* whose is weft_alloc's */
} wf_coll;

static inline const wf_coll *wf_coll_of(const weft_comm *comm)
{
    return comm->layer[WF_LAYER_COLL];
}

/* The engine by which members meet: it serves all calls without data. */
static inline wf_coll_seat *wf_coll_meets(const wf_coll *coll)
{
    return coll->row[WF_CALL_BARRIER][0].seat;
}

static inline bool wf_coll_covers(const wf_coll_row *row, const wf_call *call)
{
    uint64_t bytes = call->count * wf_dtype_bytes((weft_dtype)call->type);

    return bytes >= row->offer.from && bytes < row->offer.until &&
           (row->offer.types >> call->type & 1) != 0;
}

static inline wf_coll_seat *wf_coll_choose(const wf_coll *coll,
                                           const wf_call *call)
{
    const wf_coll_row *row = coll->row[call->kind];

    while (!wf_coll_covers(row, call)) {
        row++;
    }
    return row->seat;
}

/* Who serves a call that it was handed on. */
static inline wf_coll_seat *wf_coll_choose_else(const wf_coll *coll,
                                                const wf_call *call)
{
    const wf_coll_row *row = coll->row[call->kind];

    while (row->seat->engine->hands_on || !wf_coll_covers(row, call)) {
        row++;
    }
    return row->seat;
}

/* Fill in who serves what. */
weft_status wf_coll_freeze(const weft_comm *comm, wf_coll *coll);

#endif
