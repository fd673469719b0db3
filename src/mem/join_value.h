/* SPDX-License-Identifier: Apache-2.0 */
/* Tables as values of the bootstrap table: their keys, setting and getting.
 *
 *   weft/rank/R    the table of rank R alone
 *   weft/group/R   the tables of a group, merged by its first rank R; of group
 *                  0 only where ranks look for their mates there
 *   weft/table     the table of the job
 *
 * A table longer than WEFT_BOOT_VALUE_MAX continues under KEY.1, KEY.2, ...
 * Who sets a key can be told from it (wf_boot_key_owner). */
#ifndef WF_MEM_JOIN_VALUE_H
#define WF_MEM_JOIN_VALUE_H

#include "mem/join.h"

#define WF_JOIN_TABLE_KEY "weft/table"

typedef char wf_join_name[40];

/* A rank's part in an exchange. */
typedef struct wf_join_talk {
    const weft_boot *boot;
    const wf_patience *patience;
    uint32_t group; /* ranks of one */
    uint32_t operations;
    unsigned char *buffer; /* WEFT_BOOT_VALUE_MAX bytes */
    bool shares;           /* few ranks read the table of the job */
    bool has_group;        /* rank 0 has published that of its group */
    wf_secret secret;      /* of it */
    int mates;             /* where those of this host connect; -1: nowhere */
} wf_join_talk;

void wf_join_group_key(uint32_t first, char *key);

/* Where `rank` publishes what it has collected, in a job with groups of so
 * many ranks. */
void wf_join_key_of(uint32_t rank, uint32_t group, char *key);

/* The ranks of the group of `rank` end before this one. */
uint32_t wf_join_group_end(const wf_join_talk *x, uint32_t rank);

weft_status wf_join_publish(wf_join_talk *x, const char *key,
                            const wf_join_table *t);

/* Get a table of `*bytes` bytes that is not checked yet. */
weft_status wf_join_fetch(wf_join_talk *x, const char *key,
                          const wf_patience *patience, wf_join_table **out,
                          size_t *bytes);

#endif
