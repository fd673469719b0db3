/* SPDX-License-Identifier: Apache-2.0 */
/* Control groups: which ones count, and what they leave. The kernel's files are
 * written into a folder of the test. */
#include "mem/cgroup.h"

#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "mem/segment.h"
#include "wt_cmocka.h"
#include "wt_file.h"

#define MIB(n) ((uint64_t)(n) << 20)

static char root[64];

static int root_make(void **state)
{
    static unsigned count;

    (void)state;
    snprintf(root, sizeof(root), "%s", wt_path("root"));
    snprintf(root + strlen(root), sizeof(root) - strlen(root), "%u", count++);
    return mkdir(root, 0700);
}

static int remove_one(const char *path, const struct stat *s, int kind,
                      struct FTW *at)
{
    (void)s;
    (void)kind;
    (void)at;
    return remove(path);
}

static int root_remove(void **state)
{
    (void)state;
    return nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* Write one of the kernel's files, with the folders above it. */
static void put(const char *name, const char *text)
{
    char path[1024];

    snprintf(path, sizeof(path), "%s%s", root, name);
    for (char *at = path + strlen(root) + 1; (at = strchr(at, '/')) != NULL;
         at++) {
        *at = '\0';
        (void)mkdir(path, 0700);
        *at = '/';
    }
    wt_file_write(path, text, strlen(text));
}

static void put_number(const char *group, const char *name, uint64_t value)
{
    char path[512];
    char text[32];

    snprintf(path, sizeof(path), "%s/%s", group, name);
    snprintf(text, sizeof(text), "%llu\n", (unsigned long long)value);
    put(path, text);
}

#define V2 "/sys/fs/cgroup"
#define V1 "/sys/fs/cgroup/memory"

static void put_v2(const char *group, uint64_t limit, uint64_t used)
{
    put_number(group, "memory.max", limit);
    put_number(group, "memory.current", used);
}

static void put_v1(const char *group, uint64_t limit, uint64_t used)
{
    put_number(group, "memory.limit_in_bytes", limit);
    put_number(group, "memory.usage_in_bytes", used);
    put_number(group, "memory.use_hierarchy", 1);
}

static void put_mount_v2(const char *below, const char *at)
{
    char line[256];

    snprintf(line, sizeof(line),
             "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
             "30 22 0:26 %s %s rw,nosuid shared:4 - cgroup2 cgroup2 rw\n",
             below, at);
    put("/proc/self/mountinfo", line);
}

static void put_mount_v1(const char *below)
{
    char line[512];

    snprintf(line, sizeof(line),
             "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
             "34 31 0:31 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
             "35 31 0:32 %s " V1 " rw,relatime - cgroup cgroup rw,memory\n"
             "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
             below);
    put("/proc/self/mountinfo", line);
}

static wf_cgroups ask_for(uint64_t enough)
{
    wf_cgroups groups;

    wf_cgroups_read(root, enough, &groups);
    return groups;
}

static uint64_t room(void)
{
    wf_cgroups groups = ask_for(UINT64_MAX);

    return wf_cgroups_room(&groups);
}

static uint64_t limit(void)
{
    wf_cgroups groups = ask_for(UINT64_MAX);

    return wf_cgroups_limit(&groups);
}

static void pages_of_files_count_as_free(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/job\n");
    put_mount_v2("/", V2);
    put_v2(V2 "/job", MIB(100), MIB(99));
    assert_int_equal(room(), MIB(1));
    put(V2 "/job/memory.stat", "anon 10485760\n"
                               "file 83886080\n"
                               "shmem 10485760\n"
                               "inactive_anon 10485760\n"
                               "inactive_file 52428800\n"
                               "active_file 20971520\n"
                               "slab_reclaimable 1048576\n"
                               "workingset_activate_file 9999999\n");
    assert_int_equal(room(), MIB(1 + 50 + 20 + 1));
    /* More than is used cannot be taken back, nor more than the limit. */
    put(V2 "/job/memory.stat", "inactive_file 18446744073709551615\n"
                               "active_file 18446744073709551615\n");
    assert_int_equal(room(), MIB(100));
    put_v2(V2 "/job", MIB(100), MIB(150));
    assert_int_equal(room(), MIB(100));
    put(V2 "/job/memory.stat", "inactive_file 10485760\n");
    assert_int_equal(room(), 0);
}

static void what_can_be_dropped_is_looked_up_only_if_it_matters(void **state)
{
    wf_cgroups groups;

    (void)state;
    put("/proc/self/cgroup", "0::/job\n");
    put_mount_v2("/", V2);
    put_v2(V2 "/job", MIB(100), MIB(40));
    put(V2 "/job/memory.stat", "inactive_file 10485760\n");
    groups = ask_for(MIB(60));
    assert_int_equal(wf_cgroups_room(&groups), MIB(60));
    groups = ask_for(MIB(60) + 1);
    assert_int_equal(wf_cgroups_room(&groups), MIB(70));
}

static void the_least_room_of_all_groups_above_counts(void **state)
{
    wf_cgroups groups;
    wf_cgroup_ids ids;

    (void)state;
    put("/proc/self/cgroup", "0::/a/b/c/d\n");
    put_mount_v2("/", V2);
    put_v2(V2 "/a/b/c/d", MIB(500), MIB(10));
    put(V2 "/a/b/c/memory.max", "max\n");
    put_v2(V2 "/a/b", MIB(300), MIB(200));
    put_v2(V2 "/a", MIB(400), MIB(310));
    put(V2 "/a/memory.stat", "inactive_file 5242880\n");
    assert_int_equal(room(), MIB(95));
    assert_int_equal(limit(), MIB(300));
    groups = ask_for(UINT64_MAX);
    assert_int_equal(groups.count, 3);
    assert_int_equal(groups.group[0].limit, MIB(500));
    assert_int_equal(groups.group[2].limit, MIB(400));
    wf_cgroups_ids(&groups, &ids);
    for (unsigned i = 0; i < 3; i++) {
        assert_true(ids.id[i] != 0);
        assert_true(wf_cgroup_ids_have(&ids, groups.group[i].id));
    }
    assert_int_equal(ids.id[3], 0);
}

static void groups_nested_deeper_than_we_tell_apart_still_count(void **state)
{
    char path[256] = "";
    char line[300];
    wf_cgroups groups;

    (void)state;
    for (unsigned i = 0; i < 2 * WF_CGROUPS; i++) {
        char group[300];

        strcat(path, "/g");
        snprintf(group, sizeof(group), V2 "%s", path);
        put_v2(group, MIB(i == 1 ? 50 : 100), MIB(10));
    }
    snprintf(line, sizeof(line), "0::%s\n", path);
    put("/proc/self/cgroup", line);
    put_mount_v2("/", V2);
    groups = ask_for(UINT64_MAX);
    assert_int_equal(groups.count, WF_CGROUPS);
    assert_int_equal(wf_cgroups_room(&groups), MIB(40));
}

static void version_1_is_read_as_well(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "9:name=systemd:/x\n"
                             "4:hugetlb,memory:/jobs/one\n"
                             "1:cpu:/\n"
                             "0::/\n");
    put_mount_v1("/");
    put_v1(V1, 9223372036854771712u, MIB(4000));
    put_v1(V1 "/jobs", MIB(2000), MIB(1000));
    put_v1(V1 "/jobs/one", MIB(100), MIB(90));
    assert_int_equal(room(), MIB(10));
    assert_int_equal(limit(), MIB(100));
    put(V1 "/jobs/one/memory.stat", "inactive_file 1048576\n"
                                    "total_inactive_file 31457280\n"
                                    "total_active_file 20971520\n");
    assert_int_equal(room(), MIB(60));
    /* What was swapped out counts against memory and swap together. */
    put_number(V1 "/jobs/one", "memory.memsw.limit_in_bytes", MIB(100));
    put_number(V1 "/jobs/one", "memory.memsw.usage_in_bytes", MIB(120));
    assert_int_equal(room(), MIB(30));
}

