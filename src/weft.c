/* SPDX-License-Identifier: Apache-2.0 */
/* Where the library is put together. This file lies above all layers and is the
 * only one that knows them all: the transports and the layers that there are. A
 * new one is a line here. */
#include "weft.h"

#include "agg/engine.h"
#include "boot/mpi.h"
#include "coll/coll.h"
#include "region/layer.h"
#include "store/parcel.h"

/* These need foreign libraries, so they are loaded when they are asked for. */
static const wf_transport transport_ucx = {
    .abi = WF_TRANSPORT_ABI, .name = "ucx", .library = "libweft_ucx.so"};
static const wf_transport transport_mpi = {
    .abi = WF_TRANSPORT_ABI, .name = "mpi", .locate = wf_boot_mpi_library};

static const wf_transport *const transports[] = {
    &wf_transport_self, &wf_transport_shm, &transport_ucx, &transport_mpi, NULL,
};

static const wf_engine *const engines[WF_ENGINES + 1] = {
    &wf_engine_alone,
    &wf_engine_shm,
    &wf_engine_hosts,
    &wf_engine_message,
    &wf_engine_switch,
};

const wf_parts wf_weft_parts = {
    .transports = transports,
    .layers =
        {
            [WF_LAYER_COLL] = {.layer = &wf_coll_layer, .given = engines},
            [WF_LAYER_REGION] = {.layer = &wf_region_layer},
            [WF_LAYER_STORE] = {.layer = &wf_store_layer},
        },
    .agree = wf_coll_agree,
};

weft_status weft_world_create(const weft_world_options *options,
                              weft_world **out)
{
    return wf_world_create(options, &wf_weft_parts, out);
}

const char *weft_transport_name(uint32_t index)
{
    const size_t count = sizeof(transports) / sizeof(transports[0]);

    return index < count && transports[index] != NULL ? transports[index]->name
                                                      : NULL;
}
