/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of ranks: made, merged, checked and asked. Pure: nothing here talks
 * to anybody. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "base/status.h"
#include "mem/join.h"

bool wf_join_same_host(const wf_join_node *a, const wf_join_node *b)
{
    return a->user == b->user && a->netns == b->netns &&
           a->userns == b->userns && strcmp(a->boot_id, b->boot_id) == 0;
}

bool wf_join_same_node(const wf_join_node *a, const wf_join_node *b)
{
    return wf_join_same_host(a, b) && strcmp(a->node, b->node) == 0;
}

uint32_t wf_join_cpus(const wf_join_table *t, uint32_t rank)
{
    const wf_join_node *own = wf_join_node_of(t, rank);
    unsigned char any[sizeof(own->cpus)] = {0};
    uint32_t count = 0;

    for (uint32_t i = 0; i < t->head->nodes; i++) {
        if (wf_join_same_host(&t->node[i], own)) {
            for (size_t byte = 0; byte < sizeof(any); byte++) {
                any[byte] |= t->node[i].cpus[byte];
            }
        }
    }
    for (size_t byte = 0; byte < sizeof(any); byte++) {
        count += (uint32_t)__builtin_popcount(any[byte]);
    }
    return count > 0 ? count : 1;
}

bool wf_join_one_session(const wf_join_table *t, uint32_t rank)
{
    const wf_join_node *own = wf_join_node_of(t, rank);
    bool one = own->session != WF_JOIN_SESSIONS;

    for (uint32_t i = 0; i < t->head->nodes && one; i++) {
        one = !wf_join_same_host(&t->node[i], own) ||
              t->node[i].session == own->session;
    }
    return one;
}

/* --- layout --------------------------------------------------------------- */

static size_t fixed_bytes(uint32_t nodes, uint32_t ranks)
{
    return sizeof(wf_join_head) + (size_t)nodes * sizeof(wf_join_node) +
           (size_t)ranks * sizeof(wf_join_member);
}

wf_join_table *wf_join_room(size_t bytes)
{
    wf_join_table *t = wf_alloc(sizeof(*t) + bytes);

    if (t != NULL) {
        memset(t, 0, sizeof(*t));
        t->bytes = (unsigned char *)(t + 1);
        t->head = (wf_join_head *)(void *)t->bytes;
    }
    return t;
}

void wf_join_free(wf_join_table *t)
{
    if (t != NULL && t->mapped > 0) {
        munmap(t->bytes, t->mapped);
    }
    wf_free(t);
}

/* Find the parts of a table whose head is filled in. */
static void lay_out(wf_join_table *t)
{
    t->head = (wf_join_head *)(void *)t->bytes;
    t->node = (wf_join_node *)(void *)(t->head + 1);
    t->member = (wf_join_member *)(void *)(t->node + t->head->nodes);
    t->address = (unsigned char *)(t->member + t->head->ranks);
}

static size_t address_bytes(const wf_join_table *t)
{
    return t->member[t->head->ranks - 1].end;
}

/* --- addresses ------------------------------------------------------------ */

static size_t padded(size_t n)
{
    return (n + 7) / 8 * 8;
}

static size_t packed_bytes(const wf_address *addresses, size_t count)
{
    size_t n = 0;

    for (size_t i = 0; i < count; i++) {
        n += sizeof(wf_join_section) + padded(addresses[i].n);
    }
    return n;
}

static void pack(const wf_address *addresses, size_t count, unsigned char *to)
{
    for (size_t i = 0; i < count; i++) {
        wf_join_section s = {.bytes = addresses[i].n};

        snprintf(s.of, sizeof(s.of), "%s", addresses[i].of);
        memcpy(to, &s, sizeof(s));
        to += sizeof(s);
        memset(to, 0, padded(addresses[i].n));
        if (addresses[i].n > 0) {
            memcpy(to, addresses[i].data, addresses[i].n);
        }
        to += padded(addresses[i].n);
    }
}