static void a_group_of_version_1_may_count_only_itself(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "4:memory:/jobs/one\n");
    put_mount_v1("/");
    put_v1(V1 "/jobs", MIB(10), MIB(10));
    put_v1(V1 "/jobs/one", MIB(100), MIB(90));
    assert_int_equal(room(), 0);
    put_number(V1 "/jobs", "memory.use_hierarchy", 0);
    put_number(V1 "/jobs/one", "memory.use_hierarchy", 0);
    assert_int_equal(room(), MIB(10));
}

/* The container's own group is the top of what is mounted, and the limit is
 * that of the group above it. */
static void a_container_sees_a_limit_that_is_set_above_it(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "4:memory:/docker/8f3a\n");
    put_mount_v1("/docker/8f3a");
    put_v1(V1, 9223372036854771712u, MIB(90));
    put(V1 "/memory.stat", "hierarchical_memory_limit 104857600\n"
                           "total_inactive_file 1048576\n");
    assert_int_equal(limit(), MIB(100));
    assert_int_equal(room(), MIB(11));
}

static void both_versions_count_where_both_have_limits(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "4:memory:/one\n0::/two\n");
    put_mount_v1("/");
    put_v1(V1 "/one", MIB(100), MIB(50));
    assert_int_equal(room(), MIB(50));
    put_v2("/sys/fs/cgroup/unified/two", MIB(100), MIB(80));
    assert_int_equal(room(), MIB(20));
}

