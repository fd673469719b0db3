/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of this rank that are under way, by token: answers name it. */
#include <string.h>

#include "base/alloc.h"
#include "store/hosts/hosts.h"

/* A token is the place of an operation, and how often there was one in it, so
 * that a late answer is not taken for that of the next. */
#define PLACE_BITS 20u
#define PLACES (1u << PLACE_BITS)

static weft_status places_add(wf_store_hosts *h)
{
    uint32_t more = h->ops > 0 ? 2 * h->ops : 64;
    wf_op_place *at;

    if (more > PLACES) {
        return wf_fail(WEFT_ERR_NOMEM,
                       "%u operations of this rank are under way: wait for "
                       "some of them",
                       h->ops);
    }
    at = wf_realloc(h->op, more * sizeof(*at));
    if (at == NULL) {
        return wf_fail_nomem("an operation of a store");
    }
    memset(at + h->ops, 0, (more - h->ops) * sizeof(*at));
    h->op = at;
    h->ops = more;
    return WEFT_OK;
}

weft_status wf_token_take(wf_store_hosts *h, wf_remote *r)
{
    wf_op_place *place;
    weft_status st = h->next_op == h->ops ? places_add(h) : WEFT_OK;

    if (st != WEFT_OK) {
        return st;
    }
    place = &h->op[h->next_op];
    place->op = r;
    r->token = place->uses++ << PLACE_BITS | h->next_op;
    while (h->next_op < h->ops && h->op[h->next_op].op != NULL) {
        h->next_op++;
    }
    return WEFT_OK;
}

void wf_token_give(wf_store_hosts *h, const wf_remote *r)
{
    uint32_t place = r->token % PLACES;

    h->op[place].op = NULL;
    if (place < h->next_op) {
        h->next_op = place;
    }
}

/* The operation of a token, unless it is over. */
wf_remote *wf_token_find(const wf_store_hosts *h, uint32_t token)
{
    wf_remote *r = token % PLACES < h->ops ? h->op[token % PLACES].op : NULL;

    return r != NULL && r->token == token ? r : NULL;
}
