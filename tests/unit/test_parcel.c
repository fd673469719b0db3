/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of parcels, as a transport hands them in. */
#include <string.h>

#include "base/alloc.h"
#include "store/parcel.h"
#include "wt_cmocka.h"
#include "wt_fault.h"

enum { STORE = 5, PIECE = 64, WHOLE = 2 * PIECE };

static unsigned parcels;

static void read_parcel(struct weft_store *store, uint32_t from,
                        const wf_parcel *parcel, const void *body)
{
    (void)store;
    assert_int_equal(from, 0);
    assert_int_equal(parcel->bytes, WHOLE);
    assert_int_equal(((const char *)body)[WHOLE - 1], 'x');
    parcels++;
}

static void hand_in(weft_world *world, uint64_t at)
{
    wf_parcel piece = {.store = STORE, .bytes = WHOLE, .at = at};
    char bytes[PIECE];

    memset(bytes, 'x', sizeof(bytes));
    pthread_mutex_lock(&world->drive);
    wf_parcel_on_piece(world, 0, &piece, sizeof(piece), bytes, sizeof(bytes));
    pthread_mutex_unlock(&world->drive);
}

static weft_world *alone(void)
{
    weft_world_options o = {.size = sizeof(o)};
    weft_world *world = NULL;

    assert_int_equal(weft_world_create(&o, &world), WEFT_OK);
    return world;
}

static void a_parcel_is_read_when_its_last_piece_has_come(void **state)
{
    weft_world *world = alone();
    wf_parcel_box box = {.store = STORE, .read = read_parcel};

    (void)state;
    parcels = 0;
    assert_int_equal(wf_parcel_box_open(world, &box), WEFT_OK);
    hand_in(world, 0);
    assert_int_equal(parcels, 0);
    hand_in(world, PIECE);
    assert_int_equal(parcels, 1);
    hand_in(world, PIECE); /* its beginning was not sent */
    hand_in(world, 0);     /* its end is not */
    assert_int_equal(parcels, 1);
    wf_parcel_box_close(world, &box);
    weft_world_destroy(world);
}

/* Nobody would free it: the last store that is closed frees the others. */
static void a_piece_to_a_store_that_is_closed_is_not_kept(void **state)
{
    weft_world *world = alone();

    (void)state;
    wf_alloc_fail_nth(1);
    hand_in(world, 0);
    assert_true(wt_starved_left(1));
    weft_world_destroy(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_parcel_is_read_when_its_last_piece_has_come),
        cmocka_unit_test(a_piece_to_a_store_that_is_closed_is_not_kept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
