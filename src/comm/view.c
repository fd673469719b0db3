/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/view.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/time.h"
#include "comm/comm.h"

struct weft_view {
    wf_segment segment;
    wf_boards boards;
};

static uint64_t load(const _Atomic uint64_t *at)
{
    return atomic_load_explicit(at, memory_order_relaxed);
}

/* A field that was written once, before the board was shown; but whoever looks
 * may look at anything. */
#define ONCE(field) __atomic_load_n(&(field), __ATOMIC_RELAXED)

/* --- is it a board? --------------------------------------------------------
 */

static weft_status check_kind(const wf_board *b)
{
    uint32_t version = ONCE(b->version);

    if (ONCE(b->magic) != WF_BOARD_MAGIC) {
        return wf_fail(WEFT_ERR_PROTOCOL, "this memory is no board of weft");
    }
    if (version != WF_BOARD_VERSION) {
        return wf_fail(WEFT_ERR_UNSUPPORTED,
                       "the job was started with another version of weft: its "
                       "board has layout %u, and this weft reads layout %u; "
                       "use the weft of the job",
                       version, WF_BOARD_VERSION);
    }
    return WEFT_OK;
}

static weft_status fail_malformed(void)
{
    return wf_fail(WEFT_ERR_PROTOCOL, "the board of the job is malformed");
}

weft_status wf_boards_check(const void *memory, size_t bytes, wf_boards *out)
{
    const wf_board *first = memory;
    wf_boards boards = {.base = memory, .shelves = UINT32_MAX};
    weft_status st;

    if (bytes < sizeof(*first)) {
        return wf_fail(WEFT_ERR_PROTOCOL, "this memory is no board of weft");
    }
    st = check_kind(first);
    if (st != WEFT_OK) {
        return st;
    }
    boards.size = ONCE(first->size);
    boards.count = ONCE(first->boards);
    boards.ranks = ONCE(first->ranks);
    if (boards.ranks == 0 || boards.ranks > WF_BOARD_RANKS_MAX ||
        boards.count == 0 || boards.count > boards.ranks ||
        boards.size % 64 != 0 || boards.size > bytes / boards.count) {
        return fail_malformed();
    }
    for (uint32_t i = 0; i < boards.count; i++) {
        const wf_board *b = (const void *)(boards.base + i * boards.size);
        uint32_t shelves = ONCE(b->shelves);

        if (shelves > boards.ranks ||
            wf_board_size(boards.ranks, shelves) > boards.size ||
            check_kind(b) != WEFT_OK) {
            return fail_malformed();
        }
        boards.shelves = shelves < boards.shelves ? shelves : boards.shelves;
    }
    *out = boards;
    return WEFT_OK;
}

/* --- ranks -----------------------------------------------------------------
 */

static const wf_board *board_at(const wf_boards *boards, uint32_t i)
{
    return (const wf_board *)(const void *)(boards->base + i * boards->size);
}

/* The board of a rank's own node; or the first, which tells what it heard. */
static const wf_board *board_of(const wf_boards *boards, uint32_t rank)
{
    for (uint32_t i = 0; i < boards->count; i++) {
        const wf_board *b = board_at(boards, i);

        if (ONCE(b->rank[rank].node) == ONCE(b->node)) {
            return b;
        }
    }
    return board_at(boards, 0);
}

static const wf_shelf *shelf_of(const wf_boards *boards, const wf_board *b,
                                uint32_t rank)
{
    uint32_t shelf = ONCE(b->rank[rank].shelf);
    /* What was counted when it was checked may have been changed since. */
    uint64_t at =
        wf_board_size(boards->ranks, 0) + (uint64_t)shelf * sizeof(wf_shelf);

    return shelf == WF_BOARD_NO_SHELF || at + sizeof(wf_shelf) > boards->size
               ? NULL
               : (const wf_shelf *)(const void *)((const char *)b + at);
}

/* How long others have waited for it: those of this host, and of its own. */
static uint64_t awaited(const wf_boards *boards, uint32_t rank, bool near)
{
    uint64_t sum =
        near ? 0 : load(&board_at(boards, 0)->rank[rank].awaited_there_ns);

    for (uint32_t i = 0; i < boards->count; i++) {
        sum += load(&board_at(boards, i)->rank[rank].awaited_ns);
    }
    return sum;
}

/* ,"name":1.5 or null. */
static void add_age(wf_text *t, const char *name, uint64_t since, uint64_t now)
{
    if (since == 0 || since > now) {
        wf_text_add(t, ",\"%s\":null", name);
    } else {
        wf_text_add(t, ",\"%s\":%.3f", name, (double)(now - since) / 1e9);
    }
}

