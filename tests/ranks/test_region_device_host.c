/* SPDX-License-Identifier: Apache-2.0 */
/* Host regions that CUDA devices see, on the double: registered on first use,
 * once, and given back with the region. */
#include <string.h>
#include <unistd.h>

#include "cuda_double/double.h"
#include "wt.h"
#include "wt_cmocka.h"

#define PAGE 4096u

static void begin(wf_double_options machine)
{
    machine.tag = (uint32_t)getpid();
    machine.granule = PAGE;
    wf_driver_use(wf_double_start(&machine));
}

static weft_region *create(weft_world *world, uint64_t rows, uint64_t max_rows)
{
    weft_region_options options = {.size = sizeof(options),
                                   .max_rows = max_rows};
    weft_region *region = NULL;

    WT_OK(weft_region_create(weft_world_comm(world), 1, &rows, WEFT_U8,
                             &options, &region));
    return region;
}

/* Does the device see what the processor sees, over all of it? */
static void check_device_sees(weft_region *region, const wf_driver *cu,
                              uint64_t bytes)
{
    unsigned char *base = weft_region_base(region);
    wf_device device = {0};
    unsigned char got = 0;

    WT_OK(wf_device_open(cu, 0, &device));
    WT_OK(wf_device_enter(&device));
    for (uint64_t i = 0; i < bytes; i += i + 1000 < bytes ? 1000 : 1) {
        WT_CHECK(cu->cuMemcpyDtoH(&got, (uintptr_t)base + i, 1) == WF_CU_OK);
        WT_CHECK(got == base[i]);
    }
    wf_device_leave(&device);
    wf_device_close(&device);
}

static const wf_driver *driver(void)
{
    const wf_driver *cu = NULL;

    WT_OK(wf_driver_open("auto", &cu));
    return cu;
}

/* Counts are of the whole process, so ranks are processes here. */
static void once_body(weft_world *world)
{
    weft_region *region = create(world, 5 * PAGE + 1, 0);
    void *base = weft_region_base(region);

    WT_CHECK(wf_double_count().registered == 0);
    for (int i = 0; i < 3; i++) {
        WT_CHECK(weft_region_base_on(region, i % 2) == base);
        WT_CHECK(wf_double_count().registered == 1);
    }
    WT_CHECK(weft_region_base_on(region, -1) == base);
    WT_CHECK(weft_region_base_on(region, 2) == NULL);
    WT_CHECK(wf_double_count().depth == 0);
    memset(base, 3, 10);
    check_device_sees(region, driver(), 5 * PAGE + 1);
    weft_region_retain(region);
    weft_region_destroy(region);
    WT_CHECK(wf_double_count().registered == 1);
    weft_region_destroy(region);
    WT_CHECK(wf_double_count().registered == 0);
    WT_CHECK(wf_double_count().contexts == 0);
}

static void a_region_is_registered_once_and_given_back(void **state)
{
    (void)state;
    begin((wf_double_options){.devices = 2});
    wt_run(1, NULL, once_body);
    wt_run(3, NULL, once_body);
}

static void resized_body(weft_world *world)
{
    weft_region *region = create(world, 3 * PAGE, 40 * PAGE);
    const wf_driver *cu = driver();

    WT_CHECK(weft_region_base_on(region, 0) != NULL);
    WT_OK(weft_region_resize(region, 30 * PAGE + 5));
    check_device_sees(region, cu, 30 * PAGE + 5);
    WT_CHECK(wf_double_count().registered == 2);
    WT_OK(weft_region_resize(region, 2 * PAGE));
    check_device_sees(region, cu, 2 * PAGE);
    WT_CHECK(wf_double_count().registered == 1);
    WT_OK(weft_region_resize(region, 40 * PAGE));
    check_device_sees(region, cu, 40 * PAGE);
    weft_region_destroy(region);
    WT_CHECK(wf_double_count().registered == 0);
    WT_CHECK(wf_double_count().contexts == 0);
}

static void new_rows_are_registered_too(void **state)
{
    (void)state;
    begin((wf_double_options){0});
    wt_run(1, NULL, resized_body);
    wt_run(2, NULL, resized_body);
}

