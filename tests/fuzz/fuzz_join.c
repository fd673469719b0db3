/* SPDX-License-Identifier: Apache-2.0 */
/* The job's table and the packets between ranks come from other processes.
 * Whatever they hold, the checks stay within the bytes they were given, and
 * what they let through can be used without looking further.
 *
 * The input is a byte, the number of ranks that this rank was told, and then
 * the table or the packet. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "mem/join.h"
#include "mem/link.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void must(int holds)
{
    if (!holds) {
        abort();
    }
}

/* An address lies inside the table, and all of it may be read. */
static void use_address(const wf_join_table *t, size_t n, uint32_t rank)
{
    wf_address a;
    unsigned sum = 0;

    if (wf_join_address(t, rank, "net", &a)) {
        const unsigned char *at = a.data;

        must(at >= t->address && a.n <= n && at + a.n <= t->bytes + n);
        for (size_t i = 0; i < a.n; i++) {
            sum += at[i];
        }
        must(sum < UINT32_MAX);
    }
}

/* Names are terminated, so that comparing them ends inside the table. */
static void use_table(const wf_join_table *t, size_t n, uint32_t ranks)
{
    must(t->head->failed == 0 && t->head->ranks == ranks);
    for (uint32_t r = 0; r < ranks; r++) {
        const wf_join_node *a = wf_join_node_of(t, 0);
        const wf_join_node *b = wf_join_node_of(t, r);

        must(t->member[r].node < t->head->nodes);
        must(strlen(b->host) < sizeof(b->host));
        must(wf_join_same_host(b, b) && wf_join_same_node(b, b));
        must(wf_join_same_host(a, b) == wf_join_same_host(b, a));
        must(wf_join_same_node(a, b) == wf_join_same_node(b, a));
        must(!wf_join_same_node(a, b) || wf_join_same_host(a, b));
        must(wf_join_cpus(t, r) > 0);
        (void)wf_join_one_session(t, r);
        use_address(t, n, r);
    }
}

/* What was let through can be merged, and is a table again. Its nodes may be
 * fewer: a table may say the same one twice. */
static void merge_table(wf_join_table *t, uint32_t ranks)
{
    wf_join_table *merged = NULL;

    must(wf_join_merge(&t, 1, &merged) == WEFT_OK);
    must(wf_join_open(merged, merged->head->bytes, 0, 0, ranks, ranks) ==
         WEFT_OK);
    must(merged->head->nodes <= t->head->nodes);
    use_table(merged, merged->head->bytes, ranks);
    wf_free(merged);
}

/* The version of the library stands in each table; as a corpus is older than
 * that, it is put where the input has zeros. */
static void set_version(wf_join_head *head)
{
    if (head->weft[0] == '\0') {
        snprintf(head->weft, sizeof(head->weft), "%s", weft_version());
    }
}

static void check_table(const void *data, size_t n, uint32_t ranks)
{
    size_t room = n > sizeof(wf_join_head) ? n : sizeof(wf_join_head);
    wf_join_table *t = wf_join_room(room);
    weft_status st;

    must(t != NULL);
    memset(t->bytes, 0, room);
    memcpy(t->bytes, data, n);
    set_version(t->head);
    st = wf_join_open(t, n, 0, 0, ranks, ranks);
    if (st == WEFT_OK) {
        use_table(t, n, ranks);
        merge_table(t, ranks);
    } else {
        must(st == WEFT_ERR_PROTOCOL || st == WEFT_ERR_PEER);
        must(weft_error_detail()[0] != '\0');
    }
    wf_free(t);
}

static void check_packet(const wf_packet *p, size_t n)
{
    weft_status st = wf_packet_check(p, n);

    must(st == WEFT_OK || st == WEFT_ERR_PROTOCOL);
    if (st == WEFT_OK) {
        must(p->bytes <= WF_PACKET_DATA);
        must(p->bytes == n - offsetof(wf_packet, data));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    void *block;

    if (n == 0) {
        return 0;
    }
    /* Aligned as a rank's own memory is, and of exactly this size, so that a
     * sanitizer sees a read past the end. */
    block = malloc(n > 1 ? n - 1 : 1);
    must(block != NULL);
    memcpy(block, data + 1, n - 1);
    check_table(block, n - 1, data[0]);
    check_packet(block, n - 1);
    free(block);
    return 0;
}
