/* SPDX-License-Identifier: Apache-2.0 */
/* The ids of communicators: the upper half of every tag on a port.
 *
 * An id is even (the odd one after it is for collectives) and says which rank
 * led the creation, so that ranks pick ids without asking each other: rank r of
 * n uses 2 * (r + n * k) for k = 0, 1, 2... Before a rank uses a k again it
 * asks all ranks of the job which of its ids they still have, and passes over
 * those.
 *
 * What was sent on an id lies in rings, or among messages that came before
 * their receives, and must not be taken for something else later:
 *
 * 1. A rank keeps messages only for ids that are open. It opens an id before it
 *    says that it is ready for the communicator, so nothing comes too early.
 * 2. When it closes an id it frees what it has kept; what comes later is
 *    dropped.
 * 3. Nobody sends on an id that it has closed, and an id is used again only
 *    after all have said that they have closed it. So what is left of its
 *    former use lies in rings then; a rank reads all of that before it opens an
 *    id. */
#ifndef WF_COMM_IDS_H
#define WF_COMM_IDS_H

#include "comm/comm.h"

/* How many ids a rank has, where there are so many ranks: 2,048 in the largest
 * job there can be. */
uint32_t wf_ids_limit(uint32_t ranks);

/* The id that `rank` of `ranks` uses for k, below that limit; and who uses an
 * id. */
uint32_t wf_ids_number(uint32_t rank, uint32_t ranks, uint32_t k);
uint32_t wf_ids_leader(uint32_t id, uint32_t ranks);

/* Give `comm`, which this rank leads, an id that nobody has. */
weft_status wf_ids_pick(weft_comm *comm);

/* Messages on the id of `comm` are kept from here on; or no more, and those
 * that were are let go. Closing one that is not open does nothing. */
void wf_ids_open(weft_comm *comm);
void wf_ids_close(weft_comm *comm);

/* The communicator that has this id, or NULL. Under world->drive. */
weft_comm *wf_ids_find(weft_world *world, uint32_t id);

/* Is a message with this tag for an id that is open? What the ports of a world
 * ask before they keep one (a wf_keep_fn). Under world->drive. */
bool wf_ids_wanted(void *world, uint64_t tag);

/* Mail whose key has this bit and WF_MAIL_CALL asks for the ids that its sender
 * has led; answered by whoever receives it. */
#define WF_MAIL_IDS (1ull << 62)
void wf_ids_asked(weft_world *world, uint32_t by);

void wf_ids_fini(weft_world *world);

#endif
