/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a region for processes that are none of its ranks: its descriptor
 * out of one, a mapping of it in another. weft._share carries it between. */
#include <fcntl.h>
#include <unistd.h>

#include "args.h"
#include "region.h"

static weft_status share_descriptor(const wfp_hold *hold, int *fd,
                                    uint64_t *offset, uint64_t *bytes)
{
    if (hold->region != NULL) {
        return weft_region_descriptor(hold->region, fd, offset, bytes);
    }
    *fd = fcntl(hold->fd, F_DUPFD_CLOEXEC, 0);
    *offset = hold->offset;
    *bytes = hold->bytes;
    return *fd < 0 ? WEFT_ERR_SYSTEM : WEFT_OK;
}

PyObject *wfp_region_export(PyObject *self, PyObject *unused)
{
    int fd = -1;
    uint64_t offset = 0;
    uint64_t bytes = 0;
    weft_status status =
        share_descriptor(((wfp_region *)self)->hold, &fd, &offset, &bytes);

    (void)unused;
    return status == WEFT_OK
               ? Py_BuildValue("(iKK)", fd, (unsigned long long)offset,
                               (unsigned long long)bytes)
               : wfp_raise(status);
}

/* Which mapping of the hold is it in, and may that be written to? */
static char *share_mapping(const wfp_hold *hold, const void *address,
                           bool *writable)
{
    const wfp_view *view = wfp_hold_view(hold, address);
    weft_region_info info;

    if (hold->region == NULL) {
        *writable = hold->writable;
        return hold->at;
    }
    weft_region_describe(hold->region, &info);
    *writable = view == NULL && !info.read_only;
    return view != NULL ? view->at : weft_region_base(hold->region);
}

PyObject *wfp_region_offset_of(PyObject *self, PyObject *number)
{
    const wfp_hold *hold = ((wfp_region *)self)->hold;
    const char *address = PyLong_AsVoidPtr(number);
    bool writable = false;
    const char *base;

    if (address == NULL && PyErr_Occurred()) {
        return NULL;
    }
    base = share_mapping(hold, address, &writable);
    return Py_BuildValue("(KN)", (unsigned long long)(address - base),
                         PyBool_FromLong(writable));
}

static PyObject *share_attach(PyObject *module, PyObject *args)
{
    unsigned long long offset;
    Py_ssize_t bytes;
    int fd;
    int writable;
    int own;
    wfp_hold *hold;

    (void)module;
    if (!PyArg_ParseTuple(args, "iKnp", &fd, &offset, &bytes, &writable)) {
        return NULL;
    }
    if (bytes <= 0) {
        return wfp_fail(WEFT_ERR_INVALID, "the memory to attach is empty");
    }
    own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (own < 0) {
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    hold = wfp_hold_attach(own, offset, (size_t)bytes, writable != 0);
    return hold == NULL ? NULL : wfp_region_wrap(hold);
}

PyMethodDef wfp_region_share_functions[] = {
    {"region_attach", share_attach, METH_VARARGS,
     "region_attach($module, fd, offset, bytes, writable, /)\n--\n\n"
     "A RegionHandle on memory that another process exported."},
    {NULL, NULL, 0, NULL},
};
