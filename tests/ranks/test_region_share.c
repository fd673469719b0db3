/* SPDX-License-Identifier: Apache-2.0 */
/* The descriptor of a region's memory, for processes that are no ranks. */
#include <sys/mman.h>
#include <unistd.h>

#include "wt.h"
#include "wt_cmocka.h"

#define ROWS 1009

static weft_region *make(weft_world *world, weft_reach reach)
{
    uint64_t shape[] = {ROWS, 5};
    weft_region_options o = {.size = sizeof(o), .reach = reach};
    weft_region *region = NULL;

    WT_OK(weft_region_create(weft_world_comm(world), 2, shape, WEFT_I32, &o,
                             &region));
    return region;
}

static void descriptor_body(weft_world *world)
{
    weft_region *region = make(world, WEFT_REACH_AUTO);
    int32_t *base = weft_region_base(region);
    uint64_t offset = 1;
    uint64_t bytes = 0;
    int fd = -1;
    int32_t *other;

    WT_OK(weft_region_descriptor(region, &fd, &offset, &bytes));
    WT_CHECK(fd >= 0 && bytes >= ROWS * 5 * sizeof(int32_t));
    other = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                 (off_t)offset);
    WT_CHECK(other != MAP_FAILED && other != base);
    close(fd);
    other[weft_world_rank(world)] = 7 + (int32_t)weft_world_rank(world);
    WT_OK(weft_region_barrier(region, 0));
    for (uint32_t r = 0; r < weft_world_size(world); r++) {
        WT_CHECK(base[r] == 7 + (int32_t)r);
    }
    weft_region_destroy(region);
    WT_CHECK(other[0] == 7); /* the mapping keeps the memory */
    munmap(other, bytes);
}

static void a_descriptor_maps_the_same_memory(void **state)
{
    (void)state;
    wt_run(1, NULL, descriptor_body);
    wt_run(3, NULL, descriptor_body);
}

static void refused_body(weft_world *world)
{
    weft_region *region = make(world, WEFT_REACH_DISTRIBUTED);
    weft_region *mapped = make(world, WEFT_REACH_AUTO);
    uint64_t n;
    int fd = -1;

    WT_STATUS(weft_region_descriptor(region, &fd, &n, &n),
              WEFT_ERR_UNSUPPORTED);
    WT_STATUS(weft_region_descriptor(NULL, &fd, &n, &n), WEFT_ERR_INVALID);
    WT_STATUS(weft_region_descriptor(mapped, NULL, &n, &n), WEFT_ERR_INVALID);
    WT_STATUS(weft_region_descriptor(mapped, &fd, NULL, &n), WEFT_ERR_INVALID);
    WT_STATUS(weft_region_descriptor(mapped, &fd, &n, NULL), WEFT_ERR_INVALID);
    WT_CHECK(fd == -1);
    weft_region_destroy(region);
    weft_region_destroy(mapped);
}

static void parts_that_are_not_mapped_have_no_single_descriptor(void **state)
{
    (void)state;
    wt_run(2, NULL, refused_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_descriptor_maps_the_same_memory),
        cmocka_unit_test(parts_that_are_not_mapped_have_no_single_descriptor),
    };

    return cmocka_run_group_tests_name("region_share", tests, NULL, NULL);
}