/* What the process knows as its path need not be where it is mounted. */
static void paths_of_namespaces_lead_to_the_top_of_the_mount(void **state)
{
    static const char *const paths[] = {"0::/\n", "0::/../../other\n",
                                        "0::/docker/8f3a\n",
                                        "0::/kubepods/pod1/8f3a\n"};
    static const char *const roots[] = {"/", "/docker/8f3a", "/..", "/docke"};

    (void)state;
    put_v2(V2, MIB(100), MIB(40));
    for (unsigned p = 0; p < 4; p++) {
        for (unsigned r = 0; r < 4; r++) {
            put("/proc/self/cgroup", paths[p]);
            put_mount_v2(roots[r], V2);
            assert_int_equal(room(), MIB(60));
        }
    }
}

static void of_two_mounts_that_which_shows_more_is_taken(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/a/b\n");
    put("/proc/self/mountinfo",
        "30 22 0:26 /a/b /inner rw - cgroup2 cgroup2 rw\n"
        "31 22 0:26 / /outer\\040one rw - cgroup2 none rw\n"
        "32 22 0:26 /a /middle rw - cgroup2 cgroup2 rw\n"
        "33 22 0:26 /elsewhere /other rw - cgroup2 cgroup2 rw\n");
    put_v2("/inner", MIB(100), MIB(10));
    put_v2("/middle/b", MIB(100), MIB(10));
    put_v2("/other", MIB(1), MIB(1));
    put_v2("/outer one/a/b", MIB(100), MIB(10));
    put_v2("/outer one/a", MIB(100), MIB(70));
    assert_int_equal(room(), MIB(30));
}

static void what_is_missing_or_not_understood_sets_no_limit(void **state)
{
    (void)state;
    assert_int_equal(room(), UINT64_MAX);
    put("/proc/self/cgroup", "0::/job\n\n::\n4:memory\n:memory:\n");
    assert_int_equal(room(), UINT64_MAX);
    put("/proc/self/mountinfo", "30 22 - cgroup2\n - \n\n30 22 0:26 / /x rw -\n"
                                "1 2 3 4 5 6 - cgroup2 cgroup2 rw\n");
    assert_int_equal(room(), UINT64_MAX);
    put_mount_v2("/", V2);
    assert_int_equal(room(), UINT64_MAX);
    put(V2 "/job/memory.max", "max\n");
    put(V2 "/job/memory.current", "4096\n");
    assert_int_equal(room(), UINT64_MAX);
    put(V2 "/job/memory.max", "-5\n");
    assert_int_equal(room(), UINT64_MAX);
    put(V2 "/job/memory.max", "12345 bytes\n");
    assert_int_equal(room(), UINT64_MAX);
    put(V2 "/job/memory.max", "8192\n");
    assert_int_equal(room(), 4096);
    put(V2 "/job/memory.current", "");
    assert_int_equal(room(), UINT64_MAX);
}

/* The number of a group's directory. */
static uint64_t number_of(const char *group)
{
    char path[1024];
    struct stat s;

    snprintf(path, sizeof(path), "%s%s", root, group);
    assert_int_equal(stat(path, &s), 0);
    return (uint64_t)s.st_ino;
}

