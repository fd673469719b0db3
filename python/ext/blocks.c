/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives of Comm with a part for each rank: allgather, gather, scatter,
 * alltoall and reduce_scatter.
 *
 * Where all ranks know the parts, a list or counts on one rank mean a list or
 * counts on all of them, and an array on its own means equal parts. Only the
 * root of gather and scatter knows its parts, so these two always name them. */
#include "call.h"
#include "op.h"

/* `one` is this rank's block, `all` the side with a part for each rank: does
 * it have a place of that length for it, and for the others, if no parts are
 * told apart? */
static int blocks_check(const wfp_side *one, const wfp_side *all, uint32_t rank,
                        uint32_t ranks)
{
    if (wfp_side_same_type(one, all) < 0) {
        return -1;
    }
    if (all->part == NULL &&
        (all->count % ranks != 0 || all->count / ranks != one->count)) {
        return wfp_invalid(
            "%s has %zu elements, but %s has %zu; it should have %zu for "
            "each of %u ranks",
            one->name, one->count, all->name, all->count, one->count, ranks);
    }
    if (all->part != NULL &&
        all->part[rank].n != one->count * wfp_side_unit(one)) {
        return wfp_invalid(
            "%s has %zu elements, but the part of %s for this rank, %u, "
            "has %zu",
            one->name, one->count, all->name, rank,
            all->part[rank].n / wfp_side_unit(all));
    }
    return 0;
}

/* Fill in the call from its sides; `one` is the one that is a single block. */
static void blocks_fill(wfp_call *call, const wfp_side *one)
{
    call->src = call->x.one.owner == NULL ? NULL : call->x.one.data;
    call->dst = call->out.one.owner == NULL ? NULL : call->out.one.data;
    call->n = one->count * wfp_side_unit(one);
    call->type = wfp_side_type(one);
}

/* x, out, counts */
static int allgather_open(wfp_call *call, const wfp_comm *comm,
                          PyObject *const *given, unsigned access)
{
    uint32_t ranks = weft_comm_size(comm->comm);
    uint32_t rank = weft_comm_rank(comm->comm);

    if (wfp_side_open(&call->x, given[0], access) < 0 ||
        wfp_side_open_parts(&call->out, given[1], given[2], ranks,
                            access | WFP_WRITE) < 0 ||
        blocks_check(&call->x, &call->out, rank, ranks) < 0) {
        return -1;
    }
    blocks_fill(call, &call->x);
    call->result = given[1];
    return 0;
}

static weft_status allgather_make(weft_comm *comm, wfp_call *c,
                                  weft_request **out)
{
    const weft_part *part = c->out.part;

    if (part != NULL) {
        return WFP_MAKE(out, weft_allgatherv, weft_iallgatherv, comm, c->src,
                        part, c->type);
    }
    return WFP_MAKE(out, weft_allgather, weft_iallgather, comm, c->src, c->dst,
                    c->n, c->type);
}

const wfp_kind wfp_allgather = {
    .signature = {"allgather", 2, {"x", "out", "counts", NULL}},
    .open = allgather_open,
    .make = allgather_make,
};

/* Open the parts that only the root has, next to `one`, and tell them apart. */
static int root_open(const wfp_side *one, wfp_side *all, PyObject *object,
                     PyObject *counts, const wfp_comm *comm, unsigned access)
{
    uint32_t ranks = weft_comm_size(comm->comm);
    uint32_t rank = weft_comm_rank(comm->comm);

    if (object == NULL || object == Py_None) {
        PyErr_Format(PyExc_TypeError, "rank %u is the root and needs %s", rank,
                     all->name);
        return -1;
    }
    if (wfp_side_open_parts(all, object, counts, ranks, access) < 0 ||
        blocks_check(one, all, rank, ranks) < 0) {
        return -1;
    }
    return wfp_side_divide(all, ranks);
}

/* x, out, root, counts */
static int gather_open(wfp_call *call, const wfp_comm *comm,
                       PyObject *const *given, unsigned access)
{
    if (wfp_args_u32(given[2], "root", &call->root) < 0 ||
        wfp_side_open(&call->x, given[0], access) < 0) {
        return -1;
    }
    if (weft_comm_rank(comm->comm) == call->root) {
        if (root_open(&call->x, &call->out, given[1], given[3], comm,
                      access | WFP_WRITE) < 0) {
            return -1;
        }
        call->result = given[1];
    }
    blocks_fill(call, &call->x);
    return 0;
}

static weft_status gather_make(weft_comm *comm, wfp_call *c, weft_request **out)
{
    return WFP_MAKE(out, weft_gatherv, weft_igatherv, comm, c->src, c->n,
                    c->out.part, c->type, c->root);
}