/* Take the first of the sections in `*left` bytes at `*at`; false if there is
 * none that is whole. */
static bool next_section(const unsigned char **at, size_t *left,
                         wf_address *out)
{
    const wf_join_section *s = (const void *)*at;
    size_t n;

    if (*left < sizeof(*s) || memchr(s->of, 0, sizeof(s->of)) == NULL ||
        s->bytes > *left - sizeof(*s) ||
        padded(s->bytes) > *left - sizeof(*s)) {
        return false;
    }
    n = sizeof(*s) + padded(s->bytes);
    *out = (wf_address){s->of, *at + sizeof(*s), s->bytes};
    *at += n;
    *left -= n;
    return true;
}

bool wf_join_address(const wf_join_table *t, uint32_t rank, const char *of,
                     wf_address *out)
{
    uint64_t begin = rank > 0 ? t->member[rank - 1].end : 0;
    const unsigned char *at = t->address + begin;
    size_t left = t->member[rank].end - begin;

    while (next_section(&at, &left, out)) {
        if (strcmp(out->of, of) == 0) {
            return true;
        }
    }
    return false;
}

/* --- making --------------------------------------------------------------- */

weft_status wf_join_single(const wf_join_record *own, uint32_t rank,
                           uint32_t total, const wf_address *addresses,
                           size_t count, wf_join_table **out)
{
    size_t packed = packed_bytes(addresses, count);
    size_t bytes = fixed_bytes(1, 1) + packed;
    wf_join_table *t = wf_join_room(bytes);

    if (t == NULL) {
        return wf_fail_nomem("addresses of %zu bytes", packed);
    }
    *t->head = (wf_join_head){.magic = WF_JOIN_MAGIC,
                              .version = WF_JOIN_VERSION,
                              .first = rank,
                              .ranks = 1,
                              .total = total,
                              .nodes = 1,
                              .bytes = bytes};
    snprintf(t->head->weft, sizeof(t->head->weft), "%s", weft_version());
    lay_out(t);
    t->node[0] = own->node;
    t->member[0] = (wf_join_member){
        .pid = own->pid,
        .socket = {own->socket[0], own->socket[1]},
        .end = packed,
    };
    pack(addresses, count, t->address);
    *out = t;
    return WEFT_OK;
}

/* The nodes of the merged table, found by a hash of what they are. A slot holds
 * a number of a node plus 1, or 0. */
typedef struct directory {
    uint32_t *slot;
    uint32_t mask;
    uint32_t *number; /* of each node of each part, in the merged table */
} directory;

static uint64_t hash_bytes(uint64_t hash, const void *data, size_t n)
{
    const unsigned char *at = data;

    for (size_t i = 0; i < n; i++) {
        hash = (hash ^ at[i]) * 0x100000001b3ull;
    }
    return hash;
}

static uint64_t node_hash(const wf_join_node *n)
{
    uint64_t hash = 0xcbf29ce484222325ull;

    hash = hash_bytes(hash, &n->user, sizeof(n->user));
    hash = hash_bytes(hash, &n->netns, sizeof(n->netns));
    hash = hash_bytes(hash, &n->userns, sizeof(n->userns));
    hash = hash_bytes(hash, n->boot_id, strlen(n->boot_id));
    hash = hash_bytes(hash, n->node, strlen(n->node));
    return hash ^ hash >> 32;
}

/* `more` is a part of the node `n`. */
static void widen_node(wf_join_node *n, const wf_join_node *more)
{
    for (size_t i = 0; i < sizeof(n->cpus); i++) {
        n->cpus[i] |= more->cpus[i];
    }
    if (n->session != more->session) {
        n->session = WF_JOIN_SESSIONS;
    }
}

/* The number of this node in the table; it is appended if it is not there. */
static uint32_t enter_node(wf_join_table *t, directory *d,
                           const wf_join_node *node)
{
    uint32_t at = (uint32_t)node_hash(node) & d->mask;

    for (; d->slot[at] != 0; at = (at + 1) & d->mask) {
        wf_join_node *there = &t->node[d->slot[at] - 1];

        if (wf_join_same_node(there, node)) {
            widen_node(there, node);
            return d->slot[at] - 1;
        }
    }
    t->node[t->head->nodes] = *node;
    d->slot[at] = ++t->head->nodes;
    return t->head->nodes - 1;
}

