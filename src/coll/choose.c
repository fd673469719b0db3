/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/choose.h"

#include <limits.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/status.h"
#include "coll/coll.h"
#include "comm/ids.h"
#include "comm/ports.h"

/* All engines, NULL at the end; src/weft.c lists them. */
static const wf_engine *const *engines_of(const weft_comm *comm)
{
    return comm->world->parts->layers[WF_LAYER_COLL].given;
}

/* --- the table ------------------------------------------------------------ */

static bool covers_all(const wf_offer *o)
{
    return o->from == 0 && o->until == UINT64_MAX && o->types == WF_ALL_TYPES;
}

/* Does no call come to the rows behind this one? */
static bool is_last(const wf_coll_row *row)
{
    return covers_all(&row->offer) && !row->seat->engine->hands_on;
}

/* Fill in the rows of a kind: the engines that offer it, best first, up to the
 * first one that serves all calls. */
static weft_status choose_rows(const weft_comm *comm, wf_call_kind kind,
                               wf_coll *coll, wf_coll_row row[WF_ENGINES])
{
    uint32_t n = 0;
    uint32_t last = 0;

    for (uint32_t i = 0; i < WF_ENGINES && coll->seat[i].engine != NULL; i++) {
        const wf_engine *engine = coll->seat[i].engine;
        wf_coll_row r = {engine->offer(comm, kind), &coll->seat[i]};
        uint32_t at = n;

        if (r.offer.score == 0 ||
            !(wf_call_is((uint8_t)kind, WF_HAS_DATA) || covers_all(&r.offer))) {
            continue;
        }
        if (strcmp(engine->name, comm->world->settings.engine) == 0) {
            r.offer.score = INT_MAX;
        }
        for (; at > 0 && row[at - 1].offer.score < r.offer.score; at--) {
            row[at] = row[at - 1];
        }
        row[at] = r;
        n++;
    }
    while (last < n && !is_last(&row[last])) {
        row[last++].seat->used = true;
    }
    if (last == n) {
        return wf_fail(WEFT_ERR_UNSUPPORTED,
                       "no engine serves all calls of %s on %u ranks",
                       wf_call_name((uint8_t)kind), comm->size);
    }
    row[last].seat->used = true;
    return WEFT_OK;
}

/* A pure function of what all members know, so they choose alike without
 * communication. */
weft_status wf_coll_freeze(const weft_comm *comm, wf_coll *coll)
{
    const wf_engine *const *engine = engines_of(comm);
    wf_coll_row memory[WF_ENGINES] = {{.seat = NULL}};
    weft_status st;

    for (uint32_t i = 0; i < WF_ENGINES && engine[i] != NULL; i++) {
        coll->seat[i] = (wf_coll_seat){.engine = engine[i]};
    }
    st = choose_rows(comm, WF_CALL_ALLOC, coll, memory);
    if (st == WEFT_OK) {
        coll->memory = memory[0].seat;
    }
    for (unsigned k = 0; k < WF_CALL_KINDS && st == WEFT_OK; k++) {
        /* All kinds without data synchronize through the same engine. */
        wf_call_kind kind = wf_call_is((uint8_t)k, WF_HAS_DATA)
                                ? (wf_call_kind)k
                                : WF_CALL_BARRIER;

        st = choose_rows(comm, kind, coll, coll->row[k]);
    }
    return st;
}

/* The size up to which calls of a kind, with any type, use the engine that
 * synchronizes members. Ranks see different sizes of a v-form, so there all
 * sizes must. */
static size_t quick_until(const wf_coll *coll, uint8_t kind)
{
    const wf_coll_row *row = coll->row[kind];
    const wf_coll_seat *meets = wf_coll_meets(coll);
    bool same_size = !wf_call_is(kind, WF_ALL_LENGTHS | WF_OWN_LENGTHS);

    if (meets->engine->quick == NULL || row->seat != meets ||
        !(covers_all(&row->offer) || (same_size && row->offer.from == 0 &&
                                      row->offer.types == WF_ALL_TYPES))) {
        return 0;
    }
    return row->offer.until < meets->engine->quick_until
               ? row->offer.until
               : meets->engine->quick_until;
}

