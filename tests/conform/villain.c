/* SPDX-License-Identifier: Apache-2.0 */
/* A peer that sends what no correct rank sends. */
#include <stdlib.h>

#include "conform.h"

/* Set before the ranks are started. */
static conform_villainy *the_villainy;

void conform_silent(weft_log_level level, const char *text, void *ctx)
{
    (void)level;
    (void)text;
    (void)ctx;
}

void conform_still_hears(conform *c)
{
    uint64_t value = 5;
    uint64_t in = 0;
    wf_msg msg;

    if (c->rank == 1) {
        conform_send(c, 0, 2, &value, 8, &msg);
        conform_wait_ok(c, &msg, 1);
    }
    if (c->rank == 0) {
        conform_recv(c, 1, 2, &in, 8, &msg);
        conform_wait_ok(c, &msg, 1);
        WT_CHECK(in == 5 && c->losses == 0);
    }
}

static void expect_punished(conform *c, wf_msg *msg)
{
    uint64_t in = 0;

    conform_wait(c, msg, 2);
    WT_CHECK(msg[0].status == WEFT_ERR_PROTOCOL);
    WT_CHECK(msg[1].status == WEFT_ERR_PROTOCOL);
    WT_CHECK(c->losses == 1 && c->lost_rank == 1);
    WT_CHECK(c->lost == WEFT_ERR_PROTOCOL);
    WT_STATUS(c->t->send(c->port, 1, 3, &in, 8, &msg[0]), WEFT_ERR_PROTOCOL);
    WT_CHECK(wt_names_rank(weft_error_detail(), 1));
    conform_recv(c, 1, 7, &in, 8, &msg[0]); /* what came before it */
    conform_wait_ok(c, msg, 1);
    conform_recv(c, 2, 3, &in, 8, &msg[0]);
    conform_wait_ok(c, msg, 1);
    WT_CHECK(in == 5);
}

static void villain_body(conform *c)
{
    size_t n = 20 * c->settings.eager_bytes;
    unsigned char *buf = conform_bytes(n);
    uint64_t value = 5;
    uint64_t in = 0;
    wf_msg msg[2];

    weft_log_to(conform_silent, NULL);
    conform_fill(buf, n, 0);
    if (c->rank == 0) {
        conform_recv(c, 1, 1, &in, 8, &msg[0]);
        conform_send(c, 1, 2, buf, n, &msg[1]);
    }
    if (c->rank == 1) {
        conform_send(c, 0, 7, &value, 8, &msg[0]);
        conform_wait_ok(c, msg, 1);
    }
    conform_meet(c);
    if (c->rank == 1) {
        the_villainy(c->port);
    }
    if (c->rank == 0) {
        expect_punished(c, msg);
    }
    if (c->rank == 2) {
        conform_send(c, 0, 3, &value, 8, &msg[0]);
        conform_wait_ok(c, msg, 1);
    }
    conform_meet(c);
    weft_log_to(NULL, NULL);
    free(buf);
}

void conform_punishes(const conform_kind *kind, conform_villainy *villainy)
{
    the_villainy = villainy;
    conform_ranks(kind, 3, villain_body);
}