static void cores_are_shared_by_the_nearest_group_that_has_weight(void **state)
{
    (void)state;
    put_mount_v2("/", V2);
    put("/proc/self/cgroup", "0::/a/b\n");
    put_number(V2 "/a/b", "memory.max", 1);
    assert_int_equal(wf_cgroup_scheduled(root), 0);
    put_number(V2 "/a", "cpu.weight", 100);
    assert_int_equal(wf_cgroup_scheduled(root), number_of(V2 "/a"));
    put_number(V2 "/a/b", "cpu.weight", 100);
    assert_int_equal(wf_cgroup_scheduled(root), number_of(V2 "/a/b"));
}

static void
cores_are_shared_by_groups_of_version_1_below_the_highest(void **state)
{
    (void)state;
    put_mount_v1("/");
    put_number("/sys/fs/cgroup/cpu", "cpu.shares", 1024);
    put_number("/sys/fs/cgroup/cpu/job", "cpu.shares", 1024);
    put("/proc/self/cgroup", "4:memory:/job\n1:cpu,cpuacct:/\n0::/\n");
    assert_int_equal(wf_cgroup_scheduled(root), 0);
    put("/proc/self/cgroup", "4:memory:/\n1:cpu,cpuacct:/job\n0::/\n");
    assert_int_equal(wf_cgroup_scheduled(root),
                     number_of("/sys/fs/cgroup/cpu/job"));
}

static void numbers_in_errors_are_never_rounded_to_nothing(void **state)
{
    (void)state;
    wf_memory_fail("it", 1, 0, "this host");
    assert_string_equal(
        weft_error_detail(),
        "it needs 1 KiB of memory, but this host has only 0 KiB left");
    wf_memory_fail("it", 700000, 699000, "this host");
    assert_non_null(strstr(weft_error_detail(), "needs 684 KiB"));
    assert_non_null(strstr(weft_error_detail(), "only 682 KiB"));
    wf_memory_fail("it", MIB(64) + 1, MIB(64), "this host");
    assert_non_null(strstr(weft_error_detail(), "needs 65 MiB"));
    assert_non_null(strstr(weft_error_detail(), "only 64 MiB"));
}

static void the_public_call_tells_what_the_library_counts_with(void **state)
{
    weft_memory_info info = {0};

    (void)state;
    assert_int_equal(weft_memory_get(NULL), WEFT_ERR_INVALID);
    assert_int_equal(weft_memory_get(&info), WEFT_ERR_INVALID);
    info.size = sizeof(info);
    assert_int_equal(weft_memory_get(&info), WEFT_OK);
    assert_true(info.host_room > 0);
    assert_true(info.group_room <= info.group_limit);
}

#define IN_A_ROOT(f) cmocka_unit_test_setup_teardown(f, root_make, root_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_A_ROOT(pages_of_files_count_as_free),
        IN_A_ROOT(what_can_be_dropped_is_looked_up_only_if_it_matters),
        IN_A_ROOT(the_least_room_of_all_groups_above_counts),
        IN_A_ROOT(groups_nested_deeper_than_we_tell_apart_still_count),
        IN_A_ROOT(version_1_is_read_as_well),
        IN_A_ROOT(a_group_of_version_1_may_count_only_itself),
        IN_A_ROOT(a_container_sees_a_limit_that_is_set_above_it),
        IN_A_ROOT(both_versions_count_where_both_have_limits),
        IN_A_ROOT(paths_of_namespaces_lead_to_the_top_of_the_mount),
        IN_A_ROOT(of_two_mounts_that_which_shows_more_is_taken),
        IN_A_ROOT(what_is_missing_or_not_understood_sets_no_limit),
        IN_A_ROOT(cores_are_shared_by_the_nearest_group_that_has_weight),
        IN_A_ROOT(cores_are_shared_by_groups_of_version_1_below_the_highest),
        cmocka_unit_test(numbers_in_errors_are_never_rounded_to_nothing),
        cmocka_unit_test(the_public_call_tells_what_the_library_counts_with),
    };

    return cmocka_run_group_tests(tests, wt_folder_make, wt_folder_remove);
}
