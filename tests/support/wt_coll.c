/* SPDX-License-Identifier: Apache-2.0 */
/* The table of collectives: what they are like and how each is called. */
#include "wt_coll.h"

#include <stdio.h>

typedef weft_status make_call(wt_call *k, weft_request **out);

/* What a rank passes for what nobody may look at. */
static void *nowhere(const wt_call *k)
{
    return k->what.seed % 2 == 0 ? NULL : (void *)(uintptr_t)16;
}

static const void *src_of(const wt_call *k)
{
    return k->srcs > 0 ? k->src[0].at : nowhere(k);
}

static void *dst_of(const wt_call *k)
{
    return k->dsts > 0 ? k->dst[0].at : nowhere(k);
}

static const weft_part *src_parts(const wt_call *k)
{
    return k->srcs > 0 ? k->src : nowhere(k);
}

static const weft_part *dst_parts(const wt_call *k)
{
    return k->dsts > 0 ? k->dst : nowhere(k);
}

/* --- one function for each; with `out` it is the i-form ------------------ */

static weft_status barrier(wt_call *k, weft_request **out)
{
    return out == NULL ? weft_barrier(k->comm) : weft_ibarrier(k->comm, out);
}

static weft_status broadcast(wt_call *k, weft_request **out)
{
    const wt_coll *c = &k->what;

    return out == NULL
               ? weft_broadcast(k->comm, dst_of(k), k->n, c->type, c->root)
               : weft_ibroadcast(k->comm, dst_of(k), k->n, c->type, c->root,
                                 out);
}

static weft_status allreduce(wt_call *k, weft_request **out)
{
    const wt_coll *c = &k->what;

    return out == NULL ? weft_allreduce(k->comm, src_of(k), dst_of(k), k->n,
                                        c->type, c->op)
                       : weft_iallreduce(k->comm, src_of(k), dst_of(k), k->n,
                                         c->type, c->op, out);
}

static weft_status reduce(wt_call *k, weft_request **out)
{
    const wt_coll *c = &k->what;

    return out == NULL ? weft_reduce(k->comm, src_of(k), dst_of(k), k->n,
                                     c->type, c->op, c->root)
                       : weft_ireduce(k->comm, src_of(k), dst_of(k), k->n,
                                      c->type, c->op, c->root, out);
}

static weft_status scan(wt_call *k, weft_request **out)
{
    const wt_coll *c = &k->what;

    return out == NULL
               ? weft_scan(k->comm, src_of(k), dst_of(k), k->n, c->type, c->op)
               : weft_iscan(k->comm, src_of(k), dst_of(k), k->n, c->type, c->op,
                            out);
}

static weft_status exscan(wt_call *k, weft_request **out)
{
    const wt_coll *c = &k->what;

    return out == NULL ? weft_exscan(k->comm, src_of(k), dst_of(k), k->n,
                                     c->type, c->op)
                       : weft_iexscan(k->comm, src_of(k), dst_of(k), k->n,
                                      c->type, c->op, out);
}

static weft_status reduce_scatter(wt_call *k, weft_request **out)
{
    const wt_coll *c = &k->what;

    return out == NULL ? weft_reduce_scatter(k->comm, src_of(k), dst_of(k),
                                             k->n, c->type, c->op)
                       : weft_ireduce_scatter(k->comm, src_of(k), dst_of(k),
                                              k->n, c->type, c->op, out);
}

static weft_status reduce_scatterv(wt_call *k, weft_request **out)
{
    const wt_coll *c = &k->what;

    return out == NULL ? weft_reduce_scatterv(k->comm, src_parts(k), dst_of(k),
                                              c->type, c->op)
                       : weft_ireduce_scatterv(k->comm, src_parts(k), dst_of(k),
                                               c->type, c->op, out);
}

static weft_status allgather(wt_call *k, weft_request **out)
{
    const wt_coll *c = &k->what;

    return out == NULL
               ? weft_allgather(k->comm, src_of(k), dst_of(k), k->n, c->type)
               : weft_iallgather(k->comm, src_of(k), dst_of(k), k->n, c->type,
                                 out);
}

static weft_status allgatherv(wt_call *k, weft_request **out)
{
    const wt_coll *c = &k->what;

    return out == NULL
               ? weft_allgatherv(k->comm, src_of(k), dst_parts(k), c->type)
               : weft_iallgatherv(k->comm, src_of(k), dst_parts(k), c->type,
                                  out);
}

static weft_status gather(wt_call *k, weft_request **out)
{
    const wt_coll *c = &k->what;

    return out == NULL ? weft_gather(k->comm, src_of(k), dst_of(k), k->n,
                                     c->type, c->root)
                       : weft_igather(k->comm, src_of(k), dst_of(k), k->n,
                                      c->type, c->root, out);
}

static weft_status gatherv(wt_call *k, weft_request **out)
{
    const wt_coll *c = &k->what;

    return out == NULL ? weft_gatherv(k->comm, src_of(k), k->n, dst_parts(k),
                                      c->type, c->root)
                       : weft_igatherv(k->comm, src_of(k), k->n, dst_parts(k),
                                       c->type, c->root, out);
}

static weft_status scatter(wt_call *k, weft_request **out)
{
    const wt_coll *c = &k->what;

    return out == NULL ? weft_scatter(k->comm, src_of(k), dst_of(k), k->n,
                                      c->type, c->root)
                       : weft_iscatter(k->comm, src_of(k), dst_of(k), k->n,
                                       c->type, c->root, out);
}

