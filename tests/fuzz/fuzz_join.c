/* SPDX-License-Identifier: Apache-2.0 */
/* The job's table and the packets between ranks come from other processes.
 * Whatever they hold, the checks stay within the bytes they were given, and
 * what they let through can be used without looking further.
 *
 * The input is a byte, the number of ranks that this rank was told, and then
 * the table or the packet. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

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
static void use_address(const char *t, size_t n, uint32_t rank)
{
    wf_address a;
    unsigned sum = 0;

    if (wf_join_address((const void *)t, rank, "net", &a)) {
        const char *at = a.data;

        must(at >= t && a.n <= n && at + a.n <= t + n);
        for (size_t i = 0; i < a.n; i++) {
            sum += (unsigned char)at[i];
        }
        must(sum < UINT32_MAX);
    }
}

/* Names are terminated, so that comparing them ends inside the table. */
static void use_table(const wf_join_table *t, size_t n, uint32_t ranks)
{
    must(t->head.failed == 0 && t->head.ranks == ranks);
    must(n >= sizeof(*t) + ranks * sizeof(t->record[0]));
    for (uint32_t r = 0; r < ranks; r++) {
        const wf_join_record *a = &t->record[0];
        const wf_join_record *b = &t->record[r];

        must(b->rank == r);
        must(strlen(b->host) < sizeof(b->host));
        must(wf_join_same_host(b, b) && wf_join_same_node(b, b));
        must(wf_join_same_host(a, b) == wf_join_same_host(b, a));
        must(wf_join_same_node(a, b) == wf_join_same_node(b, a));
        must(!wf_join_same_node(a, b) || wf_join_same_host(a, b));
        use_address((const char *)t, n, r);
    }
}

static void check_table(const void *block, size_t n, uint32_t ranks)
{
    weft_status st = wf_join_check(block, n, ranks);

    if (st == WEFT_OK) {
        use_table(block, n, ranks);
    } else {
        must(st == WEFT_ERR_PROTOCOL || st == WEFT_ERR_PEER);
        must(weft_error_detail()[0] != '\0');
    }
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