/* Once all nodes are known. */
static void enter_members(wf_join_table *t, wf_join_table *const *parts,
                          size_t count, const uint32_t *number)
{
    wf_join_member *to = t->member;
    uint64_t end = 0;

    for (size_t p = 0; p < count; p++) {
        const wf_join_table *part = parts[p];

        for (uint32_t i = 0; i < part->head->ranks; i++, to++) {
            *to = part->member[i];
            to->node = number[to->node];
            to->end += end;
        }
        memcpy(t->address + end, part->address, address_bytes(part));
        end += address_bytes(part);
        number += part->head->nodes;
    }
    t->head->bytes = (uint64_t)(t->address + end - t->bytes);
}

static void enter_parts(wf_join_table *t, directory *d,
                        wf_join_table *const *parts, size_t count)
{
    uint32_t *number = d->number;

    t->node = (wf_join_node *)(void *)(t->head + 1);
    for (size_t p = 0; p < count; p++) {
        for (uint32_t i = 0; i < parts[p]->head->nodes; i++) {
            *number++ = enter_node(t, d, &parts[p]->node[i]);
        }
    }
    lay_out(t);
    enter_members(t, parts, count, d->number);
}

static weft_status directory_init(directory *d, uint32_t nodes)
{
    d->mask = 1;
    while (d->mask < 2 * nodes) {
        d->mask *= 2;
    }
    d->slot = wf_zalloc(d->mask * sizeof(*d->slot));
    d->number = wf_alloc(nodes * sizeof(*d->number));
    d->mask--;
    return d->slot != NULL && d->number != NULL
               ? WEFT_OK
               : wf_fail_nomem("%u nodes of the job", nodes);
}

static void directory_fini(directory *d)
{
    wf_free(d->slot);
    wf_free(d->number);
}

weft_status wf_join_merge(wf_join_table *const *parts, size_t count,
                          wf_join_table **out)
{
    uint32_t nodes = 0;
    uint32_t ranks = 0;
    size_t addresses = 0;
    directory d = {0};
    wf_join_table *t;
    wf_join_table *shrunk;
    weft_status st;

    for (size_t p = 0; p < count; p++) {
        nodes += parts[p]->head->nodes;
        ranks += parts[p]->head->ranks;
        addresses += address_bytes(parts[p]);
    }
    t = wf_join_room(fixed_bytes(nodes, ranks) + addresses);
    st = t != NULL ? directory_init(&d, nodes)
                   : wf_fail_nomem("a table of %u ranks", ranks);
    if (st != WEFT_OK) {
        directory_fini(&d);
        wf_free(t);
        return st;
    }
    *t->head = *parts[0]->head;
    t->head->ranks = ranks;
    t->head->nodes = 0;
    enter_parts(t, &d, parts, count);
    directory_fini(&d);
    shrunk = wf_realloc(t, sizeof(*t) + t->head->bytes);
    *out = shrunk != NULL ? shrunk : t;
    (*out)->bytes = (unsigned char *)(*out + 1);
    lay_out(*out);
    return WEFT_OK;
}

/* --- checking ------------------------------------------------------------- */

static weft_status fail_malformed(uint32_t rank)
{
    return wf_fail(WEFT_ERR_PROTOCOL, "the record of rank %u is malformed",
                   rank);
}

