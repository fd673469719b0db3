/* SPDX-License-Identifier: Apache-2.0 */
/* All histories of a switch that dies during two operations: each rank notices
 * when it likes, words are delayed for as long as they like, and ranks that
 * have finished leave. All end with the same results, and nobody waits for
 * ever.
 *
 * The switch is a rule here: a chunk has a result once all ranks have sent it,
 * and each rank gets it whenever it likes, or never. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agg/mistakes.h"
#include "agg/settle.h"
#include "wt.h"
#include "wt_cmocka.h"

enum { RANKS = 3, OPS = 2, CHUNKS = 3, QUEUE = 6, HOST = 2 };

typedef struct plan {
    unsigned ranks;
    unsigned chunks;
    unsigned slots;
} plan;

typedef struct queue {
    wf_settle_word word[QUEUE];
    uint32_t count;
} queue;

typedef struct rank_state {
    wf_settle settle;
    wf_settle_word word[2 * RANKS];
    uint32_t has;       /* results of the operation it is in: bitmap */
    uint32_t kept[OPS]; /* results that came from the switch */
    /* Where each result came from: 1 the switch, HOST + U: done again from
     * chunk U on. */
    uint8_t from[OPS][CHUNKS];
    uint8_t uses; /* the switch, in this operation */
} rank_state;

typedef struct job {
    rank_state rank[RANKS];
    queue way[RANKS][RANKS];
} job;

static plan p;
static const char *fault;

static void wrong(const char *what)
{
    fault = fault == NULL ? what : fault;
}

/* Structs have words at addresses of their own, which copies must follow. */
static void attach(job *s)
{
    for (unsigned r = 0; r < p.ranks; r++) {
        s->rank[r].settle.word = s->rank[r].word;
    }
}

/* --- what ranks do -------------------------------------------------------- */

static void send_word(job *s, unsigned from, unsigned to, wf_settle_word word)
{
    queue *q = &s->way[from][to];

    if (q->count == QUEUE) {
        wrong("too many words are said");
        return;
    }
    memcpy(&q->word[q->count++], &word, sizeof(word));
}

static uint32_t all_chunks(void)
{
    return (1u << p.chunks) - 1;
}

static unsigned first_of(const rank_state *r)
{
    unsigned c = 0;

    while ((r->has >> c & 1) != 0) {
        c++;
    }
    return c;
}

/* Results of one operation must not come from different places. */
static void check_equal(const job *s, unsigned rank, unsigned op)
{
    const rank_state *me = &s->rank[rank];

    for (unsigned r = 0; r < p.ranks; r++) {
        if (s->rank[r].settle.op > op &&
            memcmp(s->rank[r].from[op], me->from[op], p.chunks) != 0) {
            wrong("ranks end with different results");
        }
    }
}

static void finish(job *s, unsigned rank, wf_settle_way way)
{
    rank_state *me = &s->rank[rank];
    unsigned op = (unsigned)me->settle.op;

    for (unsigned c = 0; c < p.chunks; c++) {
        if (me->from[op][c] == 0) {
            wrong("a rank ends without a result");
        }
    }
    me->has = 0;
    me->uses = 0;
    wf_settle_end(&me->settle, way);
    check_equal(s, rank, op);
}

static void fetch(job *s, unsigned rank, unsigned source)
{
    rank_state *me = &s->rank[rank];
    unsigned op = (unsigned)me->settle.op;

    for (unsigned c = 0; c < p.chunks; c++) {
        if ((me->has >> c & 1) != 0) {
            continue;
        }
        if ((s->rank[source].kept[op] >> c & 1) == 0 ||
            c + p.slots < p.chunks) {
            wrong("what is fetched was not kept");
        }
        me->from[op][c] = 1;
    }
    finish(s, rank, WF_SETTLE_FETCH);
}

static void redo(job *s, unsigned rank, uint64_t first)
{
    rank_state *me = &s->rank[rank];
    unsigned op = (unsigned)me->settle.op;

    for (unsigned c = 0; c < p.chunks; c++) {
        if (c >= first + p.slots && (me->has >> c & 1) != 0) {
            wrong("an input that is needed again was not kept");
        }
        if (c >= first) {
            me->from[op][c] = (uint8_t)(HOST + first);
        }
    }
    finish(s, rank, WF_SETTLE_REDO);
}

