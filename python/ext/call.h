/* SPDX-License-Identifier: Apache-2.0 */
/* A kind of operation as two methods of Comm: one blocks, the other, with an
 * `i` before its name, gives a Request. What all have in common is here:
 * sorting arguments, giving up the GIL, copying results back. */
#ifndef WFP_CALL_H
#define WFP_CALL_H

#include "args.h"
#include "comm.h"
#include "side.h"

/* A call that is ready to be made. */
typedef struct wfp_call {
    wfp_side x;
    wfp_side out;
    const void *src;
    void *dst;
    size_t n; /* in units, see side.h */
    weft_dtype type;
    weft_op op;
    uint32_t root;
    PyObject *result; /* what the method returns; borrowed */

    /* Of messages: who it goes to and who one comes from, and with which tags;
     * the side it comes into, else NULL, and what came. */
    uint32_t peer;
    uint32_t tag;
    uint32_t source;
    uint32_t source_tag;
    const wfp_side *received;
    weft_message_info info;
} wfp_call;

typedef struct wfp_kind {
    wfp_signature signature; /* of the blocking method */
    /* Open the arguments as `access` says, besides what the operation itself
     * needs, and fill in the call. 0, or -1 with an exception set; the sides
     * are closed for it. */
    int (*open)(wfp_call *call, const wfp_comm *comm, PyObject *const *given,
                unsigned access);
    /* Call the library, by WFP_MAKE. */
    weft_status (*make)(weft_comm *comm, wfp_call *call, weft_request **out);
} wfp_kind;

/* The blocking function of the library if `out` is NULL, else the one that
 * starts the operation, which takes the same arguments and then `out`. */
#define WFP_MAKE(out, block, start, ...)                                       \
    ((out) == NULL ? block(__VA_ARGS__) : start(__VA_ARGS__, out))

/* In collectives.c, blocks.c and messages.c. */
extern const wfp_kind wfp_broadcast, wfp_allreduce, wfp_reduce, wfp_scan,
    wfp_exscan, wfp_allgather, wfp_gather, wfp_scatter, wfp_reduce_scatter,
    wfp_alltoall, wfp_send, wfp_recv, wfp_sendrecv;

static inline void wfp_call_init(wfp_call *call)
{
    wfp_side_init(&call->x, "x");
    wfp_side_init(&call->out, "out");
    call->src = NULL;
    call->dst = NULL;
    call->root = 0;
    call->result = Py_None;
    call->received = NULL;
}

static inline void wfp_call_close(wfp_call *call)
{
    wfp_side_close(&call->x);
    wfp_side_close(&call->out);
}

/* It is over and went well: copy results to where the caller wants them, and
 * return what the method does, or NULL with an exception set. */
PyObject *wfp_call_finish(wfp_call *call);

/* The body of the blocking method, and of the other, which is called `i_name`.
 */
PyObject *wfp_kind_run(const wfp_kind *kind, PyObject *self,
                       PyObject *const *args, Py_ssize_t nargs,
                       PyObject *kwnames);
PyObject *wfp_kind_start(const wfp_kind *kind, const char *i_name,
                         PyObject *self, PyObject *const *args,
                         Py_ssize_t nargs, PyObject *kwnames);

#endif
