/* SPDX-License-Identifier: Apache-2.0 */
/* Huge pages in the arena: the kernel is asked for them, unless WEFT_HUGE is
 * off, and where it gives them blocks lie in some. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wt.h"
#include "wt_cmocka.h"

#define BLOCK_BYTES ((size_t)64 << 20)
#define POLICY "/sys/kernel/mm/transparent_hugepage/shmem_enabled"

/* Is this what the kernel does for shared memory: "advise"? */
static bool policy_is(const char *name)
{
    FILE *f = fopen(POLICY, "re");
    char text[128] = "";
    char chosen[32];

    if (f != NULL) {
        (void)!fgets(text, sizeof(text), f);
        fclose(f);
    }
    snprintf(chosen, sizeof(chosen), "[%s]", name);
    return strstr(text, chosen) != NULL;
}

static bool has_policy(void)
{
    FILE *f = fopen(POLICY, "re");

    if (f != NULL) {
        fclose(f);
    }
    return f != NULL;
}

/* The line `key` of what the kernel says of the mapping that `at` lies in. */
static void mapping_line(const void *at, const char *key, char *line, int room)
{
    FILE *f = fopen("/proc/self/smaps", "re");
    unsigned long from;
    unsigned long until;
    bool inside = false;

    WT_CHECK(f != NULL);
    while (fgets(line, room, f) != NULL) {
        if (sscanf(line, "%lx-%lx ", &from, &until) == 2) {
            inside = (unsigned long)at >= from && (unsigned long)at < until;
        } else if (inside && strncmp(line, key, strlen(key)) == 0) {
            fclose(f);
            return;
        }
    }
    WT_FAIL("the kernel says no %s of a block", key);
}

static bool is_advised(const void *at)
{
    char line[256];

    mapping_line(at, "VmFlags:", line, sizeof(line));
    return strstr(line, " hg") != NULL;
}

static unsigned long huge_kib(const void *at)
{
    char line[256];

    mapping_line(at, "ShmemPmdMapped:", line, sizeof(line));
    return strtoul(line + strlen("ShmemPmdMapped:"), NULL, 10);
}

static void *block_of(weft_world *world)
{
    void *at = NULL;

    if (!has_policy()) {
        WT_SKIP("this kernel has no huge pages for shared memory");
    }
    WT_OK(weft_arena_alloc(world, BLOCK_BYTES, &at));
    return at;
}

static void advised_body(weft_world *world)
{
    void *at = block_of(world);

    WT_CHECK(is_advised(at));
    weft_arena_free(at);
}

static void not_advised_body(weft_world *world)
{
    void *at = block_of(world);

    WT_CHECK(!is_advised(at));
    WT_CHECK(huge_kib(at) == 0 || !policy_is("advise"));
    weft_arena_free(at);
}

static void huge_pages_are_asked_for_unless_the_setting_says_no(void **state)
{
    (void)state;
    wt_run(1, "HUGE=thp", advised_body);
    wt_run(1, "HUGE=off", not_advised_body);
}

static void huge_body(weft_world *world)
{
    void *at = NULL;

    if (policy_is("never") || policy_is("deny") || !has_policy()) {
        WT_SKIP("this kernel gives shared memory no huge pages (" POLICY ")");
    }
    at = block_of(world);
    WT_CHECK(huge_kib(at) >= 2048);
    weft_arena_free(at);
}

static void where_the_kernel_has_them_a_block_lies_in_huge_pages(void **state)
{
    (void)state;
    wt_run(1, "HUGE=thp", huge_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(huge_pages_are_asked_for_unless_the_setting_says_no),
        cmocka_unit_test(where_the_kernel_has_them_a_block_lies_in_huge_pages),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