static void settle(job *s, unsigned rank)
{
    const wf_settle *own = &s->rank[rank].settle;
    wf_settled d;

    if (!own->inside || !own->said) {
        return;
    }
    d = wf_settle_decide(own);
    if (d.way == WF_SETTLE_DONE) {
        finish(s, rank, WF_SETTLE_DONE);
    } else if (d.way == WF_SETTLE_FETCH) {
        fetch(s, rank, d.rank);
    } else if (d.way == WF_SETTLE_REDO) {
        redo(s, rank, d.first);
    }
}

static void say(job *s, unsigned rank)
{
    rank_state *me = &s->rank[rank];
    unsigned first = first_of(me);
    wf_settle_word word =
        wf_settle_say(&me->settle, first == p.chunks ? WF_SETTLE_ALL : first);

    for (unsigned r = 0; r < p.ranks; r++) {
        if (r != rank) {
            send_word(s, rank, r, word);
        }
    }
    settle(s, rank);
}

/* --- actions -------------------------------------------------------------- */

static bool enter(job *s, unsigned rank)
{
    rank_state *me = &s->rank[rank];

    if (me->settle.inside || me->settle.op == OPS) {
        return false;
    }
    if (wf_settle_begin(&me->settle) == WF_SETTLE_SAY) {
        say(s, rank);
    } else if (me->settle.over) {
        redo(s, rank, 0);
    } else {
        me->uses = 1;
    }
    return true;
}

static bool has_sent(const rank_state *r, uint64_t op, unsigned chunk)
{
    return r->settle.op > op ||
           (r->settle.op == op && r->uses && chunk < first_of(r) + p.slots);
}

static bool result(job *s, unsigned rank, unsigned chunk)
{
    rank_state *me = &s->rank[rank];
    uint64_t op = me->settle.op;

    if (!me->uses || me->settle.said || chunk >= p.chunks ||
        (me->has >> chunk & 1) != 0) {
        return false;
    }
    for (unsigned r = 0; r < p.ranks; r++) {
        if (!has_sent(&s->rank[r], op, chunk)) {
            return false;
        }
    }
    me->has |= 1u << chunk;
    me->kept[op] |= 1u << chunk;
    me->from[op][chunk] = 1;
    if (me->has == all_chunks()) {
        finish(s, rank, WF_SETTLE_DONE);
    }
    return true;
}

static bool give_up(job *s, unsigned rank)
{
    if (!s->rank[rank].uses || s->rank[rank].settle.said) {
        return false;
    }
    say(s, rank);
    return true;
}

static bool deliver(job *s, unsigned from, unsigned to)
{
    queue *q = &s->way[from][to];
    wf_settle_word word = q->word[0];

    if (q->count == 0) {
        return false;
    }
    q->count--;
    memmove(q->word, q->word + 1, q->count * sizeof(word));
    memset(&q->word[q->count], 0, sizeof(word));
    switch (wf_settle_hear(&s->rank[to].settle, from, &word)) {
    case WF_SETTLE_SAY:
        say(s, to);
        break;
    case WF_SETTLE_ANSWER:
        send_word(s, to, from,
                  (wf_settle_word){.op = word.op, .first = WF_SETTLE_ALL});
        break;
    case WF_SETTLE_NOTHING:
        settle(s, to);
        break;
    }
    return true;
}

enum { ACTIONS = 2 + CHUNKS + RANKS };

static bool act(job *s, unsigned rank, unsigned action)
{
    if (action == 0) {
        return enter(s, rank);
    }
    if (action == 1) {
        return give_up(s, rank);
    }
    if (action < 2 + CHUNKS) {
        return result(s, rank, action - 2);
    }
    return deliver(s, rank, action - 2 - CHUNKS);
}

/* --- the walk ------------------------------------------------------------- */

typedef struct walk {
    uint64_t *seen;
    uint64_t size;
    uint64_t used;
    job *stack;
    size_t depth;
    size_t room;
    uint64_t ends;
} walk;

static void *grown(void *at, size_t bytes)
{
    at = realloc(at, bytes);
    if (at == NULL) {
        abort();
    }
    return at;
}

/* Without the addresses in it. */
static uint64_t hash_of(const job *s)
{
    job plain = *s;
    uint64_t h = 1469598103934665603u;

    for (unsigned r = 0; r < RANKS; r++) {
        plain.rank[r].settle.word = NULL;
    }
    for (size_t i = 0; i < sizeof(plain) / 4; i++) {
        uint32_t x;
        memcpy(&x, (const char *)&plain + 4 * i, 4);
        h = (h ^ x) * 0xff51afd7ed558ccdu;
        h ^= h >> 31;
    }
    return h | 1;
}

