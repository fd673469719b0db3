/* SPDX-License-Identifier: Apache-2.0 */
/* Counters and shelves of a board, and reading them from outside. */
#include "comm/view.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/time.h"
#include "wt.h"
#include "wt_cmocka.h"

enum { RANKS = 3, BYTES = 1 << 16 };

static wf_board *made; /* of one node, that of ranks 0 and 1 */

static void board_make(void)
{
    made = aligned_alloc(64, BYTES);
    assert_non_null(made);
    memset((void *)made, 0, BYTES);
    made->magic = WF_BOARD_MAGIC;
    made->version = WF_BOARD_VERSION;
    made->ranks = RANKS;
    made->boards = 1;
    made->shelves = 2;
    made->nodes = 2;
    made->size = wf_board_size(RANKS, 2);
    strcpy(made->name, "a \"job\"\n");
    assert_true(made->size <= BYTES);
    for (uint32_t r = 0; r < RANKS; r++) {
        made->rank[r].rank = r;
        made->rank[r].node = r / 2;
        made->rank[r].shelf = r < 2 ? r : WF_BOARD_NO_SHELF;
        atomic_store(&made->rank[r].state, WF_BOARD_HERE);
    }
}

/* To be freed; NULL if it is refused. */
static char *seen(void)
{
    wf_boards boards;
    wf_text t = wf_text_at(NULL, 0);
    char *text;

    if (wf_boards_check(made, BYTES, &boards) != WEFT_OK) {
        return NULL;
    }
    wf_boards_json(&boards, wf_now_ns(), &t);
    text = malloc(t.length + 1);
    assert_non_null(text);
    t = wf_text_at(text, t.length + 1);
    wf_boards_json(&boards, wf_now_ns(), &t);
    return text;
}

static void sees(const char *what)
{
    char *text = seen();

    assert_non_null(text);
    if (strstr(text, what) == NULL) {
        fail_msg("%s is not in %s", what, text);
    }
    free(text);
}

static void counters_of_a_rank_are_seen(void **state)
{
    (void)state;
    board_make();
    wf_count_alone(&made->rank[1].operations, 7);
    wf_count_alone(&made->rank[1].bytes, 4096);
    sees("\"operations\":7,\"bytes\":4096");
    sees("\"name\":\"a ?job??\"");
    free(made);
}

static void what_other_nodes_tell_is_seen_with_its_age(void **state)
{
    (void)state;
    board_make();
    sees("\"age_s\":null,\"doing\":null");
    atomic_store(&made->rank[2].heard_ns, wf_now_ns() - 2 * WF_SEC);
    atomic_store(&made->rank[2].operations, 99);
    atomic_store(&made->rank[2].awaited_ns, WF_SEC);
    atomic_store(&made->rank[2].awaited_there_ns, WF_SEC);
    sees("\"age_s\":2.");
    sees("\"operations\":99");
    sees("\"awaited_s\":2.000000");
    free(made);
}

static void the_arena_of_a_rank_is_seen(void **state)
{
    wf_shown_arena *arena;

    (void)state;
    board_make();
    arena = &wf_board_shelf(made, 1)->arena;
    sees("\"arena\":null");
    atomic_store(&arena->room, 1 << 20);
    atomic_store(&arena->in_use, 8192);
    atomic_store(&arena->blocks, 2);
    sees(
        "\"arena\":{\"room\":1048576,\"in_use\":8192,\"kept\":0,\"blocks\":2}");
    free(made);
}

static void a_place_on_a_shelf_is_taken_once_and_given_back(void **state)
{
    wf_shelf *shelf;
    wf_shown_region *first;

    (void)state;
    board_make();
    shelf = wf_board_shelf(made, 1);
    assert_null(wf_board_shelf(made, 2));
    first = wf_shelf_take_region(shelf);
    for (uint32_t i = 1; i < WF_SHELF_REGIONS; i++) {
        assert_non_null(wf_shelf_take_region(shelf));
    }
    assert_null(wf_shelf_take_region(shelf));
    assert_null(wf_shelf_take_region(NULL));
    first->dims = 2;
    atomic_store(&first->shape[0], 10);
    atomic_store(&first->count.gathers, 5);
    wf_shelf_show(&first->id, 42);
    sees("\"shape\":[10,0]");
    wf_shelf_give_region(first);
    sees("\"regions\":[],\"stores\":[]");
    assert_ptr_equal(wf_shelf_take_region(shelf), first);
    assert_int_equal(atomic_load(&first->count.gathers), 0);
    free(made);
}