/* What it does and waits for. `known`: somebody has told. */
static void add_doing(const wf_boards *boards, const wf_board_rank *e,
                      bool known, uint64_t now, wf_text *t)
{
    uint32_t for_rank =
        atomic_load_explicit(&e->waits_for, memory_order_relaxed);
    bool waits = known && (load(&e->waiting) != 0 || for_rank != 0);
    char text[192];

    if (!known) {
        wf_text_add(t, ",\"doing\":null,\"waiting\":null");
    } else {
        wf_comm_shown_text(e, text, sizeof(text));
        wf_text_add(t, ",\"doing\":");
        wf_view_string(t, text, sizeof(text));
        wf_text_add(t, ",\"waiting\":%s", waits ? "true" : "false");
    }
    if (known && for_rank != 0 && for_rank <= boards->ranks) {
        wf_text_add(t, ",\"waits_for\":%u", for_rank - 1);
    } else {
        wf_text_add(t, ",\"waits_for\":null");
    }
    /* A wait that has just begun leaves the time of an earlier one. */
    add_age(t, "waits_s",
            waits && (for_rank != 0 || atomic_load(&e->asleep) != 0)
                ? load(&e->since_ns)
                : 0,
            now);
}

static void add_counters(const wf_boards *boards, const wf_board_rank *e,
                         uint32_t rank, const wf_shelf *shelf, wf_text *t)
{
    wf_shelf_sum sum =
        shelf != NULL ? wf_shelf_add_up(shelf)
                      : (wf_shelf_sum){load(&e->keys), load(&e->keys_away),
                                       load(&e->copies), load(&e->stale_ns)};

    wf_text_add(t,
                ",\"operations\":%llu,\"bytes\":%llu,\"waited_s\":%.6f"
                ",\"awaited_s\":%.6f,\"keys\":%llu,\"keys_away\":%llu"
                ",\"copies\":%llu,\"stale_s\":%.6f",
                (unsigned long long)load(&e->operations),
                (unsigned long long)load(&e->bytes),
                (double)load(&e->waited_ns) / 1e9,
                (double)awaited(boards, rank, shelf != NULL) / 1e9,
                (unsigned long long)sum.keys, (unsigned long long)sum.keys_away,
                (unsigned long long)sum.copies, (double)sum.stale_ns / 1e9);
}

static void add_rank(const wf_boards *boards, uint32_t rank, uint64_t now,
                     wf_text *t)
{
    const wf_board *b = board_of(boards, rank);
    const wf_board_rank *e = &b->rank[rank];
    const wf_shelf *shelf = shelf_of(boards, b, rank);
    uint64_t heard = load(&e->heard_ns);

    wf_text_add(t, "%s{\"rank\":%u,\"pid\":%d,\"node\":%u,\"host\":",
                rank > 0 ? "," : "", rank, ONCE(e->pid), ONCE(e->node));
    wf_view_string(t, e->host, sizeof(e->host));
    wf_text_add(t, ",\"here\":%s,\"state\":\"%s\"",
                shelf != NULL ? "true" : "false",
                wf_board_state_name(atomic_load(&e->state)));
    add_age(t, "age_s", shelf != NULL ? now : heard, now);
    add_doing(boards, e, shelf != NULL || heard != 0, now, t);
    add_counters(boards, e, rank, shelf, t);
    wf_view_things(shelf, t);
    wf_text_add(t, "}");
}

void wf_boards_json(const wf_boards *boards, uint64_t now_ns, wf_text *t)
{
    const wf_board *b = board_at(boards, 0);

    wf_text_add(t, "{\"layout\":%u,\"job\":\"%016llx\",\"name\":",
                WF_BOARD_VERSION, (unsigned long long)ONCE(b->job));
    wf_view_string(t, b->name, sizeof(b->name));
    wf_text_add(t, ",\"began\":%.3f,\"now\":%.6f,\"nodes\":%u,\"ranks\":[",
                (double)ONCE(b->began_ns) / 1e9, (double)now_ns / 1e9,
                ONCE(b->nodes));
    for (uint32_t r = 0; r < boards->ranks; r++) {
        add_rank(boards, r, now_ns, t);
    }
    wf_text_add(t, "]}");
}

/* --- the public calls ------------------------------------------------------
 */

weft_status weft_view_open(int fd, weft_view **out)
{
    weft_view *view;
    struct stat s;
    weft_status st;
    int own;

    if (out == NULL || fstat(fd, &s) != 0) {
        return wf_fail(WEFT_ERR_INVALID, "out is NULL, or %d is not open", fd);
    }
    view = wf_zalloc(sizeof(*view));
    if (view == NULL) {
        return wf_fail_nomem("a view of a job");
    }
    own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (own < 0) {
        st = wf_fail_errno("duplicating a descriptor");
        wf_free(view);
        return st;
    }
    st = s.st_size >= (off_t)sizeof(wf_board)
             ? wf_segment_attach(WF_BOARD_NAME, own, (size_t)s.st_size, false,
                                 &view->segment)
             : wf_fail(WEFT_ERR_PROTOCOL, "this is no board of weft");
    if (s.st_size < (off_t)sizeof(wf_board)) {
        close(own);
    }
    if (st == WEFT_OK) {
        st = wf_boards_check(view->segment.base, (size_t)s.st_size,
                             &view->boards);
    }
    if (st != WEFT_OK) {
        weft_view_close(view);
        return st;
    }
    *out = view;
    return WEFT_OK;
}

void weft_view_close(weft_view *view)
{
    if (view != NULL) {
        wf_segment_close(&view->segment);
        wf_free(view);
    }
}

size_t weft_view_json(const weft_view *view, char *text, size_t room)
{
    wf_text t = wf_text_at(text, room);

    if (view != NULL) {
        wf_boards_json(&view->boards, wf_now_ns(), &t);
    }
    return t.length;
}
