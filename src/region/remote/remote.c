/* SPDX-License-Identifier: Apache-2.0 */
/* Regions whose rows are not all mapped here, and calls on them.
 *
 * A call is done in blocks of ids. Those of rows that are mapped here are run
 * as ever, with all others masked out by negative ids; those are sorted by whom
 * to ask, in their order, and asked for before the mapped ones are run. */
#include "region/remote/remote.h"

#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/num.h"
#include "base/time.h"

/* --- a region's part ------------------------------------------------------ */

static uint32_t number_on_node(const weft_region *region, uint32_t rank)
{
    uint32_t n = 0;

    for (uint32_t r = 0; r < rank; r++) {
        n += region->node[r] == region->node[rank];
    }
    return n;
}

static uint32_t ranks_on_node(const weft_region *region, uint32_t rank)
{
    uint32_t n = 0;

    for (uint32_t r = 0; r < region->ranks; r++) {
        n += region->node[r] == region->node[rank];
    }
    return n;
}

static uint32_t numbered_on_node(const weft_region *region, uint32_t rank,
                                 uint32_t number)
{
    uint32_t r = 0;

    while (region->node[r] != region->node[rank] || number-- > 0) {
        r++;
    }
    return r;
}

static bool is_here(const weft_region *region, uint32_t rank)
{
    const wf_board_rank *entry = region->entry[rank];

    return entry == NULL || atomic_load(&entry->state) == WF_BOARD_HERE;
}

/* The caller's partner on the node of `owner`; if that is gone the next one
 * there, since all of them map the owner's part. */
static uint32_t partner_of(const weft_region *region, uint32_t owner)
{
    uint32_t number = number_on_node(region, region->rank);
    uint32_t size = ranks_on_node(region, owner);

    for (uint32_t i = 0; i < size; i++) {
        uint32_t r = numbered_on_node(region, owner, (number + i) % size);

        if (is_here(region, r)) {
            return r;
        }
    }
    return owner; /* gone, too: it is named */
}

static uint32_t route_to(const weft_region *region, uint32_t owner)
{
    return wf_region_maps(region, owner)           ? WF_ROUTE_HERE
           : region->reach == WEFT_REACH_HIERARCHY ? partner_of(region, owner)
                                                   : owner;
}

/* Anew after a rank has died or left. Several threads may do so at once. */
static void choose_routes(wf_region_remote *remote)
{
    const weft_region *region = remote->region;
    uint32_t alarm = atomic_load(&region->world->host->board->alarm);

    if (atomic_load(&remote->alarm) == alarm + 1ull) {
        return;
    }
    for (uint32_t r = 0; r < region->ranks; r++) {
        atomic_store_explicit(&remote->route[r], route_to(region, r),
                              memory_order_relaxed);
    }
    atomic_store(&remote->alarm, alarm + 1ull); /* 0 means: never chosen */
}

/* Nobody returns from a resize before all have the new partition: the next
 * question may be about rows that are new. */
static void remote_resized(wf_region_extra *extra, weft_region *region)
{
    weft_status st = wf_region_verdict(region, region->comm, WEFT_OK,
                                       wf_now_ns() + region->timeout_ns);

    (void)extra;
    if (st != WEFT_OK) {
        wf_log(WEFT_LOG_WARN, "%s has its new size, but: %s", region->what,
               weft_error_detail());
    }
}

static void unlist(wf_region_world *own, const wf_region_remote *remote)
{
    wf_region_remote **at = &own->remotes;

    while (*at != remote) {
        at = &(*at)->next;
    }
    *at = remote->next;
}

static void remote_closing(wf_region_extra *extra, weft_region *region)
{
    wf_region_remote *remote = (wf_region_remote *)(void *)extra;
    weft_world *world = region->world;

    pthread_mutex_lock(&world->drive);
    unlist(wf_region_world_of(world), remote);
    pthread_mutex_unlock(&world->drive);
    region->remote = NULL;
    wf_free(remote);
}