static void expect_untouched(void)
{
    WT_CHECK(wf_double_count().torn == 0);
    WT_CHECK(!wf_double_busy(0));
    WT_CHECK(!wf_double_busy(1));
    wf_double_launch(0);
    wf_double_launch(1);
}

/* Also on a device that came later than the one that registered it. */
static void waited_for_body(weft_world *world)
{
    weft_region *region = create(world, 3 * PAGE, 40 * PAGE);

    WT_CHECK(weft_region_base_on(region, 0) != NULL);
    WT_CHECK(weft_region_base_on(region, 1) != NULL);
    wf_double_launch(0);
    WT_OK(weft_region_resize(region, 30 * PAGE));
    WT_CHECK(wf_double_busy(0));
    wf_double_launch(1);
    WT_OK(weft_region_resize(region, 2 * PAGE));
    expect_untouched();
    weft_region_destroy(region);
    expect_untouched();
    WT_CHECK(wf_double_count().contexts == 0);
}

static void memory_goes_when_the_devices_are_done_with_it(void **state)
{
    (void)state;
    begin((wf_double_options){.devices = 2});
    wt_run(1, NULL, waited_for_body);
    wt_run(2, NULL, waited_for_body);
}

static void moved_body(weft_world *world)
{
    weft_region *region = create(world, PAGE, 0);

    WT_CHECK(weft_region_base_on(region, 0) == NULL);
    WT_CHECK(strstr(weft_error_detail(), "another address") != NULL);
    WT_CHECK(weft_region_base(region) != NULL);
    weft_region_destroy(region);
    WT_CHECK(wf_double_count().registered == 0);
}

static void an_address_that_differs_is_refused(void **state)
{
    (void)state;
    begin((wf_double_options){.moves_host = true});
    wt_run(1, NULL, moved_body);
}

static void refused_body(weft_world *world)
{
    unsigned nth = 0;

    do {
        weft_region *region = create(world, PAGE, 0);
        void *base;

        wf_double_fail_nth(++nth, WF_CU_NOT_PERMITTED);
        base = weft_region_base_on(region, 0);
        WT_CHECK(base != NULL || weft_error_detail()[0] != '\0');
        if (wf_double_fail_nth(0, 0) > 0) {
            WT_CHECK(base == weft_region_base(region));
            nth = 0;
        }
        /* What failed once succeeds the next time. */
        WT_CHECK(weft_region_base_on(region, 0) == weft_region_base(region));
        weft_region_destroy(region);
        WT_CHECK(wf_double_count().registered == 0);
        WT_CHECK(wf_double_count().contexts == 0);
        WT_CHECK(wf_double_count().depth == 0);
    } while (nth > 0);
}

static void any_call_may_fail_and_be_repeated(void **state)
{
    (void)state;
    begin((wf_double_options){0});
    wt_run(1, NULL, refused_body);
}

static void empty_body(weft_world *world)
{
    weft_region *region = create(world, 0, 0);

    WT_CHECK(weft_region_base_on(region, 0) == weft_region_base(region));
    WT_CHECK(wf_double_count().registered == 0);
    WT_CHECK(weft_region_base_on(NULL, 0) == NULL);
    weft_region_destroy(region);
    WT_CHECK(wf_double_count().contexts == 0);
}

static void an_empty_region_needs_no_registration(void **state)
{
    (void)state;
    begin((wf_double_options){0});
    wt_run(2, NULL, empty_body);
}

static void threads_body(weft_world *world)
{
    weft_region *region = create(world, 3 * PAGE, 0);

    for (int i = 0; i < 20; i++) {
        WT_CHECK(weft_region_base_on(region, i % 2) ==
                 weft_region_base(region));
    }
    weft_region_destroy(region);
}

static void ranks_of_one_process_register_each_its_own(void **state)
{
    (void)state;
    begin((wf_double_options){.devices = 2});
    wt_run_threads(3, NULL, threads_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_region_is_registered_once_and_given_back),
        cmocka_unit_test(new_rows_are_registered_too),
        cmocka_unit_test(memory_goes_when_the_devices_are_done_with_it),
        cmocka_unit_test(an_address_that_differs_is_refused),
        cmocka_unit_test(any_call_may_fail_and_be_repeated),
        cmocka_unit_test(an_empty_region_needs_no_registration),
        cmocka_unit_test(ranks_of_one_process_register_each_its_own),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
