/* SPDX-License-Identifier: Apache-2.0 */
/* The allocator of the arena: spans of pages without memory, and blocks of a
 * mapped range. */
#include "mem/arena.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/log.h>

#include "base/alloc.h"
#include "mem/segment.h"
#include "mem/spans.h"
#include "wt.h"
#include "wt_cmocka.h"
#include "wt_data.h"
#include "wt_proc.h"

enum { PAGES = 4096, BLOCKS = 300 };

/* --- spans ---------------------------------------------------------------- */

/* What has memory, page by page, as the allocator should know. */
typedef struct model {
    wf_spans x;
    unsigned char used[PAGES]; /* number of the block, or 0 */
    bool memory[PAGES];
    bool cannot; /* clean */
} model;

static bool model_clean(void *ctx, uint32_t first, uint32_t pages)
{
    model *m = ctx;

    if (m->cannot) {
        return false;
    }
    for (uint32_t i = first; i < first + pages; i++) {
        assert_int_equal(m->used[i], 0);
        assert_true(m->memory[i]);
        m->memory[i] = false;
    }
    return true;
}

static model *model_make(uint32_t keep)
{
    model *m = calloc(1, sizeof(*m));

    assert_non_null(m);
    assert_int_equal(wf_spans_init(&m->x, PAGES, keep, model_clean, m),
                     WEFT_OK);
    return m;
}

static void model_end(model *m)
{
    wf_spans_fini(&m->x);
    free(m);
}

/* The spans lie side by side, no two free neighbours are of one kind, and the
 * counts are right. */
static void check(const model *m)
{
    uint32_t used = 0;
    uint32_t kept = 0;
    uint32_t before = WF_SPAN_INSIDE;

    for (uint32_t at = 0; at < PAGES;) {
        const wf_span *s = &m->x.span[at];

        assert_true(s->state != WF_SPAN_INSIDE);
        assert_true(s->pages > 0 && s->pages <= PAGES - at);
        assert_int_equal(m->x.span[at + s->pages - 1].first, at);
        assert_true(s->state != before || s->state == WF_SPAN_USED ||
                    s->state == WF_SPAN_HELD);
        used += s->state == WF_SPAN_USED ? s->pages : 0;
        kept += s->state == WF_SPAN_KEPT ? s->pages : 0;
        for (uint32_t i = at; i < at + s->pages; i++) {
            assert_int_equal(m->used[i] != 0, s->state == WF_SPAN_USED);
            assert_int_equal(m->memory[i], s->state != WF_SPAN_CLEAN);
        }
        before = s->state;
        at += s->pages;
    }
    assert_int_equal(used, m->x.used);
    assert_int_equal(kept, m->x.kept);
    assert_true(kept <= m->x.keep);
}

static bool model_take(model *m, uint32_t pages, uint32_t *first)
{
    bool kept = false;

    if (!wf_spans_take(&m->x, pages, first, &kept)) {
        return false;
    }
    for (uint32_t i = *first; i < *first + pages; i++) {
        assert_int_equal(m->used[i], 0);
        assert_int_equal(m->memory[i], kept);
        m->used[i] = 1;
        m->memory[i] = true;
    }
    return true;
}

static void model_give(model *m, uint32_t first, wf_span_state state)
{
    uint32_t pages = m->x.span[first].pages;

    memset(m->used + first, 0, pages);
    wf_spans_give(&m->x, first, state);
}

static void spans_stay_whole_under_random_use(void **state)
{
    model *m = model_make(PAGES / 8);
    uint32_t block[BLOCKS];
    unsigned count = 0;

    (void)state;
    for (uint64_t i = 0; i < wt_scaled(20000); i++) {
        uint64_t r = wt_mix(19, i, 0);

        if (r % 2 == 0 && count < BLOCKS) {
            uint32_t pages =
                (uint32_t)(1 + (r >> 8) % (r % 16 == 0 ? 900 : 20));

            count += model_take(m, pages, &block[count]);
        } else if (count > 0) {
            unsigned at = (unsigned)((r >> 8) % count);

            model_give(m, block[at], WF_SPAN_KEPT);
            block[at] = block[--count];
        }
        if (i % 16 == 0) {
            check(m);
        }
    }
    while (count > 0) {
        model_give(m, block[--count], WF_SPAN_KEPT);
    }
    check(m);
    wf_spans_trim(&m->x, 0);
    assert_int_equal(m->x.used, 0);
    assert_int_equal(m->x.span[0].pages, PAGES); /* all one again */
    model_end(m);
}