static weft_status list_region(wf_region_remote *remote)
{
    weft_world *world = remote->region->world;
    wf_region_world *own = wf_region_world_of(world);
    weft_status st;

    pthread_mutex_lock(&world->drive);
    st = wf_serve(world);
    if (st == WEFT_OK) {
        st = wf_ports_flows(world);
    }
    if (st == WEFT_OK) {
        remote->next = own->remotes;
        own->remotes = remote;
    }
    pthread_mutex_unlock(&world->drive);
    return st;
}

static weft_status remote_make(weft_region *region)
{
    static const char kind;
    wf_region_remote *remote =
        wf_zalloc(sizeof(*remote) + region->ranks * sizeof(remote->route[0]));
    weft_status st;

    if (remote == NULL) {
        return wf_fail_nomem("%s", region->what);
    }
    remote->extra = (wf_region_extra){
        .kind = &kind, .resized = remote_resized, .closing = remote_closing};
    remote->region = region;
    choose_routes(remote);
    st = list_region(remote);
    if (st != WEFT_OK) {
        wf_free(remote);
        return st;
    }
    region->remote = remote;
    (void)wf_region_keep(region, &remote->extra);
    return WEFT_OK;
}

weft_status wf_remote_open(weft_region *region, weft_comm *comm,
                           uint64_t deadline)
{
    /* A handler cannot read the memory of a GPU. */
    weft_status own =
        region->place == WEFT_HOST ? remote_make(region) : WEFT_OK;

    return wf_region_verdict(region, comm, own, deadline);
}

/* --- a call --------------------------------------------------------------- */

/* Memory for the blocks of one call. */
typedef struct scratch {
    int64_t *here;   /* ids, negative for rows that are elsewhere */
    int32_t *order;  /* positions of the others, by target */
    uint32_t *route; /* by position */
    uint32_t *count; /* by rank of the region; then where its share begins */
    wf_rows_target *target;
} scratch;

static void scratch_fini(scratch *s)
{
    wf_free(s->here);
    wf_free(s->order);
    wf_free(s->route);
    wf_free(s->count);
    wf_free(s->target);
}

static weft_status scratch_init(scratch *s, const wf_rows_call *call)
{
    size_t n = wf_least(call->ids.n, WF_ROWS_BLOCK);
    uint32_t ranks = call->table.region->ranks;

    s->here = wf_alloc(n * sizeof(*s->here));
    s->order = wf_alloc(n * sizeof(*s->order));
    s->route = wf_alloc(n * sizeof(*s->route));
    s->count = wf_alloc(ranks * sizeof(*s->count));
    s->target = wf_alloc(ranks * sizeof(*s->target));
    if (s->here == NULL || s->order == NULL || s->route == NULL ||
        s->count == NULL || s->target == NULL) {
        scratch_fini(s);
        return wf_fail_nomem("rows of a region on other nodes");
    }
    return WEFT_OK;
}

/* How many rows of a block are where. */
typedef struct tally {
    uint64_t own;
    uint64_t node;
    uint64_t remote;
} tally;

/* Who is to be asked for each id, and how often. */
static tally sort_out(const wf_rows_call *call, uint64_t base, uint32_t n,
                      scratch *s)
{
    const weft_region *region = call->table.region;
    wf_row_span span = {0};
    tally found = {0};

    memset(s->count, 0, region->ranks * sizeof(*s->count));
    for (uint32_t i = 0; i < n; i++) {
        uint64_t id = (uint64_t)wf_id_at(&call->ids, base + i);
        uint32_t owner;

        s->here[i] = -1;
        s->route[i] = WF_ROUTE_HERE;
        if (id >= call->limit) {
            continue;
        }
        owner = wf_partition_owner_next(&region->part, call->table.first + id,
                                        &span);
        s->route[i] = atomic_load_explicit(&region->remote->route[owner],
                                           memory_order_relaxed);
        if (s->route[i] == WF_ROUTE_HERE) {
            s->here[i] = (int64_t)id;
            found.own += owner == region->rank;
            found.node += owner != region->rank;
        } else {
            s->count[s->route[i]]++;
            found.remote++;
        }
    }
    return found;
}

/* Each target's share of the order; returns how many targets there are. */
static uint32_t make_targets(uint32_t ranks, scratch *s)
{
    uint32_t targets = 0;
    uint32_t begin = 0;

    for (uint32_t r = 0; r < ranks; r++) {
        uint32_t end = begin + s->count[r];

        if (end > begin) {
            s->target[targets++] = (wf_rows_target){
                .rank = r, .begin = begin, .next = begin, .end = end};
        }
        s->count[r] = begin;
        begin = end;
    }
    return targets;
}

