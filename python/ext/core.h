/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of weft._core share.
 *
 * The module is written against the limited API of Python 3.11 and knows
 * neither torch nor NumPy at build time. It lives in one interpreter, so its
 * few objects (types, exceptions, interned names) are plain statics. */
#ifndef WFP_CORE_H
#define WFP_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <weft/weft.h>

/* A method that takes its arguments as an array, with keywords. */
#define WFP_METHOD(name, function, doc)                                        \
    {                                                                          \
        name, (PyCFunction)(void (*)(void))(function),                         \
            METH_FASTCALL | METH_KEYWORDS, doc                                 \
    }

/* A slot of a type that holds a function; the slot's own type is void *, which
 * plain C keeps apart from functions. */
#define WFP_SLOT(slot, function)                                               \
    {                                                                          \
        slot, __extension__(void *)(function)                                  \
    }

/* Raise the exception of `status` with the detail the library recorded on this
 * thread, unless one is raised already. Returns NULL. */
PyObject *wfp_raise(weft_status status);

/* The same with a text of our own, formatted by PyErr_FormatV. */
PyObject *wfp_fail(weft_status status, const char *format, ...);

/* The same for WEFT_ERR_INVALID; returns -1. */
int wfp_invalid(const char *format, ...);

/* A tuple of `n` numbers; a new reference, or NULL with an exception set. */
PyObject *wfp_tuple_of(const uint64_t *numbers, uint32_t n);

/* Each file adds its types and functions to the module: 0, or -1 with an
 * exception set. */
int wfp_status_setup(PyObject *module);
int wfp_op_setup(PyObject *module);
int wfp_lazy_setup(PyObject *module);
int wfp_array_setup(PyObject *module);
int wfp_world_setup(PyObject *module);
int wfp_comm_setup(PyObject *module);
int wfp_request_setup(PyObject *module);
int wfp_memory_setup(PyObject *module);
int wfp_arena_setup(PyObject *module);
int wfp_message_setup(PyObject *module);
int wfp_window_setup(PyObject *module);
int wfp_region_setup(PyObject *module);
int wfp_store_setup(PyObject *module);
int wfp_worker_setup(PyObject *module);

/* The functions that files add to the module. */
extern PyMethodDef wfp_op_functions[], wfp_world_functions[],
    wfp_region_create_functions[], wfp_region_files_functions[],
    wfp_region_share_functions[], wfp_region_rows_functions[],
    wfp_update_functions[], wfp_store_create_functions[],
    wfp_observe_functions[], wfp_arena_functions[], wfp_numpy_functions[];

/* Make a type, of which only this module makes objects, of `bytes` each, and
 * add it to the module. `flags` is Py_TPFLAGS_HAVE_GC, or 0. 0, or -1 with an
 * exception set. */
int wfp_type_add(PyObject *module, const char *name, size_t bytes,
                 unsigned flags, PyType_Slot *slots, PyTypeObject **out);

/* The end of a tp_dealloc: free the object, and let go of its type. */
void wfp_object_free(PyObject *object);

#endif
