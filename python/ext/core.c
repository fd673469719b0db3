/* SPDX-License-Identifier: Apache-2.0 */
/* weft._core: the C library in Python's words. This file makes the module and
 * holds what belongs to no object. */
#include "core.h"
#include "view.h"

int wfp_type_add(PyObject *module, const char *name, size_t bytes,
                 unsigned flags, PyType_Slot *slots, PyTypeObject **out)
{
    PyType_Spec spec = {
        .name = name,
        .basicsize = (int)bytes,
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION |
                 Py_TPFLAGS_IMMUTABLETYPE | flags,
        .slots = slots,
    };

    *out = (PyTypeObject *)PyType_FromSpec(&spec);
    return *out == NULL ? -1 : PyModule_AddType(module, *out);
}

void wfp_object_free(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);

    if (PyType_IS_GC(type)) {
        PyObject_GC_Del(object);
    } else {
        PyObject_Free(object);
    }
    Py_DECREF(type);
}

PyObject *wfp_tuple_of(const uint64_t *numbers, uint32_t n)
{
    PyObject *tuple = PyTuple_New(n);

    for (uint32_t i = 0; tuple != NULL && i < n; i++) {
        PyObject *number = PyLong_FromUnsignedLongLong(numbers[i]);

        if (number == NULL || PyTuple_SetItem(tuple, i, number) < 0) {
            Py_CLEAR(tuple);
        }
    }
    return tuple;
}

static PyObject *core_version(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyUnicode_FromString(weft_version());
}

static PyObject *core_launcher(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return Py_BuildValue("(sI)", weft_boot_launcher(), weft_boot_rank_hint());
}

static PyObject *core_transports(PyObject *module, PyObject *unused)
{
    PyObject *list = PyList_New(0);
    const char *name;

    (void)module;
    (void)unused;
    for (uint32_t i = 0;
         list != NULL && (name = weft_transport_name(i)) != NULL; i++) {
        PyObject *text = PyUnicode_FromString(name);

        if (text == NULL || PyList_Append(list, text) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(text);
    }
    return list;
}

static PyObject *core_boot_rank(PyObject *module, PyObject *unused)
{
    uint32_t rank;
    uint32_t ranks;
    weft_status status = weft_boot_rank(&rank, &ranks);

    (void)module;
    (void)unused;
    return status != WEFT_OK ? wfp_raise(status)
                             : Py_BuildValue("(II)", rank, ranks);
}

static PyObject *core_settings(PyObject *module, PyObject *unused)
{
    PyObject *list = PyList_New(0);
    weft_setting_info info;

    (void)module;
    (void)unused;
    for (size_t i = 0; list != NULL && weft_setting_get(i, &info) == WEFT_OK;
         i++) {
        PyObject *row = Py_BuildValue("(sssss)", info.name, info.value,
                                      info.source, info.fallback, info.help);

        if (row == NULL || PyList_Append(list, row) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(row);
    }
    return list;
}

static PyObject *number_or_none(uint64_t value)
{
    return value == UINT64_MAX ? Py_NewRef(Py_None)
                               : PyLong_FromUnsignedLongLong(value);
}

static PyObject *core_memory(PyObject *module, PyObject *unused)
{
    weft_memory_info info = {.size = sizeof(info)};

    (void)module;
    (void)unused;
    (void)weft_memory_get(&info); /* it takes what is of this size */
    return Py_BuildValue("(NNN)", number_or_none(info.host_room),
                         number_or_none(info.group_limit),
                         number_or_none(info.group_room));
}

static PyMethodDef core_functions[] = {
    {"version", core_version, METH_NOARGS,
     "version()\n--\n\nThe version of the C library."},
    {"transports", core_transports, METH_NOARGS,
     "transports()\n--\n\n"
     "Names of the transports that the library knows, best first."},
    {"launcher", core_launcher, METH_NOARGS,
     "launcher()\n--\n\n"
     "What started this process ('torchrun', 'openmpi', 'alone', ...), and\n"
     "the rank that it gives this process, 0 if it gives none."},
    {"boot_rank", core_boot_rank, METH_NOARGS,
     "boot_rank()\n--\n\n"
     "(rank, size) as the launcher has put them into the environment."},
    {"settings", core_settings, METH_NOARGS,
     "settings()\n--\n\n"
     "Every setting as (name, value, source, default, help)."},
    {"memory", core_memory, METH_NOARGS,
     "memory()\n--\n\n"
     "Bytes available on the host, the smallest limit of the control groups\n"
     "and the bytes that they leave; None for what has no limit."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef core_module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "weft._core",
    .m_doc = "The C library in Python's words; import weft instead.",
    .m_size = -1,
    .m_methods = core_functions,
};

PyMODINIT_FUNC PyInit__core(void);

PyMODINIT_FUNC PyInit__core(void)
{
    static int (*const setup[])(PyObject *) = {
        wfp_status_setup,  wfp_op_setup,     wfp_lazy_setup,
        wfp_array_setup,   wfp_world_setup,  wfp_comm_setup,
        wfp_request_setup, wfp_memory_setup, wfp_arena_setup,
        wfp_message_setup, wfp_window_setup, wfp_region_setup,
        wfp_store_setup,   wfp_worker_setup,
    };
    static PyMethodDef *const functions[] = {
        wfp_op_functions,
        wfp_world_functions,
        wfp_region_create_functions,
        wfp_region_files_functions,
        wfp_region_share_functions,
        wfp_region_rows_functions,
        wfp_update_functions,
        wfp_store_create_functions,
        wfp_observe_functions,
        wfp_arena_functions,
        wfp_numpy_functions,
        wfp_view_functions,
    };
    PyObject *module = PyModule_Create(&core_module);

    for (size_t i = 0; module != NULL && i < sizeof(setup) / sizeof(setup[0]);
         i++) {
        if (setup[i](module) < 0) {
            Py_CLEAR(module);
        }
    }
    for (size_t i = 0;
         module != NULL && i < sizeof(functions) / sizeof(functions[0]); i++) {
        if (PyModule_AddFunctions(module, functions[i]) < 0) {
            Py_CLEAR(module);
        }
    }
    return module;
}