static void workers_of_a_store_count_apart_and_are_added_up(void **state)
{
    wf_shown_store *store;
    wf_shown_worker *worker;

    (void)state;
    board_make();
    store = wf_shelf_take_store(wf_board_shelf(made, 0));
    worker = wf_shelf_take_worker(store);
    wf_count_alone(&worker->count.pulls, 3);
    wf_count_alone(&wf_shelf_take_worker(store)->count.pushes, 4);
    atomic_store(&store->ended_pulls, 10);
    atomic_store(&store->count.away_pulls, 2);
    wf_shelf_show(&store->id, 1);
    sees("\"pulls\":13,\"pushes\":4");
    sees("\"keys\":17,\"keys_away\":2");
    wf_shelf_give_worker(worker);
    assert_int_equal(wf_shelf_keys(store).pulls, 10);
    free(made);
}

static void keys_that_are_met_often_are_found(void **state)
{
    wf_shown_store *store;
    uint64_t best = 0;

    (void)state;
    board_make();
    store = wf_shelf_take_store(wf_board_shelf(made, 0));
    for (int64_t i = 0; i < 100000; i++) {
        wf_hot_meet(&store->hot, i % 4 == 0 ? -7 : i);
    }
    for (uint32_t i = 0; i < WF_SHELF_HOT; i++) {
        uint64_t n = atomic_load(&store->hot.key[i].count);

        if (atomic_load(&store->hot.key[i].key) == -7) {
            best = n;
        }
    }
    assert_true(best >= atomic_load(&store->hot.samples) / 5);
    assert_true(atomic_load(&store->hot.samples) < 4096);
    free(made);
}

static void another_layout_and_other_memory_are_refused(void **state)
{
    (void)state;
    board_make();
    made->version = WF_BOARD_VERSION + 1;
    assert_null(seen());
    assert_non_null(strstr(weft_error_detail(), "another version"));
    made->version = WF_BOARD_VERSION;
    made->magic++;
    assert_null(seen());
    assert_non_null(strstr(weft_error_detail(), "no board"));
    made->magic--;
    made->ranks = UINT32_MAX;
    assert_null(seen());
    made->ranks = RANKS;
    made->shelves = RANKS;
    assert_null(seen());
    made->shelves = 2;
    made->boards = 2;
    assert_null(seen());
    made->boards = 1;
    made->size = UINT64_MAX - 63;
    assert_null(seen());
    free(made);
}

static void descriptors_of_other_files_are_refused(void **state)
{
    weft_view *view = NULL;
    int fd = memfd_create("nothing", MFD_CLOEXEC);

    (void)state;
    assert_int_equal(weft_view_open(fd, &view), WEFT_ERR_PROTOCOL);
    assert_int_equal(ftruncate(fd, 1 << 16), 0);
    assert_int_equal(weft_view_open(fd, &view), WEFT_ERR_PROTOCOL);
    assert_int_equal(weft_view_open(-1, &view), WEFT_ERR_INVALID);
    assert_null(view);
    close(fd);
    weft_view_close(NULL);
}

/* All of it but what makes it a board is garbage, many times over. */
static void garbage_on_a_board_is_read_without_harm(void **state)
{
    uint64_t x = 88172645463325252ull;

    (void)state;
    for (int round = 0; round < 200; round++) {
        unsigned char *bytes;
        uint64_t size; /* the board's own word for it may become garbage */

        board_make();
        bytes = (unsigned char *)made;
        size = made->size;
        for (int i = 0; i < 4000; i++) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            /* Every other round leaves the head alone. */
            bytes[(round % 2 == 0 ? 256 : 8) + x % (size - 300)] =
                (unsigned char)(x >> 56);
            if (round % 2 != 0 && i > 40) {
                break;
            }
        }
        free(seen());
        free(made);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counters_of_a_rank_are_seen),
        cmocka_unit_test(what_other_nodes_tell_is_seen_with_its_age),
        cmocka_unit_test(the_arena_of_a_rank_is_seen),
        cmocka_unit_test(a_place_on_a_shelf_is_taken_once_and_given_back),
        cmocka_unit_test(workers_of_a_store_count_apart_and_are_added_up),
        cmocka_unit_test(keys_that_are_met_often_are_found),
        cmocka_unit_test(another_layout_and_other_memory_are_refused),
        cmocka_unit_test(descriptors_of_other_files_are_refused),
        cmocka_unit_test(garbage_on_a_board_is_read_without_harm)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