static void a_block_of_the_same_size_finds_its_pages_again(void **state)
{
    const uint32_t sizes[] = {1, 15, 16, 17, 31, 33, 100, 999, 1000};

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        model *m = model_make(PAGES);
        uint32_t first = 0;
        uint32_t wall = 0;
        uint32_t again = 0;

        assert_true(model_take(m, sizes[i], &first));
        assert_true(model_take(m, 1, &wall));
        model_give(m, first, WF_SPAN_KEPT);
        assert_true(model_take(m, sizes[i], &again));
        assert_int_equal(again, first);
        check(m);
        model_end(m);
    }
}

static void all_of_the_range_can_be_had_and_no_more(void **state)
{
    model *m = model_make(PAGES);
    uint32_t first = 0;
    uint32_t half[2];

    (void)state;
    assert_false(model_take(m, PAGES + 1, &first));
    assert_true(model_take(m, PAGES, &first));
    assert_false(model_take(m, 1, &half[0]));
    model_give(m, first, WF_SPAN_KEPT);
    /* What is kept and what is clean lie side by side. */
    assert_true(model_take(m, PAGES / 2, &half[0]));
    assert_true(model_take(m, PAGES / 2, &half[1]));
    model_give(m, half[0], WF_SPAN_KEPT);
    wf_spans_trim(&m->x, 0);
    model_give(m, half[1], WF_SPAN_KEPT);
    check(m);
    assert_true(model_take(m, PAGES, &first));
    model_give(m, first, WF_SPAN_KEPT);
    /* Every other page is in use: there is room, but not in one piece. */
    for (uint32_t i = 0; i < PAGES; i++) {
        assert_true(model_take(m, 1, &half[0]));
    }
    for (uint32_t i = 0; i < PAGES; i += 2) {
        model_give(m, i, WF_SPAN_KEPT);
    }
    assert_false(model_take(m, 2, &first));
    assert_true(model_take(m, 1, &first));
    model_give(m, 1, WF_SPAN_KEPT);
    assert_true(model_take(m, 2, &first));
    model_end(m);
}

static void a_kernel_that_cannot_clean_leaves_all_kept(void **state)
{
    model *m = model_make(0);
    uint32_t first = 0;

    (void)state;
    m->cannot = true;
    assert_true(model_take(m, PAGES, &first));
    model_give(m, first, WF_SPAN_KEPT);
    assert_int_equal(m->x.kept, PAGES);
    assert_true(model_take(m, PAGES, &first));
    model_end(m);
}

static bool odd_is_over(void *ctx, const wf_span *s)
{
    (void)ctx;
    return s->tag % 2 == 1;
}

static void what_is_held_is_not_used_before_it_is_released(void **state)
{
    model *m = model_make(PAGES);
    uint32_t at[8];
    uint32_t first = 0;

    (void)state;
    for (uint32_t i = 0; i < 8; i++) {
        assert_true(model_take(m, PAGES / 8, &at[i]));
        m->x.span[at[i]].tag = i;
        model_give(m, at[i], WF_SPAN_HELD);
        assert_int_equal(m->x.held, (i + 1) * (PAGES / 8));
        check(m);
    }
    assert_int_equal(wf_spans_top(&m->x), PAGES);
    assert_false(model_take(m, 1, &first));
    wf_spans_release(&m->x, odd_is_over, NULL);
    assert_int_equal(m->x.held, PAGES / 2);
    check(m);
    assert_true(model_take(m, PAGES / 8, &first));
    assert_int_equal(first / (PAGES / 8) % 2, 1);
    assert_false(model_take(m, PAGES / 8 + 1, &first));
    model_end(m);
}

/* --- blocks --------------------------------------------------------------- */

enum { RANGE = 64 << 20, THREADS = 8, HELD_BLOCKS = 32 };

