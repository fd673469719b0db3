/* SPDX-License-Identifier: Apache-2.0 */
/* NumPy arrays in an arena: a data memory handler (NEP 49), which an array
 * keeps as long as it has memory from it.
 *
 * NumPy's headers are not needed: the struct below and the two numbers are part
 * of its binary interface, the same in 1.22 and in 2.x, and weft._shared_arrays
 * finds the table of functions when NumPy is there. */
#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "args.h"

/* PyDataMem_Handler of version 1. */
typedef struct array_handler {
    char name[127];
    uint8_t version;
    void *ctx;
    void *(*malloc)(void *ctx, size_t size);
    void *(*calloc)(void *ctx, size_t nelem, size_t elsize);
    void *(*realloc)(void *ctx, void *ptr, size_t new_size);
    void (*free)(void *ctx, void *ptr, size_t size);
} array_handler;
_Static_assert(sizeof(array_handler) == 128 + 5 * sizeof(void *), "layout");

/* Indices of NumPy's table. */
enum { SET_HANDLER = 304 };

static const char handler_name[] = "mem_handler"; /* as NumPy demands */

/* What NumPy gets; the context of its functions is this object. */
typedef struct shared_handler {
    array_handler table;
    size_t minimum;
    uint64_t world;
} shared_handler;

/* In front of each block in an arena: NumPy does not say how large the one is
 * that it wants to have resized. A line, so that data begins on one. */
typedef struct block_head {
    size_t bytes; /* of data */
    char unused[56];
} block_head;

/* NULL if it is to be ordinary memory. */
static void *shared_malloc(const shared_handler *self, size_t size, bool zero)
{
    block_head *head = NULL;

    if (size >= self->minimum && size <= SIZE_MAX - sizeof(*head)) {
        head = wfp_arena_take(self->world, size + sizeof(*head), zero);
    }
    if (head == NULL) {
        return NULL;
    }
    head->bytes = size;
    return head + 1;
}

static void *handler_malloc(void *ctx, size_t size)
{
    void *memory = shared_malloc(ctx, size, false);

    return memory != NULL ? memory : malloc(size);
}

static void *handler_calloc(void *ctx, size_t nelem, size_t elsize)
{
    size_t size;
    void *memory;

    if (__builtin_mul_overflow(nelem, elsize, &size)) {
        return NULL;
    }
    memory = shared_malloc(ctx, size, true);
    return memory != NULL ? memory : calloc(nelem, elsize);
}

static void handler_free(void *ctx, void *memory, size_t size)
{
    (void)ctx;
    (void)size;
    if (weft_arena_holds(memory)) {
        weft_arena_free((block_head *)memory - 1);
    } else {
        free(memory);
    }
}

static void *handler_realloc(void *ctx, void *memory, size_t size)
{
    const block_head *head = (const block_head *)memory - 1;
    void *other;

    if (!weft_arena_holds(memory)) {
        return realloc(memory, size);
    }
    other = handler_malloc(ctx, size);
    if (other != NULL) {
        memcpy(other, memory, size < head->bytes ? size : head->bytes);
        handler_free(ctx, memory, head->bytes);
    }
    return other;
}

static void handler_end(PyObject *capsule)
{
    PyMem_Free(PyCapsule_GetPointer(capsule, handler_name));
}

static PyObject *array_handler_new(PyObject *module, PyObject *args)
{
    unsigned long long minimum;
    unsigned long long world;
    shared_handler *self;
    PyObject *capsule;

    (void)module;
    if (!PyArg_ParseTuple(args, "KK:array_handler", &minimum, &world)) {
        return NULL;
    }
    self = PyMem_Calloc(1, sizeof(*self));
    if (self == NULL) {
        return PyErr_NoMemory();
    }
    *self = (shared_handler){
        .table = {.name = "weft_arena",
                  .version = 1,
                  .ctx = self,
                  .malloc = handler_malloc,
                  .calloc = handler_calloc,
                  .realloc = handler_realloc,
                  .free = handler_free},
        .minimum = (size_t)minimum,
        .world = world,
    };
    capsule = PyCapsule_New(self, handler_name, handler_end);
    if (capsule == NULL) {
        PyMem_Free(self);
    }
    return capsule;
}

static PyObject *array_handler_set(PyObject *module, PyObject *args)
{
    typedef PyObject *set_function(PyObject * handler);
    PyObject *table;
    PyObject *handler;
    void **functions;
    set_function *set;

    (void)module;
    if (!PyArg_ParseTuple(args, "OO:set_array_handler", &table, &handler)) {
        return NULL;
    }
    functions = PyCapsule_GetPointer(table, NULL);
    if (functions == NULL) {
        return NULL;
    }
    memcpy(&set, &functions[SET_HANDLER], sizeof(set));
    return set(handler);
}

PyMethodDef wfp_numpy_functions[] = {
    {"array_handler", array_handler_new, METH_VARARGS,
     "array_handler($module, minimum, world, /)\n--\n\n"
     "A data memory handler for NumPy that takes `minimum` bytes and more "
     "from\n"
     "the arena of a world; 0 stands for the first one that is open."},
    {"set_array_handler", array_handler_set, METH_VARARGS,
     "set_array_handler($module, table, handler, /)\n--\n\n"
     "Call PyDataMem_SetHandler of NumPy's table of functions; returns the\n"
     "handler that was there before."},
    {NULL, NULL, 0, NULL},
};
