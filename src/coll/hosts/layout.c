/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/hosts/layout.h"

#include <string.h>

#include "base/alloc.h"
#include "base/status.h"

/* Number the nodes by their first members; `seen` has an entry for each number
 * that occurs, all UINT32_MAX. */
static void number_nodes(wf_layout *l, const uint32_t *node, uint32_t *seen)
{
    for (uint32_t r = 0; r < l->size; r++) {
        if (seen[node[r]] == UINT32_MAX) {
            seen[node[r]] = l->nodes++;
        }
        l->node_of[r] = seen[node[r]];
    }
}

/* Sort the ranks by node, each node's in their order. */
static void list_members(wf_layout *l)
{
    for (uint32_t r = 0; r < l->size; r++) {
        l->first[l->node_of[r] + 1]++;
    }
    l->rails = l->size;
    for (uint32_t n = 0; n < l->nodes; n++) {
        uint32_t count = l->first[n + 1];

        l->rails = count < l->rails ? count : l->rails;
        l->most = count > l->most ? count : l->most;
        l->first[n + 1] += l->first[n];
    }
    for (uint32_t r = 0; r < l->size; r++) {
        uint32_t n = l->node_of[r];
        uint32_t at = l->place[n]++; /* not used for its purpose yet */

        l->member[l->first[n] + at] = r;
        if (r == l->rank) {
            l->node = n;
            l->local = at;
        }
    }
}

static void deal_blocks(wf_layout *l)
{
    uint32_t at = 0;

    for (uint32_t i = 0; i < l->rails; i++) {
        for (uint32_t n = 0; n < l->nodes; n++) {
            uint32_t members = wf_layout_members(l, n);
            uint32_t from = wf_layout_driver(members, i, l->rails);
            uint32_t until = wf_layout_driver(members, i + 1, l->rails);

            l->run[i * l->nodes + n] = at;
            for (uint32_t m = from; m < until; m++) {
                uint32_t r = wf_layout_member(l, n, m);

                l->place[r] = at;
                l->placed[at++] = r;
            }
        }
    }
    l->run[l->rails * l->nodes] = at;
}

weft_status wf_layout_init(wf_layout *l, const uint32_t *node, uint32_t size,
                           uint32_t rank)
{
    uint32_t highest = 0;
    uint32_t *seen;

    for (uint32_t r = 0; r < size; r++) {
        highest = node[r] > highest ? node[r] : highest;
    }
    *l = (wf_layout){.size = size, .rank = rank};
    /* There are no more runs than blocks, since each has one. */
    l->node_of = wf_zalloc(((size_t)size * 6 + 2) * sizeof(uint32_t));
    seen = wf_alloc(((size_t)highest + 1) * sizeof(uint32_t));
    if (l->node_of == NULL || seen == NULL) {
        wf_free(seen);
        wf_layout_fini(l);
        return wf_fail_nomem("the layout of %u ranks", size);
    }
    l->first = l->node_of + size;
    l->member = l->first + size + 1;
    l->place = l->member + size;
    l->placed = l->place + size;
    l->run = l->placed + size;
    memset(seen, 0xff, ((size_t)highest + 1) * sizeof(uint32_t));
    number_nodes(l, node, seen);
    wf_free(seen);
    list_members(l);
    deal_blocks(l);
    return WEFT_OK;
}

void wf_layout_fini(wf_layout *l)
{
    wf_free(l->node_of);
    l->node_of = NULL;
}

uint32_t wf_layout_rail(const wf_layout *l, uint32_t rails)
{
    uint32_t members = wf_layout_members(l, l->node);

    for (uint32_t i = 0; i < rails; i++) {
        if (wf_layout_driver(members, i, rails) == l->local) {
            return i;
        }
    }
    return WF_NO_RAIL;
}

void wf_layout_drivers(const wf_layout *l, uint32_t rail, uint32_t rails,
                       uint32_t *out)
{
    for (uint32_t n = 0; n < l->nodes; n++) {
        uint32_t members = wf_layout_members(l, n);

        out[n] = wf_layout_member(l, n, wf_layout_driver(members, rail, rails));
    }
}
