/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/choose.h"

#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/status.h"
#include "coll/coll.h"
#include "coll/message/table.h"

const wf_engine *const wf_engines[] = {&wf_engine_alone, &wf_engine_shm,
                                       &wf_engine_message, NULL};

const wf_engine *wf_coll_choose(const weft_comm *comm)
{
    const char *wanted = comm->world->settings.engine;
    const wf_engine *best = NULL;
    int best_score = 0;

    for (size_t i = 0; wf_engines[i] != NULL; i++) {
        int score = wf_engines[i]->score(comm);

        if (score > 0 && strcmp(wf_engines[i]->name, wanted) == 0) {
            return wf_engines[i];
        }
        if (score > best_score) {
            best_score = score;
            best = wf_engines[i];
        }
    }
    return best;
}

static size_t coll_area(const weft_comm *comm)
{
    const wf_engine *engine = wf_coll_choose(comm);

    return engine->area != NULL ? engine->area(comm) : 0;
}

static weft_status check_engine_name(const char *name)
{
    bool known = strcmp(name, "auto") == 0;

    for (size_t i = 0; wf_engines[i] != NULL; i++) {
        known = known || strcmp(wf_engines[i]->name, name) == 0;
    }
    return known ? WEFT_OK
                 : wf_fail(WEFT_ERR_INVALID,
                           "setting WEFT_ENGINE: there is no engine '%s' "
                           "(auto, shm, message)",
                           name);
}

/* Also where the message engine is not used: a wrong name is to be seen at the
 * start, not when ranks first come to be on several nodes. */
static weft_status check_names(const wf_settings *settings)
{
    wf_algorithm unused[WF_CALL_KINDS];
    weft_status st = check_engine_name(settings->engine);

    return st == WEFT_OK ? wf_algorithms_parse(settings->algorithm, unused)
                         : st;
}

static weft_status coll_attach(weft_comm *comm, void *area, void **state)
{
    wf_coll *coll = wf_zalloc(sizeof(*coll));
    weft_status st = WEFT_OK;

    if (coll == NULL) {
        return wf_fail(WEFT_ERR_NOMEM, "a communicator's engine");
    }
    st = check_names(&comm->world->settings);
    if (st != WEFT_OK) {
        wf_free(coll);
        return st;
    }
    coll->engine = wf_coll_choose(comm);
    if (coll->engine->attach != NULL) {
        st = coll->engine->attach(comm, area, &coll->state);
    }
    if (st != WEFT_OK) {
        wf_free(coll);
        return st;
    }
    if (coll->engine->quick != NULL) {
        coll->has_quick = true;
        coll->quick_bytes = coll->engine->quick_bytes(comm, coll->state);
    }
    *state = coll;
    if (comm->rank == 0) {
        wf_log(WEFT_LOG_INFO,
               "communicator %u of %u ranks on %s: collectives by %s (%s)",
               comm->id, comm->size,
               comm->one_node ? "one node" : "several nodes",
               coll->engine->name, coll->engine->what);
    }
    return WEFT_OK;
}

static void coll_detach(weft_comm *comm, void *state)
{
    wf_coll *coll = state;

    if (coll->engine->detach != NULL) {
        coll->engine->detach(comm, coll->state);
    }
    wf_free(coll);
}

const wf_layer wf_coll_layer = {
    .name = "coll",
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
