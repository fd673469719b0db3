/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/node_tree.h"

#include "base/alloc.h"
#include "base/status.h"
#include "comm/control.h"

uint32_t wf_node_tree_levels(uint32_t nodes)
{
    uint32_t levels = 1;

    while (levels < 32 && (uint64_t)1 << (levels - 1) < nodes) {
        levels++;
    }
    return levels;
}

weft_status wf_node_tree_init(wf_node_tree_notes *notes, uint32_t nodes)
{
    notes->of = wf_zalloc(nodes * sizeof(*notes->of));
    if (notes->of == NULL) {
        return wf_fail_nomem("notes about %u nodes", nodes);
    }
    notes->calls = 0;
    pthread_mutex_init(&notes->lock, NULL);
    return WEFT_OK;
}

void wf_node_tree_fini(wf_node_tree_notes *notes)
{
    pthread_mutex_destroy(&notes->lock);
    wf_free(notes->of);
}

/* Number the nodes of the group, under the lock; and find this rank. */
static void number_nodes(const wf_host *host, wf_node_tree_notes *notes,
                         const uint32_t *members, uint32_t size,
                         wf_node_tree *out)
{
    uint64_t call = ++notes->calls;

    *out = (wf_node_tree){0};
    for (uint32_t m = 0; m < size; m++) {
        wf_node_tree_note *node = &notes->of[host->peer[members[m]].node];

        if (node->call != call) {
            node->call = call;
            node->number = out->nodes;
            notes->of[out->nodes].head = m;
            notes->of[out->nodes++].told = 0;
        }
        if (members[m] == host->rank) {
            out->self = m;
        }
    }
}

/* A rank's place, where `number` is that of its node. */
static void take_place(const wf_node_tree_notes *notes, uint32_t number,
                       wf_node_tree *out)
{
    uint32_t child;

    out->head = notes->of[number].head;
    out->steps = wf_node_tree_steps(number);
    if (out->head != out->self) {
        out->parent = out->head;
        out->steps++;
        return;
    }
    out->parent =
        number == 0 ? out->self : notes->of[wf_node_tree_up(number)].head;
    while ((child = wf_node_tree_down(number, out->count, out->nodes)) != 0) {
        out->below[out->count++] = notes->of[child].head;
    }
}

/* All members are on one node. */
static void find_alone(const wf_host *host, const uint32_t *members,
                       uint32_t size, wf_node_tree *out)
{
    *out = (wf_node_tree){.nodes = 1};
    while (out->self + 1 < size && members[out->self] != host->rank) {
        out->self++;
    }
    out->steps = out->self == 0 ? 0 : 1;
}

void wf_node_tree_find(weft_world *world, const uint32_t *members,
                       uint32_t size, wf_node_tree *out)
{
    const wf_host *host = world->host;
    wf_node_tree_notes *notes;

    if (world->plane == NULL) {
        find_alone(host, members, size, out);
        return;
    }
    notes = &world->plane->notes;
    pthread_mutex_lock(&notes->lock);
    number_nodes(host, notes, members, size, out);
    take_place(notes, notes->of[host->peer[host->rank].node].number, out);
    pthread_mutex_unlock(&notes->lock);
}

/* Is a node as far from another as a power of two, one way or the other? */
static bool is_neighbour(uint32_t a, uint32_t b, uint32_t nodes)
{
    uint32_t one_way = a < b ? b - a : b + nodes - a;
    uint32_t other = nodes - one_way;

    return a != b &&
           ((one_way & (one_way - 1)) == 0 || (other & (other - 1)) == 0);
}

uint32_t wf_node_tree_neighbours(weft_world *world, const uint32_t *members,
                                 uint32_t size,
                                 uint32_t out[WF_NODE_TREE_NEIGHBOURS])
{
    const wf_host *host = world->host;
    wf_node_tree_notes *notes;
    uint32_t count = 0;
    uint32_t own;
    wf_node_tree tree;

    if (world->plane == NULL) {
        return 0;
    }
    notes = &world->plane->notes;
    pthread_mutex_lock(&notes->lock);
    number_nodes(host, notes, members, size, &tree);
    own = notes->of[host->peer[host->rank].node].number;
    for (uint32_t m = 0; m < size; m++) {
        uint32_t number = notes->of[host->peer[members[m]].node].number;
        uint32_t *told = &notes->of[number].told;

        if (*told < WF_NODE_TREE_LISTENERS &&
            is_neighbour(number, own, tree.nodes) &&
            atomic_load(&wf_host_entry(host, members[m])->state) ==
                WF_BOARD_HERE) {
            ++*told;
            out[count++] = m;
        }
    }
    pthread_mutex_unlock(&notes->lock);
    return count;
}