static weft_status check_version(const wf_join_head *h, size_t n, uint32_t from)
{
    if (n < sizeof(*h) || h->magic != WF_JOIN_MAGIC) {
        return fail_malformed(from);
    }
    if (h->version < WF_JOIN_VERSION) { /* which did not say more */
        return wf_fail(WEFT_ERR_PROTOCOL,
                       "rank %u runs an older version of weft than this rank, "
                       "which runs %s",
                       from, weft_version());
    }
    if (h->version != WF_JOIN_VERSION ||
        strncmp(h->weft, weft_version(), sizeof(h->weft)) != 0) {
        return wf_fail(WEFT_ERR_PROTOCOL,
                       "rank %u runs weft %.*s, this rank runs weft %s: all "
                       "ranks of a job need the same version",
                       from, (int)sizeof(h->weft), h->weft, weft_version());
    }
    return WEFT_OK;
}

static weft_status read_note(const wf_join_table *t, size_t n, uint32_t from)
{
    const char *text = (const char *)(t->head + 1);
    int length = (int)(n - sizeof(*t->head));

    if (from == 0) {
        return wf_fail(WEFT_ERR_PEER, "rank 0 could not form the job: %.*s",
                       length, text);
    }
    if (t->head->failed == WF_JOIN_FAILED_JOB) {
        return wf_fail(WEFT_ERR_PEER, "%.*s", length, text);
    }
    return wf_fail(WEFT_ERR_PEER, "rank %u could not join: %.*s", from, length,
                   text);
}

static weft_status check_nodes(const wf_join_table *t)
{
    for (uint32_t i = 0; i < t->head->nodes; i++) {
        const wf_join_node *n = &t->node[i];

        if (n->boot_id[0] == '\0' ||
            memchr(n->host, 0, sizeof(n->host)) == NULL ||
            memchr(n->node, 0, sizeof(n->node)) == NULL ||
            memchr(n->boot_id, 0, sizeof(n->boot_id)) == NULL) {
            return wf_fail(WEFT_ERR_PROTOCOL,
                           "node %u in the table of ranks is malformed", i);
        }
    }
    return WEFT_OK;
}

static bool sections_are_whole(const unsigned char *at, size_t n)
{
    wf_address ignored;

    while (n > 0) {
        if (!next_section(&at, &n, &ignored)) {
            return false;
        }
    }
    return true;
}

/* `room` bytes of addresses follow the members. */
static weft_status check_members(const wf_join_table *t, size_t room)
{
    uint32_t nodes = 0; /* those whose first rank has been seen */
    uint64_t begin = 0;

    for (uint32_t i = 0; i < t->head->ranks; i++) {
        const wf_join_member *m = &t->member[i];

        if (m->node > nodes || m->node >= t->head->nodes) {
            return fail_malformed(t->head->first + i);
        }
        nodes += m->node == nodes;
        if (m->end < begin || m->end > room || m->end % 8 != 0 ||
            !sections_are_whole(t->address + begin, m->end - begin)) {
            return wf_fail(WEFT_ERR_PROTOCOL,
                           "the addresses of rank %u are malformed",
                           t->head->first + i);
        }
        begin = m->end;
    }
    return begin == room && nodes == t->head->nodes
               ? WEFT_OK
               : wf_fail(WEFT_ERR_PROTOCOL,
                         "the table of ranks is longer than its contents");
}

weft_status wf_join_open(wf_join_table *t, size_t n, uint32_t from,
                         uint32_t first, uint32_t ranks, uint32_t total)
{
    const wf_join_head *h = t->head;
    weft_status st = check_version(h, n, from);

    if (st != WEFT_OK) {
        return st;
    }
    if (h->failed != 0) {
        return read_note(t, n, from);
    }
    if (h->total != total) {
        return wf_fail(WEFT_ERR_PROTOCOL,
                       "rank %u was started as one of %u ranks, but this rank "
                       "as one of %u",
                       from, h->total, total);
    }
    if (h->first != first || h->ranks != ranks || h->bytes != n || ranks == 0 ||
        h->nodes == 0 || h->nodes > ranks || n < fixed_bytes(h->nodes, ranks)) {
        return fail_malformed(from);
    }
    lay_out(t);
    st = check_nodes(t);
    return st == WEFT_OK ? check_members(t, n - fixed_bytes(h->nodes, ranks))
                         : st;
}
