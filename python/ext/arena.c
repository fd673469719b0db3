/* SPDX-License-Identifier: Apache-2.0 */
#include "arena.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "args.h"

/* A world, as those know it who allocate without the GIL: none of them may be
 * inside it when it is destroyed, so they hold the lock for reading meanwhile,
 * and who lets go of a world holds it for writing. */
typedef struct open_world {
    struct open_world *next;
    weft_world *world;
    uint64_t number;
} open_world;

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static open_world *first; /* in the order in which they were made */
static uint64_t numbers;
static PyTypeObject *arena_type;

static const char capsule_name[] = "weft._core._arena";

uint64_t wfp_arena_enter(weft_world *world)
{
    open_world *entry = malloc(sizeof(*entry));
    open_world **at = &first;
    uint64_t number;

    if (entry == NULL) {
        return 0;
    }
    pthread_rwlock_wrlock(&lock);
    while (*at != NULL) {
        at = &(*at)->next;
    }
    number = ++numbers;
    *entry = (open_world){.world = world, .number = number};
    *at = entry;
    pthread_rwlock_unlock(&lock);
    return number;
}

void wfp_arena_leave(const weft_world *world)
{
    open_world *entry = NULL;

    pthread_rwlock_wrlock(&lock);
    for (open_world **at = &first; *at != NULL; at = &(*at)->next) {
        if ((*at)->world == world) {
            entry = *at;
            *at = entry->next;
            break;
        }
    }
    pthread_rwlock_unlock(&lock);
    free(entry);
}

/* Allocators go on with ordinary memory, which only costs time. */
static void tell_once(void)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;
    char text[512];

    if (!atomic_flag_test_and_set(&told)) {
        snprintf(text, sizeof(text),
                 "%s; tensors and arrays for which there is no room lie in "
                 "ordinary memory (told once)",
                 weft_error_detail());
        weft_log_write(WEFT_LOG_WARN, text);
    }
}

void *wfp_arena_take(uint64_t world, size_t bytes, bool zero)
{
    const open_world *entry;
    void *memory = NULL;

    pthread_rwlock_rdlock(&lock);
    entry = first;
    while (world != 0 && entry != NULL && entry->number != world) {
        entry = entry->next;
    }
    if (entry != NULL) {
        weft_status (*from)(weft_world *, size_t, void **) =
            zero ? weft_arena_zalloc : weft_arena_alloc;

        if (from(entry->world, bytes, &memory) != WEFT_OK) {
            memory = NULL;
            tell_once();
        }
    }
    pthread_rwlock_unlock(&lock);
    return memory;
}

static wfp_arena_calls calls = {wfp_arena_take};

/* The worlds are the parent's. A thread that is not here any more may have held
 * the lock; what it read is not freed, for the same reason. */
static void forget_in_child(void)
{
    first = NULL;
    lock = (pthread_rwlock_t)PTHREAD_RWLOCK_INITIALIZER;
}

static PyStructSequence_Field arena_fields[] = {
    {"room", "bytes of address space of this rank; 0 if there is no arena"},
    {"in_use", "bytes of blocks, in whole pages"},
    {"kept", "bytes of freed blocks that still have memory"},
    {"held", "of these, bytes that a forked child may be reading"},
    {"blocks", "how many there are"},
    {NULL, NULL},
};

static PyStructSequence_Desc arena_desc = {
    .name = "weft.Arena",
    .doc = "What is in the arena of a rank.",
    .fields = arena_fields,
    .n_in_sequence = 5,
};

PyObject *wfp_arena_describe(const weft_world *world)
{
    weft_arena_info info = {.size = sizeof(info)};
    PyObject *row = PyStructSequence_New(arena_type);
    weft_status status = weft_arena_get(world, &info);

    if (row == NULL || status != WEFT_OK) {
        Py_XDECREF(row);
        return row == NULL ? NULL : wfp_raise(status);
    }
    PyStructSequence_SetItem(row, 0, PyLong_FromUnsignedLongLong(info.room));
    PyStructSequence_SetItem(row, 1, PyLong_FromUnsignedLongLong(info.in_use));
    PyStructSequence_SetItem(row, 2, PyLong_FromUnsignedLongLong(info.kept));
    PyStructSequence_SetItem(row, 3, PyLong_FromUnsignedLongLong(info.held));
    PyStructSequence_SetItem(row, 4, PyLong_FromUnsignedLongLong(info.blocks));
    if (PyErr_Occurred()) {
        Py_CLEAR(row);
    }
    return row;
}

static PyObject *arena_holds(PyObject *module, PyObject *number)
{
    uint64_t address = 0;

    (void)module;
    if (wfp_args_u64(number, "address", &address) < 0) {
        return NULL;
    }
    return PyBool_FromLong(weft_arena_holds((const void *)(uintptr_t)address));
}

PyMethodDef wfp_arena_functions[] = {
    {"arena_holds", arena_holds, METH_O,
     "arena_holds($module, address, /)\n--\n\n"
     "Is this an address in the arena of one of this process's worlds?"},
    {NULL, NULL, 0, NULL},
};

int wfp_arena_setup(PyObject *module)
{
    PyObject *capsule;
    int failed;

    arena_type = PyStructSequence_NewType(&arena_desc);
    if (arena_type == NULL || PyModule_AddType(module, arena_type) < 0) {
        return -1;
    }
    if (pthread_atfork(NULL, NULL, forget_in_child) != 0) {
        PyErr_NoMemory();
        return -1;
    }
    capsule = PyCapsule_New(&calls, capsule_name, NULL);
    if (capsule == NULL) {
        return -1;
    }
    failed = PyModule_AddObjectRef(module, "_arena", capsule);
    Py_DECREF(capsule);
    return failed;
}
