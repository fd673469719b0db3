/* SPDX-License-Identifier: Apache-2.0 */
/* Which ranks of a host are linked with one another. */
#include "mem/mesh.h"

#include "wt_cmocka.h"

/* Ranks up to which all are linked: none, few, as is usual, all. */
static const uint32_t mesh_limits[] = {0, 1, 8, 64, 300};

typedef void check_mesh(uint32_t count, uint32_t limit);

static void for_all_meshes(check_mesh *check)
{
    for (uint32_t count = 1; count <= 300; count++) {
        for (size_t i = 0; i < sizeof(mesh_limits) / sizeof(mesh_limits[0]);
             i++) {
            check(count, mesh_limits[i]);
        }
    }
}

static void check_symmetric(uint32_t count, uint32_t limit)
{
    for (uint32_t a = 0; a < count; a++) {
        assert_false(wf_mesh_linked(a, a, count, limit));
        for (uint32_t b = 0; b < a; b++) {
            assert_int_equal(wf_mesh_linked(a, b, count, limit),
                             wf_mesh_linked(b, a, count, limit));
        }
    }
}

static void links_have_two_ends_and_nobody_is_linked_with_itself(void **state)
{
    (void)state;
    for_all_meshes(check_symmetric);
}

static void check_star(uint32_t count, uint32_t limit)
{
    for (uint32_t a = 1; a < count; a++) {
        assert_true(wf_mesh_linked(0, a, count, limit));
    }
}

static void everybody_is_linked_with_0_and_so_with_everybody(void **state)
{
    (void)state;
    for_all_meshes(check_star);
}

static void check_whole(uint32_t count, uint32_t limit)
{
    for (uint32_t a = 0; a < count && count <= limit; a++) {
        for (uint32_t b = 0; b < a; b++) {
            assert_true(wf_mesh_linked(a, b, count, limit));
        }
    }
}

static void up_to_the_limit_all_are_linked_with_all(void **state)
{
    (void)state;
    for_all_meshes(check_whole);
}

/* A death is seen by neighbours even when rank 0 died too; and nobody but rank
 * 0 needs many descriptors. */
static void check_neighbours(uint32_t count, uint32_t limit)
{
    for (uint32_t a = 0; a < count; a++) {
        uint32_t links = 0;

        for (uint32_t b = 0; b < count; b++) {
            links += wf_mesh_linked(a, b, count, limit);
        }
        if (count > 1) {
            assert_true(wf_mesh_linked(a, (a + 1) % count, count, limit));
        }
        assert_true(links >= (count < 5 ? count - 1 : 4));
        assert_true(a == 0 || count <= limit || links <= 9);
    }
}

static void above_the_limit_neighbours_in_a_circle_are_linked(void **state)
{
    (void)state;
    for_all_meshes(check_neighbours);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(links_have_two_ends_and_nobody_is_linked_with_itself),
        cmocka_unit_test(everybody_is_linked_with_0_and_so_with_everybody),
        cmocka_unit_test(up_to_the_limit_all_are_linked_with_all),
        cmocka_unit_test(above_the_limit_neighbours_in_a_circle_are_linked),
    };

    return cmocka_run_group_tests_name("mesh", tests, NULL, NULL);
}
