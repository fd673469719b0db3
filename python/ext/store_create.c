/* SPDX-License-Identifier: Apache-2.0 */
/* Making a store; weft._store gives the arguments. */
#include "args.h"
#include "store.h"
#include "update.h"

/* A length for each key; `lengths` is open on success, and if there are any. */
static int create_lengths(PyObject *object, wfp_array *lengths,
                          weft_store_options *options)
{
    lengths->owner = NULL;
    if (object == Py_None) {
        return 0;
    }
    if (wfp_array_open(lengths, object, WFP_READ) < 0) {
        return -1;
    }
    if (lengths->dtype != WEFT_I64 || lengths->count != options->keys) {
        wfp_invalid("value_length has %zu lengths; it must be one number, or "
                    "one for each of the %llu keys",
                    lengths->count, (unsigned long long)options->keys);
        wfp_array_close(lengths);
        return -1;
    }
    options->lengths = lengths->data;
    return 0;
}

static PyObject *create_run(wfp_comm *comm, const weft_store_options *options)
{
    weft_store *store = NULL;
    weft_status status;

    if (wfp_comm_enter(comm) < 0) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = weft_store_create(comm->comm, options, &store);
    Py_END_ALLOW_THREADS
    wfp_comm_leave(comm);
    return status == WEFT_OK ? wfp_store_wrap(comm, store) : wfp_raise(status);
}

static PyObject *store_create(PyObject *module, PyObject *args,
                              PyObject *keywords)
{
    static const char *const names[] = {
        "comm",       "keys",  "length", "lengths", "type",
        "techniques", "rule",  "hashed", "cache",   "max_keys",
        "rounds",     "eager", "seed",   "timeout", NULL};
    weft_store_options options = {.size = sizeof(options)};
    weft_update rule;
    wfp_comm *comm;
    PyObject *number[5];
    PyObject *timeout;
    PyObject *given_lengths;
    PyObject *given_rule;
    const char *type;
    int techniques;
    wfp_array lengths;
    PyObject *made;

    (void)module;
    if (!PyArg_ParseTupleAndKeywords(
            args, keywords, "O&OOOsiOpOOdpOO", (char **)names, wfp_comm_convert,
            &comm, &number[0], &number[1], &given_lengths, &type, &techniques,
            &given_rule, &options.hashed, &number[2], &number[3],
            &options.rounds, &options.eager, &number[4], &timeout) ||
        wfp_args_u64(number[0], "num_keys", &options.keys) < 0 ||
        wfp_args_u64(number[1], "value_length", &options.length) < 0 ||
        wfp_args_u64(number[2], "cache", &options.cache) < 0 ||
        wfp_args_u64(number[3], "max_keys", &options.max_keys) < 0 ||
        wfp_args_u64(number[4], "seed", &options.seed) < 0 ||
        wfp_args_seconds(timeout, "timeout", &options.timeout) < 0 ||
        wfp_args_type(type, &options.type) < 0) {
        return NULL;
    }
    options.techniques = (weft_techniques)techniques;
    if (given_rule != Py_None) {
        if (wfp_update_read_rule(given_rule, &rule) < 0) {
            return NULL;
        }
        options.optimizer = &rule;
    }
    if (create_lengths(given_lengths, &lengths, &options) < 0) {
        return NULL;
    }
    made = create_run(comm, &options);
    wfp_array_close(&lengths);
    return made;
}

PyMethodDef wfp_store_create_functions[] = {
    {"store_create", (PyCFunction)(void (*)(void))store_create,
     METH_VARARGS | METH_KEYWORDS,
     "store_create($module, /, comm, keys, length, lengths, type, techniques, "
     "rule, hashed, cache, max_keys, rounds, eager, seed, timeout)\n--\n\n"
     "weft_store_create as a StoreHandle."},
    {NULL, NULL, 0, NULL},
};