static weft_status scatterv(wt_call *k, weft_request **out)
{
    const wt_coll *c = &k->what;

    return out == NULL ? weft_scatterv(k->comm, src_parts(k), dst_of(k), k->n,
                                       c->type, c->root)
                       : weft_iscatterv(k->comm, src_parts(k), dst_of(k), k->n,
                                        c->type, c->root, out);
}

static weft_status alltoall(wt_call *k, weft_request **out)
{
    const wt_coll *c = &k->what;

    return out == NULL
               ? weft_alltoall(k->comm, src_of(k), dst_of(k), k->n, c->type)
               : weft_ialltoall(k->comm, src_of(k), dst_of(k), k->n, c->type,
                                out);
}

static weft_status alltoallv(wt_call *k, weft_request **out)
{
    const wt_coll *c = &k->what;

    return out == NULL
               ? weft_alltoallv(k->comm, src_parts(k), dst_parts(k), c->type)
               : weft_ialltoallv(k->comm, src_parts(k), dst_parts(k), c->type,
                                 out);
}

/* --- the table ----------------------------------------------------------- */

enum { REDUCES = 1, ROOT = 2, PARTS = 4, SAME = 8 };

static const struct {
    const char *name;
    make_call *call;
    unsigned is;
} table[WT_COLLS] = {
    [WT_BARRIER] = {"barrier", barrier, SAME},
    [WT_BROADCAST] = {"broadcast", broadcast, ROOT | SAME},
    [WT_ALLREDUCE] = {"allreduce", allreduce, REDUCES | SAME},
    [WT_REDUCE] = {"reduce", reduce, REDUCES | ROOT},
    [WT_SCAN] = {"scan", scan, REDUCES},
    [WT_EXSCAN] = {"exscan", exscan, REDUCES},
    [WT_REDUCE_SCATTER] = {"reduce_scatter", reduce_scatter, REDUCES},
    [WT_REDUCE_SCATTERV] = {"reduce_scatterv", reduce_scatterv,
                            REDUCES | PARTS},
    [WT_ALLGATHER] = {"allgather", allgather, SAME},
    [WT_ALLGATHERV] = {"allgatherv", allgatherv, PARTS | SAME},
    [WT_GATHER] = {"gather", gather, ROOT},
    [WT_GATHERV] = {"gatherv", gatherv, ROOT | PARTS},
    [WT_SCATTER] = {"scatter", scatter, ROOT},
    [WT_SCATTERV] = {"scatterv", scatterv, ROOT | PARTS},
    [WT_ALLTOALL] = {"alltoall", alltoall, 0},
    [WT_ALLTOALLV] = {"alltoallv", alltoallv, PARTS},
};

const char *wt_coll_name(wt_coll_kind kind)
{
    return table[kind].name;
}

bool wt_coll_reduces(wt_coll_kind kind)
{
    return (table[kind].is & REDUCES) != 0;
}

bool wt_coll_has_root(wt_coll_kind kind)
{
    return (table[kind].is & ROOT) != 0;
}

bool wt_coll_has_parts(wt_coll_kind kind)
{
    return (table[kind].is & PARTS) != 0;
}

bool wt_coll_same(wt_coll_kind kind)
{
    return (table[kind].is & SAME) != 0;
}

bool wt_coll_takes(wt_coll_kind kind, weft_op_kind op)
{
    bool scans = kind == WT_SCAN || kind == WT_EXSCAN;

    return wt_coll_reduces(kind) && !(scans && op == WEFT_OP_AVG);
}

weft_status wt_call_run(wt_call *call)
{
    return table[call->what.kind].call(call, NULL);
}

weft_status wt_call_start(wt_call *call, weft_request **out)
{
    return table[call->what.kind].call(call, out);
}

weft_status wt_call_run_request(wt_call *call)
{
    weft_request *request = NULL;
    weft_status st = wt_call_start(call, &request);

    if (st == WEFT_OK) {
        st = weft_request_wait(request, 0);
        weft_request_release(request);
    }
    return st;
}

void wt_coll_text(const wt_coll *c, char *text, size_t room)
{
    static const char *const lengths[] = {"ragged", "even", "lone", "lone row"};
    static const char *const placings[] = {"packed", "gaps", "reversed"};
    char root[32] = "";
    char parts[48] = "";

    if (wt_coll_has_root(c->kind)) {
        snprintf(root, sizeof(root), ", root %u", c->root);
    }
    if (wt_coll_has_parts(c->kind)) {
        snprintf(parts, sizeof(parts), ", %s, %s", lengths[c->lengths],
                 placings[c->placing]);
    }
    snprintf(text, room,
             "%s of %zu %s%s%s%s%s%s, shift %u, shared src %#x dst %#x, "
             "seed %llu",
             table[c->kind].name, c->n, weft_dtype_name(c->type),
             wt_coll_reduces(c->kind) ? ", " : "",
             wt_coll_reduces(c->kind) ? weft_op_name(c->op.kind) : "", root,
             parts, c->in_place ? ", in place" : "", c->shift, c->shared_src,
             c->shared_dst, (unsigned long long)c->seed);
}

void wt_coll_carry_out(weft_comm *comm, const wt_coll *what,
                       const wt_pool *pool, bool blocking)
{
    wt_call call;
    char text[400];
    weft_status st;

    wt_call_init(&call, comm, what, pool);
    st = blocking ? wt_call_run(&call) : wt_call_run_request(&call);
    if (st != WEFT_OK) {
        wt_coll_text(what, text, sizeof(text));
        WT_FAIL("%s: %s: %s", text, weft_status_name(st), weft_error_detail());
    }
    wt_call_check(&call);
    wt_call_fini(&call);
}
