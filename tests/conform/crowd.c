/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: all ranks talk to all others at once. */
#include <stdlib.h>

#include "conform.h"

/* The messages of one rank with one peer, both ways. */
typedef struct talk {
    uint32_t peer;
    unsigned count;
    wf_msg *sends;
    wf_msg *recvs;
    unsigned char *out;
    unsigned char *in;
} talk;

/* Sizes from nothing to a few times the eager limit, mostly small ones. */
static size_t talk_size(const conform *c, uint32_t from, uint32_t to,
                        unsigned i)
{
    uint64_t r = (from * 131u + to * 17u + i) * 0x9e3779b97f4a7c15u >> 33;
    size_t most = i % 5 == 0 ? 4 * c->settings.eager_bytes : 200;

    return r % (most + 1);
}

static size_t talk_room(const conform *c)
{
    return 4 * c->settings.eager_bytes;
}

static uint64_t talk_seed(uint32_t from, uint32_t to, unsigned i)
{
    return (uint64_t)from << 40 | (uint64_t)to << 20 | i;
}

static void talk_init(conform *c, talk *t, uint32_t peer, unsigned count)
{
    *t = (talk){.peer = peer, .count = count};
    t->sends = conform_bytes(count * sizeof(*t->sends));
    t->recvs = conform_bytes(count * sizeof(*t->recvs));
    t->out = conform_bytes(count * talk_room(c));
    t->in = conform_bytes(count * talk_room(c));
}

static void talk_fini(talk *t)
{
    free(t->sends);
    free(t->recvs);
    free(t->out);
    free(t->in);
}

static void talk_send(conform *c, talk *t, unsigned i)
{
    size_t n = talk_size(c, c->rank, t->peer, i);
    unsigned char *buf = t->out + i * talk_room(c);

    conform_fill(buf, n, talk_seed(c->rank, t->peer, i));
    conform_send(c, t->peer, i % 3, buf, n, &t->sends[i]);
}

static void talk_recv(conform *c, talk *t, unsigned i)
{
    conform_recv(c, t->peer, i % 3, t->in + i * talk_room(c), talk_room(c),
                 &t->recvs[i]);
}

static void talk_check(conform *c, talk *t)
{
    conform_wait_ok(c, t->recvs, t->count);
    conform_wait_ok(c, t->sends, t->count);
    for (unsigned i = 0; i < t->count; i++) {
        WT_CHECK(t->recvs[i].n == talk_size(c, t->peer, c->rank, i));
        WT_CHECK(t->recvs[i].from == t->peer);
        conform_check(t->in + i * talk_room(c), t->recvs[i].n,
                      talk_seed(t->peer, c->rank, i));
    }
}

/* Messages and receives in turn, so that some come early and some late. */
static void crowd_body(conform *c)
{
    talk talks[8];
    uint32_t peers = 0;
    unsigned count = conform_times(c, 60);

    for (uint32_t r = 0; r < c->ranks; r++) {
        uint32_t peer = (c->rank + r) % c->ranks;

        if (c->t->reaches(c->host, peer)) {
            talk_init(c, &talks[peers++], peer, count);
        }
    }
    for (unsigned i = 0; i < count; i++) {
        for (uint32_t p = 0; p < peers; p++) {
            if ((i + c->rank) % 2 == 0) {
                talk_recv(c, &talks[p], i);
                talk_send(c, &talks[p], i);
            } else {
                talk_send(c, &talks[p], i);
                talk_recv(c, &talks[p], i);
            }
        }
        if (i % 4 == 0) {
            conform_step(c);
        }
    }
    for (uint32_t p = 0; p < peers; p++) {
        talk_check(c, &talks[p]);
        talk_fini(&talks[p]);
    }
}

static void two_ranks_talk_both_ways_at_once(void **state)
{
    conform_ranks(*state, 2, crowd_body);
}

static void three_ranks_talk_all_at_once(void **state)
{
    conform_ranks(*state, 3, crowd_body);
}

static void five_ranks_talk_all_at_once(void **state)
{
    conform_ranks(*state, 5, crowd_body);
}

static void eight_ranks_talk_all_at_once(void **state)
{
    conform_ranks(*state, 8, crowd_body);
}

int conform_crowd(const conform_kind *kind)
{
    void *k = (void *)kind;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(two_ranks_talk_both_ways_at_once, k),
        cmocka_unit_test_prestate(three_ranks_talk_all_at_once, k),
        cmocka_unit_test_prestate(five_ranks_talk_all_at_once, k),
        cmocka_unit_test_prestate(eight_ranks_talk_all_at_once, k),
    };

    return cmocka_run_group_tests_name(kind->name, tests, NULL, NULL);
}
