/* SPDX-License-Identifier: Apache-2.0 */
#include "conform.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/time.h"

/* Where conform_meet counts. */
#define MEETING_WORD 0

/* What the ranks that are about to be started do. */
static const conform_kind *the_kind;
static conform_case *the_body;

/* --- a rank -------------------------------------------------------------- */

static bool on_keep(void *ctx, uint64_t tag)
{
    return tag != ((const conform *)ctx)->unwanted;
}

static void on_loss(void *ctx, uint32_t rank, weft_status why)
{
    conform *c = ctx;

    c->losses++;
    c->lost_rank = rank;
    c->lost = why;
}

weft_status conform_open(conform *c, const wf_settings *settings,
                         wf_port **port)
{
    uint32_t rank[64];
    wf_port_setup setup = {.host = c->host,
                           .settings = settings,
                           .rank = rank,
                           .keep = on_keep,
                           .lost = on_loss,
                           .ctx = c};

    for (uint32_t r = 0; r < c->ranks; r++) {
        if (c->t->reaches(c->host, r)) {
            rank[setup.ranks++] = r;
        }
    }
    return c->t->open(&setup, port);
}

void conform_join(conform *c)
{
    wf_address address = {.of = c->t->name};
    weft_boot *boot = NULL;
    char name[64];

    WT_OK(wf_settings_load(c->kind->settings, &c->settings));
    wt_job_name(0, name, sizeof(name));
    WT_OK(weft_boot_open_local(name, wt_rank(), wt_ranks(), &boot));
    if (c->t->prepare != NULL) {
        WT_OK(c->t->prepare(&c->settings, &c->port, &address));
    }
    WT_OK(wf_host_join(boot, &c->settings, &address, c->t->prepare != NULL,
                       (wf_interrupt){0}, &c->host));
    weft_boot_close(boot);
    WT_OK(conform_open(c, &c->settings, &c->port));
}

static void conform_rank(void)
{
    conform c = {.kind = the_kind,
                 .t = the_kind->transport,
                 .rank = wt_rank(),
                 .ranks = wt_ranks(),
                 .receiver = wt_ranks() - 1,
                 .unwanted = UINT64_MAX};

    conform_join(&c);
    for (uint32_t r = 0; r < c.ranks; r++) {
        WT_CHECK(c.t->reaches(c.host, r) == (c.kind->to_itself || r != c.rank));
    }
    the_body(&c);
    conform_flush(&c);
    conform_meet(&c);
    c.t->close(c.port);
    wf_host_leave(c.host);
}

void conform_ranks(const conform_kind *kind, unsigned ranks, conform_case *body)
{
    wt_job job = {.ranks = kind->to_itself ? 1 : ranks,
                  .bare = conform_rank,
                  .deadline = 120};

    the_kind = kind;
    the_body = body;
    wt_run_job_both(&job);
}

int conform_run(const conform_kind *kind)
{
    return conform_tagged(kind) + conform_matching(kind) + conform_crowd(kind) +
           conform_am(kind) + conform_end(kind);
}

/* --- inside a case ------------------------------------------------------- */

unsigned conform_times(const conform *c, unsigned n)
{
    bool slow = c->kind->slow || WT_TSAN || WT_ASAN;

    return slow && n > 8 ? 8 + n / 8 : n;
}

void conform_step(conform *c)
{
    if (c->t->progress(c->port) == 0) {
        sched_yield();
    }
}

static bool all_done(const wf_msg *msgs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!msgs[i].done) {
            return false;
        }
    }
    return true;
}

/* The descriptor alone wakes it, once the port has said that it would. */
static void sleep_on_descriptor(conform *c)
{
    struct pollfd p = {.fd = c->t->descriptor(c->port), .events = POLLIN};

    if (c->t->progress(c->port) == 0 && c->t->arm(c->port)) {
        WT_CHECK(poll(&p, 1, -1) == 1 || errno == EINTR);
    }
}

/* Sleep as a rank does that has nothing else to do, having looked once more.
 * Whoever has something for it rings, and so does its own progress() where it
 * leaves work; a bell that nobody rings lets the run's deadline pass. */
static void sleep_until_done(conform *c, const wf_msg *msgs, size_t n)
{
    wf_board_rank *own = wf_host_own(c->host);
    uint32_t bell = wf_board_drowse(c->host->board, own);

    c->t->progress(c->port);
    if (!all_done(msgs, n)) {
        wf_board_sleep(c->host->board, own, bell, UINT64_MAX);
    }
    wf_board_awake(own);
}

void conform_wait(conform *c, const wf_msg *msgs, size_t n)
{
    while (!all_done(msgs, n)) {
        if (c->kind->sleeps && c->t->descriptor != NULL) {
            sleep_on_descriptor(c);
        } else if (c->kind->sleeps) {
            sleep_until_done(c, msgs, n);
        } else {
            conform_step(c);
        }
    }
}

void conform_wait_ok(conform *c, const wf_msg *msgs, size_t n)
{
    conform_wait(c, msgs, n);
    for (size_t i = 0; i < n; i++) {
        WT_CHECK(msgs[i].status == WEFT_OK);
    }
}

void conform_flush(conform *c)
{
    while (c->t->busy(c->port)) {
        conform_step(c);
    }
}

void conform_meet(conform *c)
{
    uint32_t all = ++c->meetings * c->ranks;

    wt_word_add(MEETING_WORD, 1);
    while (atomic_load(wt_word(MEETING_WORD)) < all) {
        conform_step(c);
    }
}

void conform_await(conform *c, uint32_t from, uint64_t tag)
{
    wf_msg found;

    while (!c->t->peek(c->port, from, tag, WF_TAG_EXACT, &found)) {
        conform_step(c);
    }
}

void conform_send(conform *c, uint32_t to, uint64_t tag, const void *buf,
                  size_t n, wf_msg *msg)
{
    WT_OK(c->t->send(c->port, to, tag, buf, n, msg));
}

void conform_recv(conform *c, uint32_t from, uint64_t tag, void *buf,
                  size_t room, wf_msg *msg)
{
    WT_OK(c->t->recv(c->port, from, tag, WF_TAG_EXACT, buf, room, msg));
}

/* --- bytes --------------------------------------------------------------- */

void *conform_bytes(size_t n)
{
    void *p = malloc(n > 0 ? n : 1);

    if (p == NULL) {
        WT_FAIL("no memory for %zu bytes", n);
    }
    return p;
}

static uint64_t content(uint64_t seed, size_t word)
{
    return (seed + 1) * 0x9e3779b97f4a7c15u + word * 0xbf58476d1ce4e5b9u;
}

void conform_fill(void *buf, size_t n, uint64_t seed)
{
    unsigned char *at = buf;

    for (size_t i = 0; i < n; i += 8) {
        uint64_t word = content(seed, i / 8);

        memcpy(at + i, &word, n - i < 8 ? n - i : 8);
    }
}

void conform_check(const void *buf, size_t n, uint64_t seed)
{
    const unsigned char *at = buf;

    for (size_t i = 0; i < n; i += 8) {
        uint64_t word = content(seed, i / 8);

        if (memcmp(at + i, &word, n - i < 8 ? n - i : 8) != 0) {
            WT_FAIL("byte %zu or one soon after it, of %zu, is wrong", i, n);
        }
    }
}
