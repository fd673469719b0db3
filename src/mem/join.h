/* SPDX-License-Identifier: Apache-2.0 */
/* How ranks tell each other who they are, through the bootstrap table.
 *
 * Each rank makes a table of itself alone. Tables are merged: what the ranks of
 * a node have in common stands in a table once, a rank itself takes 32 bytes
 * and its addresses. The merging takes two steps, so that nobody does much:
 *
 *   1. Ranks are cut into groups of about the square root of their number
 *      (wf_join_group). Each publishes its table; the first of a group
 *      collects those of the others, merges them and publishes the result.
 *   2. Rank 0 collects from the first of each group, adds a secret and
 *      publishes the table of the job, which all read.
 *
 * So a rank sets one key and gets one, or one for each MiB of the job's table.
 * In a large job few read that: a rank gets the table of its group instead, and
 * that of the job from a mate (join_share.h).
 * Who cannot join publishes the reason instead, and whoever collects passes it
 * on in the same way: all ranks end with the same explanation.
 *
 * join.c is the exchange; join_table.c the tables, which are pure functions;
 * join_share.c hands them to mates; join_describe.c is what a rank knows of
 * itself. */
#ifndef WF_MEM_JOIN_H
#define WF_MEM_JOIN_H

#include <stdalign.h>
#include <stdbool.h>
#include <weft/boot.h>

#include "base/export.h"
#include "base/patience.h"
#include "base/secret.h"
#include "base/settings.h"

#define WF_JOIN_MAGIC 0x4a464557u
#define WF_JOIN_VERSION 3u

/* What a transport needs to find this rank: bytes that mean nothing here, of
 * any length. */
typedef struct wf_address {
    const char *of; /* the transport's name; shorter than WF_ADDRESS_NAME */
    const void *data;
    size_t n;
} wf_address;

#define WF_ADDRESS_NAME 16

/* --- the table as it travels ------------------------------------------------
 * A head, the nodes in the order of their first ranks, the members in the order
 * of ranks, and then the addresses of all members. */

typedef struct wf_join_head {
    uint32_t magic;
    uint32_t version; /* of this layout; the fields up to here never move */
    char weft[24];    /* the version of the library */
    uint32_t first;   /* the ranks in this table: these are `ranks` ... */
    uint32_t ranks;
    uint32_t total; /* ... out of so many in the job */
    uint32_t nodes;
    uint32_t failed; /* a WF_JOIN_FAILED_*: a text follows, and no table */
    uint32_t unused;
    uint64_t bytes; /* of all of it */
    /* Rank 0 fills these in when the table is complete; the first of a group
     * one of the group, where mates share (join_share.h). */
    wf_secret secret;
    uint64_t job;
} wf_join_head;
_Static_assert(sizeof(wf_join_head) == 88, "layout");

enum {
    WF_JOIN_FAILED_SELF = 1, /* this rank cannot join, for that reason */
    WF_JOIN_FAILED_JOB = 2,  /* the text says which rank cannot */
};

/* What the ranks of a node have in common: a set of ranks that may map each
 * other's memory, namely a host, or the part of one that WEFT_NODE names. */
typedef struct wf_join_node {
    uint64_t user;
    uint64_t netns; /* sockets only meet inside one */
    uint64_t userns;
    int64_t session;         /* or control group, negative: those of others are
                                scheduled apart; 0: not on this kernel;
                                WF_JOIN_SESSIONS: several */
    char boot_id[40];        /* one per boot of a machine */
    char host[64];           /* of its first rank; only for messages */
    char node[64];           /* WEFT_NODE */
    unsigned char cpus[128]; /* cores that its ranks may use, a bit each */
} wf_join_node;
_Static_assert(sizeof(wf_join_node) == 328, "layout");

#define WF_JOIN_SESSIONS INT64_MIN

