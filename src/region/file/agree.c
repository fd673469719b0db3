/* SPDX-License-Identifier: Apache-2.0 */
#include "region/file/agree.h"

#include <inttypes.h>
#include <string.h>

#include "base/options.h"
#include "base/status.h"
#include "base/time.h"
#include <weft/coll.h>

weft_status wf_file_agree(weft_comm *comm, weft_status own)
{
    return wf_region_verdict(NULL, comm, own, wf_now_ns() + comm->timeout_ns);
}

weft_status wf_file_tell(weft_comm *comm, weft_status own, void *data, size_t n)
{
    weft_status st = wf_file_agree(comm, own);

    return st == WEFT_OK ? weft_broadcast(comm, data, n, WEFT_U8, 0) : st;
}

static weft_status check_arguments(const weft_region *region,
                                   const weft_comm *comm, const char *path,
                                   const weft_file_options *options,
                                   weft_file_options *out)
{
    if (path == NULL || *path == '\0') {
        return wf_fail(WEFT_ERR_INVALID, "path is empty");
    }
    if (comm->size != region->ranks || comm->rank != region->rank) {
        return wf_fail(WEFT_ERR_INVALID,
                       "rank %" PRIu32 " of %" PRIu32
                       " in comm is rank %" PRIu32 " of %" PRIu32
                       " in the region",
                       comm->rank, comm->size, region->rank, region->ranks);
    }
    return wf_options_read(options, "weft_file_options", out, sizeof(*out));
}

weft_status wf_file_begin(const weft_region *region, weft_comm *comm,
                          const char *path, const weft_file_options *options,
                          weft_file_options *out)
{
    if (region == NULL || comm == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "region or comm is NULL");
    }
    return wf_file_agree(comm,
                         check_arguments(region, comm, path, options, out));
}