/* --- with each communicator ----------------------------------------------- */

static size_t area_of(const weft_comm *comm, const wf_coll_seat *seat)
{
    return seat->used && seat->engine->area != NULL
               ? wf_round_up(seat->engine->area(comm), WF_COMM_PAGE)
               : 0;
}

static size_t coll_area(const weft_comm *comm)
{
    wf_coll coll = {.memory = NULL};
    size_t bytes = 0;

    if (wf_coll_freeze(comm, &coll) == WEFT_OK) {
        for (uint32_t i = 0; i < WF_ENGINES; i++) {
            bytes += area_of(comm, &coll.seat[i]);
        }
    }
    return bytes;
}

/* Check the settings of all engines, also of those that are not used here, so
 * that a wrong name is found before a job first runs on several nodes. */
static weft_status check_settings(const weft_comm *comm)
{
    const wf_settings *settings = &comm->world->settings;
    bool known = strcmp(settings->engine, "auto") == 0;
    char names[200] = "auto";
    weft_status st = WEFT_OK;

    for (const wf_engine *const *e = engines_of(comm);
         *e != NULL && st == WEFT_OK; e++) {
        known = known || strcmp((*e)->name, settings->engine) == 0;
        wf_add_word(names, sizeof(names), (*e)->name);
        st = (*e)->check != NULL ? (*e)->check(settings) : WEFT_OK;
    }
    return known ? st
                 : wf_fail(WEFT_ERR_INVALID,
                           "setting WEFT_ENGINE: '%s' is not an engine (%s)",
                           settings->engine, names);
}

static weft_status attach_engines(weft_comm *comm, wf_coll *coll,
                                  unsigned char *area)
{
    weft_status st = WEFT_OK;

    for (uint32_t i = 0; i < WF_ENGINES && st == WEFT_OK; i++) {
        wf_coll_seat *seat = &coll->seat[i];

        if (seat->used && seat->engine->attach != NULL) {
            st = seat->engine->attach(comm, area, &seat->state);
        }
        if (area != NULL) {
            area += area_of(comm, seat);
        }
    }
    return st;
}

static void coll_detach(weft_comm *comm, void *state)
{
    wf_coll *coll = state;

    for (uint32_t i = 0; i < WF_ENGINES; i++) {
        if (coll->seat[i].state != NULL) {
            coll->seat[i].engine->detach(comm, coll->seat[i].state);
        }
    }
    wf_free(coll);
}

/* Log the choice, on one rank. */
static void tell(const weft_comm *comm, const wf_coll *coll)
{
    const wf_coll_seat *meets = wf_coll_meets(coll);

    wf_log(WEFT_LOG_INFO,
           "communicator %u of %u ranks on %s: collectives by %s (%s)",
           comm->id, comm->size, comm->one_node ? "one node" : "several nodes",
           meets->engine->name, meets->engine->what);
    for (unsigned k = 0; k < WF_CALL_KINDS; k++) {
        const wf_coll_row *row = coll->row[k];

        do {
            if (row->seat != meets) {
                wf_log(WEFT_LOG_INFO,
                       "communicator %u: %s%s, %llu to %llu bytes, by %s (%s)",
                       comm->id, wf_call_name((uint8_t)k),
                       row->offer.types == WF_ALL_TYPES ? "" : " of some types",
                       (unsigned long long)row->offer.from,
                       (unsigned long long)row->offer.until - 1,
                       row->seat->engine->name, row->seat->engine->what);
            }
        } while (!is_last(row++));
    }
}