typedef struct wf_join_member {
    uint32_t node; /* the index of its node */
    int32_t pid;
    uint64_t socket[2]; /* the name it listens on */
    uint64_t end; /* of its addresses, where those of the next one begin */
} wf_join_member;
_Static_assert(sizeof(wf_join_member) == 32, "layout");

/* Each address: this, and its bytes, filled up to a multiple of 8. */
typedef struct wf_join_section {
    char of[WF_ADDRESS_NAME];
    uint64_t bytes;
} wf_join_section;
_Static_assert(sizeof(wf_join_section) == 24, "layout");

/* --- the table in memory --------------------------------------------------
 */

/* One block of memory, unless its bytes are mapped. */
typedef struct wf_join_table {
    wf_join_head *head;
    wf_join_node *node;
    wf_join_member *member; /* by rank, from head->first on */
    unsigned char *address;
    uint32_t operations; /* of the bootstrap table that this rank needed */
    size_t mapped;       /* bytes that are memory of a mate; 0: ours */
    alignas(16) unsigned char *bytes;
} wf_join_table;

void wf_join_free(wf_join_table *table);

/* The node of a rank, in the table of a job. */
static inline const wf_join_node *wf_join_node_of(const wf_join_table *t,
                                                  uint32_t rank)
{
    return &t->node[t->member[rank].node];
}

/* The address of `rank` for the transport `of`; false if it gave none. */
WF_API bool wf_join_address(const wf_join_table *table, uint32_t rank,
                            const char *of, wf_address *out);

/* Could these processes share memory and sockets? */
bool wf_join_same_host(const wf_join_node *a, const wf_join_node *b);
bool wf_join_same_node(const wf_join_node *a, const wf_join_node *b);

/* The number of cores that the ranks of the host of `rank` may use together. */
uint32_t wf_join_cpus(const wf_join_table *table, uint32_t rank);

/* Does the scheduler treat all ranks of that host as one session? */
bool wf_join_one_session(const wf_join_table *table, uint32_t rank);

/* --- making tables ----------------------------------------------------------
 */

/* What a rank says of itself. */
typedef struct wf_join_record {
    int32_t pid;
    uint64_t socket[2];
    wf_join_node node;
} wf_join_record;

/* Fill in this rank's record. Fails if the machine cannot be identified. */
weft_status wf_join_describe(const wf_settings *settings,
                             const uint64_t socket[2], wf_join_record *out);

/* The table of rank `rank` of `total` alone. */
weft_status wf_join_single(const wf_join_record *own, uint32_t rank,
                           uint32_t total, const wf_address *addresses,
                           size_t count, wf_join_table **out);

/* Merge tables of ranks that follow one another, at least one. */
weft_status wf_join_merge(wf_join_table *const *parts, size_t count,
                          wf_join_table **out);

/* An empty table for `bytes` bytes that come from elsewhere; NULL if there is
 * no memory. */
wf_join_table *wf_join_room(size_t bytes);

/* Check that the `n` bytes of `table` are a well-formed table of `ranks` ranks
 * from `first` on, out of `total`, and fill in its pointers. `from` is the rank
 * that published it. Fails with WEFT_ERR_PROTOCOL, or with WEFT_ERR_PEER and
 * the reason if it is one. */
weft_status wf_join_open(wf_join_table *table, size_t n, uint32_t from,
                         uint32_t first, uint32_t ranks, uint32_t total);

/* --- the exchange -----------------------------------------------------------
 */

/* The size of groups in a job of so many ranks. */
uint32_t wf_join_group(uint32_t ranks);

/* Publish `own` with `count` addresses and fetch everybody's. `*out` is freed
 * with wf_join_free. */
weft_status wf_join_exchange(const weft_boot *boot, const wf_join_record *own,
                             const wf_address *addresses, size_t count,
                             const wf_patience *patience, wf_join_table **out);

/* This rank cannot join, for the reason in the error detail, and has not
 * published anything: try to publish the reason instead of its record. */
void wf_join_decline(const weft_boot *boot);

#endif