static bool add(walk *w, uint64_t hash)
{
    if (2 * w->used >= w->size) {
        walk old = *w;

        w->size = old.size == 0 ? 1024 : 4 * old.size;
        w->seen = calloc(w->size, sizeof(*w->seen));
        w->used = 0;
        for (uint64_t i = 0; i < old.size; i++) {
            if (old.seen[i] != 0) {
                add(w, old.seen[i]);
            }
        }
        free(old.seen);
    }
    for (uint64_t i = hash % w->size;; i = (i + 1) % w->size) {
        if (w->seen[i] == hash) {
            return false;
        }
        if (w->seen[i] == 0) {
            w->seen[i] = hash;
            w->used++;
            return true;
        }
    }
}

static void push(walk *w, const job *s)
{
    if (!add(w, hash_of(s))) {
        return;
    }
    if (w->depth == w->room) {
        w->room = 2 * w->room + 64;
        w->stack = grown(w->stack, w->room * sizeof(*w->stack));
    }
    w->stack[w->depth++] = *s;
}

static void check_end(const job *s)
{
    for (unsigned r = 0; r < p.ranks; r++) {
        if (s->rank[r].settle.op != OPS) {
            wrong("a rank waits for ever");
        }
    }
}

static void expand(walk *w, const job *s)
{
    static job next;
    bool moves = false;

    for (unsigned r = 0; r < p.ranks; r++) {
        for (unsigned a = 0; a < ACTIONS && fault == NULL; a++) {
            next = *s;
            attach(&next);
            if (a - 2 - CHUNKS < RANKS && a - 2 - CHUNKS >= p.ranks) {
                continue;
            }
            if (act(&next, r, a)) {
                /* That a rank gives up is its choice: without it, too, all must
                 * come to an end, or somebody has to be able to. */
                moves = true;
                push(w, &next);
            }
        }
    }
    if (!moves) {
        w->ends++;
        check_end(s);
    }
}

/* The number of states, or 0 if one is wrong. */
static uint64_t explore(plan which, uint64_t *ends)
{
    static job s;
    walk w = {.seen = NULL};
    job now;

    p = which;
    fault = NULL;
    memset(&s, 0, sizeof(s));
    for (unsigned r = 0; r < p.ranks; r++) {
        wf_settle_init(&s.rank[r].settle, r, p.ranks, s.rank[r].word);
    }
    push(&w, &s);
    while (w.depth > 0 && fault == NULL) {
        now = w.stack[--w.depth];
        expand(&w, &now);
    }
    free(w.seen);
    free(w.stack);
    *ends += w.ends;
    return fault == NULL ? w.used : 0;
}

/* --- tests ---------------------------------------------------------------- */

static void every_history_ends_with_equal_results(void **state)
{
    static const plan plans[] = {{1, 2, 1}, {2, 3, 1}, {2, 3, 2}, {2, 3, 3},
                                 {3, 1, 1}, {3, 2, 1}, {3, 2, 2}, {3, 3, 2}};
    uint64_t ends = 0;
    uint64_t states = 0;

    (void)state;
    for (unsigned i = 0; i < (WT_ASAN || WT_TSAN ? 6 : 8); i++) {
        uint64_t n = explore(plans[i], &ends);

        if (n == 0) {
            fail_msg("%u ranks, %u chunks, %u slots: %s", plans[i].ranks,
                     plans[i].chunks, plans[i].slots, fault);
        }
        states += n;
    }
    printf("%llu states, %llu ends\n", (unsigned long long)states,
           (unsigned long long)ends);
}

static void every_mistake_is_found(void **state)
{
    (void)state;
    for (int m = WF_AGG_SETTLE_MISTAKES + 1; m < WF_AGG_MISTAKES_END; m++) {
        uint64_t ends = 0;
        uint64_t states;

        wf_agg_mistake_made = m;
        states = explore((plan){3, 2, 2}, &ends);
        wf_agg_mistake_made = WF_AGG_NO_MISTAKE;
        printf("mistake %d: %s\n", m - WF_AGG_SETTLE_MISTAKES,
               states == 0 ? fault : "not found");
        assert_int_equal(states, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_history_ends_with_equal_results),
        cmocka_unit_test(every_mistake_is_found),
    };

    return cmocka_run_group_tests_name("agg_settle", tests, NULL, NULL);
}
