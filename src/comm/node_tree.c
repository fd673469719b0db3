/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/node_tree.h"

#include "base/alloc.h"
#include "base/num.h"
#include "base/status.h"
#include "comm/control.h"

/* --- numbers of nodes ----------------------------------------------------- */

/* The number of bits that it takes to write a number. */
static uint32_t bits_of(uint32_t number)
{
    return number == 0 ? 0 : 32 - (uint32_t)__builtin_clz(number);
}

/* A block has 2^l nodes, of which this is l. */
static uint32_t block_bits(uint32_t nodes)
{
    uint32_t bits = bits_of(nodes - 1);
    uint32_t l = 0;

    while (bits > l + (1u << l)) {
        l++;
    }
    return l;
}

/* The place where a block that is not the first is entered by a chord. */
static uint32_t entry_of(uint32_t block)
{
    return bits_of(block) - 1;
}

uint32_t wf_node_tree_up(uint32_t node, uint32_t nodes)
{
    uint32_t l = block_bits(nodes);
    uint32_t block = node >> l;
    uint32_t entry = block == 0 ? 0 : (block << l) + entry_of(block);

    if (block > 0 && entry < nodes && node == entry) {
        return node - (1u << (l + entry_of(block)));
    }
    return entry < nodes && node < entry ? node + 1 : node - 1;
}

uint32_t wf_node_tree_down(uint32_t node, uint32_t i, uint32_t nodes)
{
    uint32_t l = block_bits(nodes);
    uint32_t place = node & ((1u << l) - 1);
    uint64_t chord = (uint64_t)node + ((uint64_t)1 << (l + place));
    const uint64_t candidate[WF_NODE_TREE_BELOW] = {chord, (uint64_t)node + 1,
                                                    node > 0 ? node - 1 : 0};

    for (uint32_t k = 0; k < WF_NODE_TREE_BELOW; k++) {
        uint64_t below = candidate[k];

        if (below > 0 && below < nodes && !(k > 0 && below == chord) &&
            wf_node_tree_up((uint32_t)below, nodes) == node && i-- == 0) {
            return (uint32_t)below;
        }
    }
    return 0;
}

uint32_t wf_node_tree_steps(uint32_t node, uint32_t nodes)
{
    uint32_t steps = 0;

    while (node != 0) {
        node = wf_node_tree_up(node, nodes);
        steps++;
    }
    return steps;
}

uint32_t wf_node_tree_levels(uint32_t nodes)
{
    uint32_t most = 0;

    for (uint32_t n = 1; n < nodes; n++) {
        uint32_t steps = wf_node_tree_steps(n, nodes);

        most = steps > most ? steps : most;
    }
    return most + 1;
}

/* --- a member's place ----------------------------------------------------- */

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
    out->steps = wf_node_tree_steps(number, out->nodes);
    if (out->head != out->self) {
        out->parent = out->head;
        out->steps++;
        return;
    }
    out->parent = number == 0
                      ? out->self
                      : notes->of[wf_node_tree_up(number, out->nodes)].head;
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

static bool is_here(const wf_host *host, uint32_t rank)
{
    return atomic_load(&wf_host_entry(host, rank)->state) == WF_BOARD_HERE;
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
            is_here(host, members[m])) {
            ++*told;
            out[count++] = m;
        }
    }
    pthread_mutex_unlock(&notes->lock);
    return count;
}

/* Is it the turn of node `a` to be asked by one of node `b`? */
static bool is_turn(uint32_t a, uint32_t b, uint32_t nodes, uint32_t turn)
{
    uint32_t others = nodes - 1;
    uint32_t turns =
        (uint32_t)wf_least((others + WF_NODE_TREE_TURN - 1) / WF_NODE_TREE_TURN,
                           WF_NODE_TREE_TURNS);
    uint32_t distance = a < b ? a + nodes - b : a - b;

    turn %= turns + 1;
    return turn == 0
               ? is_neighbour(a, b, nodes)
               : distance > 0 && (distance - 1) / WF_NODE_TREE_TURN == turn - 1;
}

/* Leave in `told` of each node how many of its members come before the one who
 * is asked. */
static void choose_opposites(const wf_host *host, wf_node_tree_notes *notes,
                             const uint32_t *members, uint32_t size,
                             uint32_t nodes)
{
    uint32_t before = 0;

    for (uint32_t m = 0; m < size; m++) {
        uint32_t number = notes->of[host->peer[members[m]].node].number;

        if (members[m] == host->rank) {
            before = notes->of[number].told;
        }
        notes->of[number].told += is_here(host, members[m]);
    }
    for (uint32_t n = 0; n < nodes; n++) {
        notes->of[n].told =
            notes->of[n].told > 0 ? before % notes->of[n].told : 0;
    }
}

uint32_t wf_node_tree_opposites(weft_world *world, const uint32_t *members,
                                uint32_t size, uint32_t turn,
                                uint32_t out[WF_NODE_TREE_OPPOSITES])
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
    choose_opposites(host, notes, members, size, tree.nodes);
    own = notes->of[host->peer[host->rank].node].number;
    for (uint32_t m = 0; m < size; m++) {
        uint32_t number = notes->of[host->peer[members[m]].node].number;

        if (is_turn(number, own, tree.nodes, turn) &&
            is_here(host, members[m]) && notes->of[number].told-- == 0) {
            out[count++] = m;
        }
    }
    pthread_mutex_unlock(&notes->lock);
    return count;
}