static void put_in_order(uint32_t n, scratch *s)
{
    for (uint32_t i = 0; i < n; i++) {
        if (s->route[i] != WF_ROUTE_HERE) {
            s->order[s->count[s->route[i]]++] = (int32_t)i;
        }
    }
}

static void run_mapped(const wf_rows_call *call, uint64_t base, uint32_t n,
                       const scratch *s)
{
    wf_rows_call here = *call;

    here.ids = (weft_ids){.at = s->here, .type = WEFT_I64, .n = n};
    here.rows.at = (char *)call->rows.at + base * call->rows.pitch;
    wf_rows_run(&here);
}

static void count_rows(const wf_rows_call *call, const tally *t)
{
    weft_region *region = call->table.region;

    atomic_fetch_add_explicit(&region->count->rows_own, t->own,
                              memory_order_relaxed);
    atomic_fetch_add_explicit(&region->count->rows_node, t->node,
                              memory_order_relaxed);
    atomic_fetch_add_explicit(&region->count->rows_remote, t->remote,
                              memory_order_relaxed);
    atomic_fetch_add_explicit(&region->count->bytes_remote,
                              t->remote * call->far_bytes,
                              memory_order_relaxed);
}

static weft_status run_block(const wf_rows_call *call, uint64_t base,
                             uint32_t n, scratch *s)
{
    weft_region *region = call->table.region;
    tally found;
    wf_rows_block b = {.call = call, .base = base, .order = s->order};
    weft_status st = WEFT_OK;

    choose_routes(region->remote);
    found = sort_out(call, base, n, s);
    b.target = s->target;
    b.targets = make_targets(region->ranks, s);
    if (b.targets > 0) {
        st = wf_region_here(region);
        if (st != WEFT_OK) {
            return st;
        }
        put_in_order(n, s);
        atomic_store(&b.unfinished, b.targets);
        wf_rows_block_begin(&b);
    }
    if (found.own + found.node > 0) {
        run_mapped(call, base, n, s);
    }
    if (b.targets > 0) {
        st = wf_rows_block_wait(&b);
        wf_rows_block_end(&b);
    }
    if (st == WEFT_OK) {
        count_rows(call, &found);
    }
    return st;
}

/* Ids past the end are told of before anything is written. */
static weft_status check_bounds(const wf_rows_call *call)
{
    wf_rows_call alone = *call;
    bool left_out;

    alone.table.region = NULL; /* it would count all rows as mapped ones */
    if (wf_rows_survey(&alone, &left_out) == WEFT_OK) {
        return WEFT_OK;
    }
    return wf_fail(WEFT_ERR_INVALID, "rank %u: %s", call->table.region->rank,
                   weft_error_detail());
}

weft_status wf_rows_remote(const wf_rows_call *call)
{
    weft_status st = check_bounds(call);
    scratch s = {0};

    if (st != WEFT_OK || call->ids.n == 0 || call->far_bytes == 0) {
        return st;
    }
    st = scratch_init(&s, call);
    if (st != WEFT_OK) {
        return st;
    }
    for (uint64_t at = 0; at < call->ids.n && st == WEFT_OK;
         at += WF_ROWS_BLOCK) {
        uint64_t left = call->ids.n - at;

        st = run_block(call, at,
                       left < WF_ROWS_BLOCK ? (uint32_t)left : WF_ROWS_BLOCK,
                       &s);
    }
    scratch_fini(&s);
    return st;
}

const wf_layer wf_region_layer = {
    .name = "region",
    .world_bytes = sizeof(wf_region_world),
    .handler = {[WF_AM_ROWS_ASK % WF_LAYER_MESSAGES] = wf_rows_on_ask,
                [WF_AM_ROWS_ANSWER % WF_LAYER_MESSAGES] = wf_rows_on_answer},
    .early = {[WF_AM_ROWS_ANSWER % WF_LAYER_MESSAGES] =
                  wf_rows_on_answer_early},
};
