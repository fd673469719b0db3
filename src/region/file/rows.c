/* SPDX-License-Identifier: Apache-2.0 */
#include "region/file/rows.h"

#include <string.h>

#include "base/num.h"
#include "base/status.h"
#include "region/cuda/state.h"

static const wf_device *device_of(const weft_region *region)
{
    return &((const wf_cuda_state *)region->store)->device;
}

weft_status wf_file_rows_enter(const weft_region *region)
{
    return region->place == WEFT_CUDA ? wf_device_enter(device_of(region))
                                      : WEFT_OK;
}

void wf_file_rows_leave(const weft_region *region)
{
    if (region->place == WEFT_CUDA) {
        wf_device_leave(device_of(region));
    }
}

uint64_t wf_file_rows_together(const wf_partition *p, uint64_t row,
                               uint32_t owner)
{
    const wf_stretch *s = wf_partition_stretch(p, row);
    uint64_t in = row - s->row;
    uint64_t here = p->kind == WEFT_PARTITION_ROUND_ROBIN
                        ? p->run - in % p->run
                        : s->first[owner + 1] - in;

    return wf_least(here, wf_least(s->rows - in, p->rows - row));
}

/* Where byte `at` of the stream lies, and how many follow it there. */
static char *find_byte(const wf_file_move *m, uint64_t at, uint64_t *n)
{
    const wf_partition *p = &m->region->part;
    uint64_t row = at / m->width;
    uint64_t column = at % m->width;
    uint32_t owner;
    uint64_t offset = wf_partition_offset(p, row, &owner);

    *n = m->width - column;
    if (m->width == p->pitch) {
        *n = wf_file_rows_together(p, row, owner) * m->width - column;
    }
    return m->region->base + offset + m->skip + column;
}

static weft_status copy_device(const wf_file_move *m, char *row,
                               unsigned char *bytes, size_t n)
{
    const wf_driver *cu = device_of(m->region)->driver;
    int error = m->load ? cu->cuMemcpyHtoD((uintptr_t)row, bytes, n)
                        : cu->cuMemcpyDtoH(bytes, (uintptr_t)row, n);

    return error == WF_CU_OK
               ? WEFT_OK
               : wf_driver_fail(cu, error, "copying %zu bytes of %s", n,
                                m->region->what);
}

static weft_status copy(const wf_file_move *m, char *row, unsigned char *bytes,
                        size_t n)
{
    if (m->region->place == WEFT_CUDA) {
        return copy_device(m, row, bytes, n);
    }
    if (m->load) {
        memcpy(row, bytes, n);
    } else {
        memcpy(bytes, row, n);
    }
    return WEFT_OK;
}

weft_status wf_file_rows_copy(const wf_file_move *m, uint64_t at,
                              unsigned char *bytes, size_t n)
{
    weft_status st = WEFT_OK;

    while (st == WEFT_OK && n > 0) {
        uint64_t there;
        char *row = find_byte(m, at, &there);
        size_t now = (size_t)wf_least(there, n);

        st = copy(m, row, bytes, now);
        at += now;
        bytes += now;
        n -= now;
    }
    return st;
}