static wf_arena *arena_of(const char *settings)
{
    wf_settings s;
    wf_arena *a = wf_alloc(sizeof(*a));
    int fd = -1;

    assert_int_equal(wf_settings_load(settings, &s), WEFT_OK);
    assert_int_equal(wf_arena_make_fd(RANGE, 2, &fd), WEFT_OK);
    assert_int_equal(wf_arena_open(&s, fd, RANGE, 2, 1, 1, a), WEFT_OK);
    return a;
}

static weft_arena_info ask(wf_arena *a)
{
    weft_arena_info i = {.size = sizeof(i)};

    wf_arena_ask(a, &i);
    return i;
}

/* Bytes of memory behind the arena, as the kernel counts them. */
static uint64_t memory_of(const wf_arena *a)
{
    struct stat s;

    assert_int_equal(fstat(a->fd, &s), 0);
    return (uint64_t)s.st_blocks * 512;
}

static void blocks_come_and_go(void **state)
{
    wf_arena *a = arena_of("ARENA_KEEP=1M");
    unsigned char *p = NULL;
    unsigned char *q = NULL;

    (void)state;
    assert_int_equal(wf_arena_take(a, 100000, false, (void **)&p), WEFT_OK);
    assert_int_equal((uintptr_t)p % wf_segment_page(), 0);
    assert_true(weft_arena_holds(p) && weft_arena_holds(p + 99999));
    assert_false(weft_arena_holds(&a));
    assert_int_equal(memory_of(a), 102400); /* all of it, at once */
    memset(p, 7, 100000);
    weft_arena_free(p);
    assert_int_equal(ask(a).in_use, 0);
    assert_int_equal(ask(a).kept, 102400);
    assert_int_equal(wf_arena_take(a, 100000, true, (void **)&q), WEFT_OK);
    assert_ptr_equal(q, p);
    for (size_t i = 0; i < 100000; i++) {
        assert_int_equal(q[i], 0);
    }
    weft_arena_free(q);
    /* More than may be kept goes back to the kernel. */
    assert_int_equal(wf_arena_take(a, 2 << 20, false, (void **)&q), WEFT_OK);
    weft_arena_free(q);
    assert_true(ask(a).kept <= 1 << 20);
    assert_true(memory_of(a) <= 1 << 20);
    assert_int_equal(wf_arena_take(a, 0, false, (void **)&q), WEFT_OK);
    weft_arena_free(q);
    weft_arena_free(NULL);
    wf_arena_close(a);
    assert_false(weft_arena_holds(q));
}

static void there_is_no_room_for_more_than_the_range(void **state)
{
    wf_arena *a = arena_of("");
    void *p = NULL;
    void *q = NULL;

    (void)state;
    assert_int_equal(wf_arena_take(a, RANGE + 1, false, &p), WEFT_ERR_NOMEM);
    assert_int_equal(wf_arena_take(a, SIZE_MAX, false, &p), WEFT_ERR_NOMEM);
    assert_int_equal(wf_arena_take(a, RANGE, false, &p), WEFT_OK);
    assert_int_equal(wf_arena_take(a, 1, false, &q), WEFT_ERR_NOMEM);
    assert_non_null(strstr(weft_error_detail(), "WEFT_ARENA"));
    assert_null(q);
    weft_arena_free(p);
    assert_int_equal(wf_arena_take(a, RANGE, false, &p), WEFT_OK);
    weft_arena_free(p);
    wf_arena_close(a);
}

static void block_may_outlive_its_arena(void **state)
{
    wf_arena *a = arena_of("");
    char *p = NULL;
    char *q = NULL;

    (void)state;
    assert_int_equal(wf_arena_take(a, 5000, false, (void **)&p), WEFT_OK);
    assert_int_equal(wf_arena_take(a, 5000, false, (void **)&q), WEFT_OK);
    wf_arena_close(a);
    memset(p, 1, 5000);
    weft_arena_free(p);
    memset(q, 1, 5000);
    assert_true(weft_arena_holds(q));
    weft_arena_free(q);
    assert_false(weft_arena_holds(q));
}

static char logged[256];

static void keep_log(weft_log_level level, const char *text, void *ctx)
{
    (void)ctx;
    (void)level;
    snprintf(logged, sizeof(logged), "%s", text);
}

