/* SPDX-License-Identifier: Apache-2.0 */
/* The records that ranks exchange through the bootstrap table, and pure
 * functions that evaluate them. */
#ifndef WF_MEM_JOIN_H
#define WF_MEM_JOIN_H

#include <stdbool.h>
#include <weft/boot.h>

#include "base/export.h"
#include "base/patience.h"
#include "base/secret.h"
#include "base/settings.h"

#define WF_JOIN_MAGIC 0x4a464557u
#define WF_JOIN_VERSION 2u

/* What a transport needs to find this rank: bytes that mean nothing here, of
 * any length. */
typedef struct wf_address {
    const char *of; /* the transport's name; shorter than WF_ADDRESS_NAME */
    const void *data;
    size_t n;
} wf_address;

#define WF_ADDRESS_NAME 16

/* A rank's record of itself. Its addresses follow it: for each one a
 * wf_join_section and its bytes, filled up to a multiple of 8. */
typedef struct wf_join_record {
    uint32_t magic;
    uint32_t version;
    uint32_t rank;
    int32_t pid;
    uint64_t socket[2]; /* the name it listens on */
    uint64_t user;
    uint64_t netns; /* sockets only meet inside one */
    uint64_t userns;
    int64_t session;  /* processes of other sessions are scheduled apart; 0:
                         not on this kernel */
    char boot_id[40]; /* one per boot of a machine */
    char host[64];
    char node[64];           /* WEFT_NODE */
    unsigned char cpus[128]; /* cores it may run on, a bit each */
    uint64_t address_bytes;  /* of all sections */
} wf_join_record;
_Static_assert(sizeof(wf_join_record) == 368, "layout");

typedef struct wf_join_section {
    char of[WF_ADDRESS_NAME];
    uint64_t bytes;
} wf_join_section;
_Static_assert(sizeof(wf_join_section) == 24, "layout");

/* What rank 0 publishes, followed by a record for each rank and then by the
 * addresses of all, in the order of ranks; or, with `failed` set, by a text
 * that says why there is no job. */
typedef struct wf_join_head {
    uint32_t magic;
    uint32_t version;
    uint32_t ranks;
    uint32_t failed;
    wf_secret secret;
    uint64_t job;
} wf_join_head;
_Static_assert(sizeof(wf_join_head) == 40, "layout");

typedef struct wf_join_table {
    wf_join_head head;
    wf_join_record record[];
} wf_join_table;

/* Fill in this rank's record. Fails if the machine cannot be identified. */
weft_status wf_join_describe(const wf_settings *settings, uint32_t rank,
                             const uint64_t socket[2], wf_join_record *out);

/* Publish `own` with `count` addresses and fetch everybody's. The caller frees
 * `*out`. */
weft_status wf_join_exchange(const weft_boot *boot, const wf_join_record *own,
                             const wf_address *addresses, size_t count,
                             const wf_patience *patience, wf_join_table **out);

/* The address of `rank` for the transport `of`; false if it gave none. */
WF_API bool wf_join_address(const wf_join_table *table, uint32_t rank,
                            const char *of, wf_address *out);

/* This rank cannot join, for the reason in the error detail, and has not
 * published anything: try to publish the reason instead of its record. */
void wf_join_decline(const weft_boot *boot);

/* Check that this is a well-formed table of `ranks` records with their
 * addresses. */
weft_status wf_join_check(const void *data, size_t n, uint32_t ranks);

/* Could these two processes share memory and sockets? */
bool wf_join_same_host(const wf_join_record *a, const wf_join_record *b);
bool wf_join_same_node(const wf_join_record *a, const wf_join_record *b);

#endif