static weft_status coll_attach(weft_comm *comm, void *area, void **state)
{
    wf_coll *coll = wf_zalloc(sizeof(*coll));
    weft_status st;

    if (coll == NULL) {
        return wf_fail_nomem("a communicator's engines");
    }
    st = check_settings(comm);
    if (st == WEFT_OK) {
        st = wf_coll_freeze(comm, coll);
    }
    if (st == WEFT_OK) {
        st = attach_engines(comm, coll, area);
    }
    if (st != WEFT_OK) {
        coll_detach(comm, coll);
        return st;
    }
    coll->quick = wf_coll_meets(coll)->engine->quick;
    coll->quick_state = wf_coll_meets(coll)->state;
    for (unsigned k = 0; k < WF_CALL_KINDS; k++) {
        coll->quick_until[k] = quick_until(coll, (uint8_t)k);
    }
    if (comm->rank == 0) {
        tell(comm, coll);
    }
    /* Words of other members may come from here on, see on_word. */
    pthread_mutex_lock(&comm->world->drive);
    *state = coll;
    pthread_mutex_unlock(&comm->world->drive);
    return WEFT_OK;
}

/* --- what engines say to each other --------------------------------------- */

enum { AM_WORD = WF_LAYER_MESSAGE(WF_LAYER_COLL, 0) };

typedef struct envelope {
    uint32_t comm; /* its id */
    uint32_t seat;
    wf_coll_word word;
} envelope;

weft_status wf_coll_say(weft_comm *comm, const wf_engine *engine, uint32_t to,
                        const wf_coll_word *word, const void *payload, size_t n)
{
    const wf_coll *coll = wf_coll_of(comm);
    envelope e = {.comm = comm->id, .word = *word};

    while (coll->seat[e.seat].engine != engine) {
        e.seat++;
    }
    return wf_ports_am(comm->world, comm->member[to], AM_WORD, &e, sizeof(e),
                       payload, n);
}

/* The member that is this rank of the job; the size if there is none. */
static uint32_t member_of(const weft_comm *comm, uint32_t rank)
{
    uint32_t m = 0;

    while (m < comm->size && comm->member[m] != rank) {
        m++;
    }
    return m;
}

static void on_word(void *ctx, uint32_t from, const void *header,
                    size_t header_bytes, const void *payload, size_t n)
{
    weft_world *world = ctx;
    const wf_coll_seat *seat;
    weft_comm *comm;
    uint32_t member;
    envelope e;

    if (header_bytes != sizeof(e)) {
        wf_log(WEFT_LOG_ERROR, "rank %u sent a malformed word; dropped", from);
        return;
    }
    memcpy(&e, header, sizeof(e));
    comm = wf_ids_find(world, e.comm);
    member = comm != NULL ? member_of(comm, from) : 0;
    if (comm == NULL || wf_coll_of(comm) == NULL || member == comm->size ||
        e.seat >= WF_ENGINES) {
        return;
    }
    seat = &wf_coll_of(comm)->seat[e.seat];
    if (seat->used && seat->state != NULL && seat->engine->hear != NULL) {
        seat->engine->hear(comm, seat->state, member, &e.word, payload, n);
    }
}

const wf_layer wf_coll_layer = {
    .name = "coll",
    .handler = {on_word},
    .area = coll_area,
    .attach = coll_attach,
    .detach = coll_detach,
};

weft_status wf_coll_mismatch(const wf_coll_op *op, uint32_t member,
                             const wf_call *theirs)
{
    char ours_text[160];
    char theirs_text[160];

    wf_call_text(&op->op.call, ours_text, sizeof(ours_text));
    wf_call_text(theirs, theirs_text, sizeof(theirs_text));
    return wf_fail(WEFT_ERR_MISMATCH,
                   "operation number %u on communicator %u: rank %u called %s, "
                   "but rank %u called %s",
                   op->op.sequence, op->op.comm->id, op->op.comm->rank,
                   ours_text, member, theirs_text);
}

weft_status wf_coll_uneven(const wf_coll_op *op, uint32_t from, uint64_t sent,
                           uint32_t to, uint64_t expected)
{
    return wf_fail(WEFT_ERR_MISMATCH,
                   "operation number %u on communicator %u, %s: rank %u sends "
                   "%llu bytes to rank %u, which expects %llu",
                   op->op.sequence, op->op.comm->id,
                   wf_call_name(op->op.call.kind), from,
                   (unsigned long long)sent, to, (unsigned long long)expected);
}