static void what_is_no_block_is_left_alone(void **state)
{
    wf_arena *a = arena_of("");
    char *p = NULL;

    (void)state;
    assert_int_equal(wf_arena_take(a, 50000, false, (void **)&p), WEFT_OK);
    logged[0] = '\0';
    weft_log_to(keep_log, NULL);
    weft_arena_free(p + 1);
    weft_arena_free(p + 4096);
    weft_arena_free(p + (1 << 20));
    weft_arena_free(&a);
    assert_int_equal(ask(a).blocks, 1);
    assert_non_null(strstr(logged, "no block"));
    weft_arena_free(p);
    logged[0] = '\0';
    weft_arena_free(p);
    assert_non_null(strstr(logged, "no block"));
    weft_log_to(NULL, NULL);
    wf_arena_close(a);
}

/* Each block begins and ends with a number that only it has. */
typedef struct held {
    uint64_t *at;
    size_t words;
    uint64_t mark;
} held;

static void mark(held *h)
{
    h->at[0] = h->mark;
    h->at[h->words - 1] = ~h->mark;
}

static void check_mark(const held *h)
{
    if (h->at[0] != h->mark || h->at[h->words - 1] != ~h->mark) {
        abort();
    }
}

typedef struct crowd {
    wf_arena *arena;
    uint64_t seed;
    size_t rounds;
    size_t taken;
    held *pass; /* blocks that another thread frees */
    pthread_mutex_t *lock;
} crowd;

static void *come_and_go(void *arg)
{
    crowd *c = arg;
    held mine[HELD_BLOCKS] = {{NULL, 0, 0}};

    for (uint64_t i = 0; i < c->rounds; i++) {
        uint64_t r = wt_mix(c->seed, i, 1);
        held *h = &mine[r % HELD_BLOCKS];

        if (h->at != NULL) {
            check_mark(h);
            weft_arena_free(h->at);
            h->at = NULL;
        } else {
            size_t bytes = 16 + (r >> 10) % (r % 64 == 0 ? 300000 : 20000);
            void *p = NULL;

            if (wf_arena_take(c->arena, bytes, false, &p) == WEFT_OK) {
                *h = (held){p, bytes / 8, r};
                mark(h);
                c->taken++;
            }
        }
        if (r % 7 == 0) { /* swap one with whoever comes next */
            held other;

            pthread_mutex_lock(c->lock);
            other = *c->pass;
            *c->pass = *h;
            *h = other;
            pthread_mutex_unlock(c->lock);
        }
    }
    for (unsigned i = 0; i < HELD_BLOCKS; i++) {
        weft_arena_free(mine[i].at);
    }
    return NULL;
}

