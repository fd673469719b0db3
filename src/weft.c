/* SPDX-License-Identifier: Apache-2.0 */
/* Where the library is put together. This file lies above all layers and is the
 * only one that knows them all: the transports that there are, and what the
 * upper layers keep with a communicator. */
#include "coll/choose.h"
#include "comm/world.h"

static const wf_transport *const transports[] = {
    &wf_transport_self,
    &wf_transport_shm,
    NULL,
};

static const wf_parts parts = {
    .transports = transports,
    .hooks = &wf_coll_hooks,
};

weft_status weft_world_create(const weft_world_options *options,
                              weft_world **out)
{
    return wf_world_create(options, &parts, out);
}