const wfp_kind wfp_gather = {
    .signature = {"gather", 1, {"x", "out", "root", "counts", NULL}},
    .open = gather_open,
    .make = gather_make,
};

/* x, out, root, counts */
static int scatter_open(wfp_call *call, const wfp_comm *comm,
                        PyObject *const *given, unsigned access)
{
    if (wfp_args_u32(given[2], "root", &call->root) < 0 ||
        wfp_side_open(&call->out, given[1], access | WFP_WRITE) < 0) {
        return -1;
    }
    if (weft_comm_rank(comm->comm) == call->root &&
        root_open(&call->out, &call->x, given[0], given[3], comm, access) < 0) {
        return -1;
    }
    blocks_fill(call, &call->out);
    call->result = given[1];
    return 0;
}

static weft_status scatter_make(weft_comm *comm, wfp_call *c,
                                weft_request **out)
{
    return WFP_MAKE(out, weft_scatterv, weft_iscatterv, comm, c->x.part, c->dst,
                    c->n, c->type, c->root);
}

const wfp_kind wfp_scatter = {
    .signature = {"scatter", 2, {"x", "out", "root", "counts", NULL}},
    .open = scatter_open,
    .make = scatter_make,
};

/* x, out, op, counts */
static int reduce_scatter_open(wfp_call *call, const wfp_comm *comm,
                               PyObject *const *given, unsigned access)
{
    uint32_t ranks = weft_comm_size(comm->comm);
    uint32_t rank = weft_comm_rank(comm->comm);

    if (wfp_op_from(given[2], &call->op) < 0 ||
        wfp_side_open_parts(&call->x, given[0], given[3], ranks, access) < 0 ||
        wfp_side_open(&call->out, given[1], access | WFP_WRITE) < 0 ||
        wfp_side_check_reducible(&call->x) < 0 ||
        blocks_check(&call->out, &call->x, rank, ranks) < 0) {
        return -1;
    }
    blocks_fill(call, &call->out);
    call->result = given[1];
    return 0;
}

static weft_status reduce_scatter_make(weft_comm *comm, wfp_call *c,
                                       weft_request **out)
{
    const weft_part *part = c->x.part;

    if (part != NULL) {
        return WFP_MAKE(out, weft_reduce_scatterv, weft_ireduce_scatterv, comm,
                        part, c->dst, c->type, c->op);
    }
    return WFP_MAKE(out, weft_reduce_scatter, weft_ireduce_scatter, comm,
                    c->src, c->dst, c->n, c->type, c->op);
}

const wfp_kind wfp_reduce_scatter = {
    .signature = {"reduce_scatter", 2, {"x", "out", "op", "counts", NULL}},
    .open = reduce_scatter_open,
    .make = reduce_scatter_make,
};

/* Both sides have parts, or none. */
static int alltoall_match(wfp_call *call, uint32_t ranks)
{
    bool plain = call->x.part == NULL && call->out.part == NULL;

    if (wfp_side_same_type(&call->x, &call->out) < 0) {
        return -1;
    }
    if (plain && call->x.count != call->out.count) {
        return wfp_invalid("x has %zu elements, but out has %zu", call->x.count,
                           call->out.count);
    }
    if (plain && call->x.count % ranks == 0) {
        return 0;
    }
    return wfp_side_divide(&call->x, ranks) < 0
               ? -1
               : wfp_side_divide(&call->out, ranks);
}

/* x, out, counts, out_counts */
static int alltoall_open(wfp_call *call, const wfp_comm *comm,
                         PyObject *const *given, unsigned access)
{
    uint32_t ranks = weft_comm_size(comm->comm);

    if (wfp_side_open_parts(&call->x, given[0], given[2], ranks, access) < 0 ||
        wfp_side_open_parts(&call->out, given[1], given[3], ranks,
                            access | WFP_WRITE) < 0 ||
        alltoall_match(call, ranks) < 0) {
        return -1;
    }
    blocks_fill(call, &call->x);
    call->n /= ranks;
    call->result = given[1];
    return 0;
}

static weft_status alltoall_make(weft_comm *comm, wfp_call *c,
                                 weft_request **out)
{
    const weft_part *src = c->x.part;
    const weft_part *dst = c->out.part;

    if (src != NULL) {
        return WFP_MAKE(out, weft_alltoallv, weft_ialltoallv, comm, src, dst,
                        c->type);
    }
    return WFP_MAKE(out, weft_alltoall, weft_ialltoall, comm, c->src, c->dst,
                    c->n, c->type);
}

const wfp_kind wfp_alltoall = {
    .signature = {"alltoall", 2, {"x", "out", "counts", "out_counts", NULL}},
    .open = alltoall_open,
    .make = alltoall_make,
};