/* 10^6 in all; under the sanitizers, too, where WT_FULL is set. */
static void memory_in_use_is_what_it_was_after_many_threads(void **state)
{
    wf_arena *a = arena_of("ARENA_KEEP=4M");
    size_t rounds = WT_TSAN && !wt_full() ? 10000 : 1000000 / THREADS;
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    held pass = {NULL, 0, 0};
    pthread_t thread[THREADS];
    crowd c[THREADS];
    void *first = NULL;

    (void)state;
    assert_int_equal(wf_arena_take(a, 1 << 20, false, &first), WEFT_OK);
    for (unsigned i = 0; i < THREADS; i++) {
        c[i] = (crowd){a, i, rounds, 0, &pass, &lock};
        assert_int_equal(pthread_create(&thread[i], NULL, come_and_go, &c[i]),
                         0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        assert_true(c[i].taken > rounds / 3); /* the rest are frees */
    }
    weft_arena_free(pass.at);
    assert_int_equal(ask(a).in_use, 1 << 20);
    assert_true(memory_of(a) <= (1 << 20) + (4 << 20));
    assert_int_equal(memory_of(a), ask(a).in_use + ask(a).kept);
    weft_arena_free(first);
    wf_arena_close(a);
}

/* --- forks ---------------------------------------------------------------- */

/* A child that reports what `body` finds, once it is told to go on. */
typedef struct child {
    pid_t pid;
    int go;
} child;

static child fork_child(int (*body)(char *block), char *block)
{
    int fds[2];
    child c;

    assert_int_equal(pipe(fds), 0);
    c.pid = fork();
    assert_true(c.pid >= 0);
    if (c.pid == 0) {
        char byte;

        close(fds[1]);
        _exit(read(fds[0], &byte, 1) == 1 ? body(block) : 99);
    }
    close(fds[0]);
    c.go = fds[1];
    return c;
}

static int end_child(child c)
{
    int status = -1;

    assert_int_equal(write(c.go, "", 1), 1);
    assert_int_equal(waitpid(c.pid, &status, 0), c.pid);
    close(c.go);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
}

static wf_arena *the_arena;

static int reads_and_writes(char *block)
{
    void *more = NULL;

    if (block[0] != 5 || block[99999] != 5) {
        return 1;
    }
    memset(block, 6, 100000);
    if (block[0] != 6 || !weft_arena_holds(block)) {
        return 2;
    }
    weft_arena_free(block);
    weft_arena_free(block + 1); /* nothing is known here, and nothing done */
    if (block[0] != 6) {
        return 3;
    }
    return wf_arena_take(the_arena, 1, false, &more) == WEFT_ERR_CLOSED ? 0 : 4;
}

static void child_has_a_view_of_its_own(void **state)
{
    wf_arena *a = arena_of("");
    char *p = NULL;
    child c;

    (void)state;
    the_arena = a;
    assert_int_equal(wf_arena_take(a, 100000, false, (void **)&p), WEFT_OK);
    memset(p, 5, 100000);
    c = fork_child(reads_and_writes, p);
    assert_int_equal(end_child(c), 0);
    assert_int_equal(p[0], 5);
    assert_int_equal(p[99999], 5);
    assert_int_equal(ask(a).blocks, 1);
    weft_arena_free(p);
    assert_int_equal(ask(a).held, 0);
    wf_arena_close(a);
}

static int reads_five(char *block)
{
    for (size_t i = 0; i < 100000; i++) {
        if (block[i] != 5) {
            return 1;
        }
    }
    return 0;
}

static void block_that_a_child_may_read_is_not_used_again(void **state)
{
    wf_arena *a = arena_of("ARENA_KEEP=0");
    char *p = NULL;
    char *q = NULL;
    child c[2];

    (void)state;
    assert_int_equal(wf_arena_take(a, 100000, false, (void **)&p), WEFT_OK);
    memset(p, 5, 100000);
    for (unsigned i = 0; i < 2; i++) {
        c[i] = fork_child(reads_five, p);
    }
    weft_arena_free(p);
    assert_int_equal(ask(a).held, 102400);
    assert_int_equal(ask(a).in_use, 0);
    /* One that the children never saw comes and goes as ever. */
    assert_int_equal(wf_arena_take(a, 100000, false, (void **)&q), WEFT_OK);
    assert_ptr_not_equal(q, p);
    memset(q, 9, 100000);
    weft_arena_free(q);
    assert_int_equal(ask(a).kept, 102400);
    assert_int_equal(end_child(c[0]), 0);
    assert_int_equal(ask(a).held, 102400);
    assert_int_equal(end_child(c[1]), 0);
    assert_int_equal(ask(a).held, 0);
    assert_int_equal(memory_of(a), 0);
    wf_arena_close(a);
}

static int forks_again(char *block)
{
    int status = -1;
    pid_t pid = fork();

    if (pid == 0) {
        block[0] = 8; /* its own, not that of the child */
        _exit(block[99999] == 5 ? 0 : 1);
    }
    return waitpid(pid, &status, 0) == pid && status == 0 && block[0] == 5 ? 0
                                                                           : 2;
}

static void child_of_a_child_too(void **state)
{
    wf_arena *a = arena_of("");
    char *p = NULL;

    (void)state;
    assert_int_equal(wf_arena_take(a, 100000, false, (void **)&p), WEFT_OK);
    memset(p, 5, 100000);
    assert_int_equal(end_child(fork_child(forks_again, p)), 0);
    weft_arena_free(p);
    assert_int_equal(ask(a).held, 0);
    wf_arena_close(a);
}

static int does_nothing(char *block)
{
    (void)block;
    return 0;
}

static void child_that_has_ended_costs_no_descriptor(void **state)
{
    wf_arena *a = arena_of("");
    char *p = NULL;
    unsigned fds;

    (void)state;
    assert_int_equal(wf_arena_take(a, 4096, false, (void **)&p), WEFT_OK);
    assert_int_equal(end_child(fork_child(does_nothing, p)), 0);
    fds = wt_count_fds();
    for (unsigned i = 0; i < 20; i++) {
        assert_int_equal(end_child(fork_child(does_nothing, p)), 0);
    }
    assert_int_equal(wt_count_fds(), fds);
    weft_arena_free(p);
    assert_int_equal(ask(a).held, 0);
    wf_arena_close(a);
}

static void blocks_of_a_broken_communicator_are_not_used_again(void **state)
{
    wf_arena *a = arena_of("");
    char *p = NULL;
    char *q = NULL;

    (void)state;
    wf_arena_hold(NULL);
    wf_arena_hold(a); /* nothing is in use */
    assert_int_equal(wf_arena_take(a, 4096, false, (void **)&p), WEFT_OK);
    wf_arena_hold(a);
    weft_arena_free(p);
    assert_int_equal(ask(a).held, 4096);
    assert_int_equal(wf_arena_take(a, 4096, false, (void **)&q), WEFT_OK);
    assert_ptr_not_equal(p, q);
    weft_arena_free(q);
    assert_int_equal(ask(a).held, 4096);
    wf_arena_close(a);
}

/* --- what others say ------------------------------------------------------ */

static void place_outside_of_a_range_is_not_found(void **state)
{
    wf_arena *a = arena_of("");
    unsigned char *own = a->own;
    unsigned char *range = a->base;

    (void)state;
    assert_int_equal(wf_arena_place(NULL, own, 1), 0);
    assert_int_equal(wf_arena_place(a, own, 1), 1);
    assert_int_equal(wf_arena_place(a, own + 9, RANGE - 9), 10);
    assert_int_equal(wf_arena_place(a, own + 9, RANGE - 8), 0);
    assert_int_equal(wf_arena_place(a, own - 1, 2), 0);
    assert_int_equal(wf_arena_place(a, own + RANGE, 0), 0);
    assert_int_equal(wf_arena_place(a, own, SIZE_MAX), 0);
    assert_ptr_equal(wf_arena_find(a, range, 1, RANGE), range);
    assert_ptr_equal(wf_arena_find(a, range, 10, RANGE - 9), range + 9);
    assert_null(wf_arena_find(a, range, 0, 1));
    assert_null(wf_arena_find(a, range, 10, RANGE - 8));
    assert_null(wf_arena_find(a, range, RANGE, 2));
    assert_null(wf_arena_find(a, range, (uint64_t)RANGE + 1, 0));
    assert_null(wf_arena_find(a, range, UINT64_MAX, 1));
    assert_null(wf_arena_find(a, range, 1, SIZE_MAX));
    wf_arena_close(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spans_stay_whole_under_random_use),
        cmocka_unit_test(a_block_of_the_same_size_finds_its_pages_again),
        cmocka_unit_test(all_of_the_range_can_be_had_and_no_more),
        cmocka_unit_test(a_kernel_that_cannot_clean_leaves_all_kept),
        cmocka_unit_test(what_is_held_is_not_used_before_it_is_released),
        cmocka_unit_test(blocks_come_and_go),
        cmocka_unit_test(there_is_no_room_for_more_than_the_range),
        cmocka_unit_test(block_may_outlive_its_arena),
        cmocka_unit_test(what_is_no_block_is_left_alone),
        cmocka_unit_test(memory_in_use_is_what_it_was_after_many_threads),
        cmocka_unit_test(child_has_a_view_of_its_own),
        cmocka_unit_test(block_that_a_child_may_read_is_not_used_again),
        cmocka_unit_test(child_of_a_child_too),
        cmocka_unit_test(child_that_has_ended_costs_no_descriptor),
        cmocka_unit_test(blocks_of_a_broken_communicator_are_not_used_again),
        cmocka_unit_test(place_outside_of_a_range_is_not_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
