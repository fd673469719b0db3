/* SPDX-License-Identifier: Apache-2.0 */
/* All of weft.
 *
 *     weft_world *world;
 *     weft_world_create(NULL, &world);
 *     weft_allreduce(weft_world_comm(world), x, x, n, WEFT_F32, WEFT_SUM);
 *     weft_world_destroy(world);
 */
#ifndef WEFT_WEFT_H
#define WEFT_WEFT_H

#include <weft/api.h>
#include <weft/boot.h>
#include <weft/coll.h>
#include <weft/comm.h>
#include <weft/file.h>
#include <weft/log.h>
#include <weft/memory.h>
#include <weft/message.h>
#include <weft/region.h>
#include <weft/request.h>
#include <weft/rows.h>
#include <weft/settings.h>
#include <weft/status.h>
#include <weft/store.h>
#include <weft/types.h>
#include <weft/update.h>
#include <weft/view.h>
#include <weft/world.h>

#endif
