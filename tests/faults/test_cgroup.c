/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks in a control group that is too small for what they ask: they are told,
 * and the kernel kills nobody. Needs the right to make a control group. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mem/cgroup.h"
#include "mem/segment.h"
#include "wt.h"
#include "wt_cmocka.h"

#define MIB(n) ((size_t)(n) << 20)

enum { LIMIT_MIB = 96, ROUNDS = 4 };

static char group[2 * PATH_MAX];

#if WT_ASAN
/* ASan keeps memory that was freed, up to 256 MiB of it in each process: more
 * than the group has. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "quarantine_size_mb=1";
}
#endif

static bool write_to(const char *name, const char *text)
{
    char path[3 * PATH_MAX];
    int fd;
    bool written;

    snprintf(path, sizeof(path), "%s/%s", group, name);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    written = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    close(fd);
    return written;
}

/* A group below our own, by whichever version has memory. */
static bool group_make_of(wf_cgroup_kind kind)
{
    FILE *groups = fopen("/proc/self/cgroup", "re");
    FILE *mounts = fopen("/proc/self/mountinfo", "re");
    wf_cgroup_path path;
    bool found = groups != NULL && mounts != NULL &&
                 wf_cgroup_find(kind, groups, mounts, &path);
    char limit[32];

    fclose(groups);
    fclose(mounts);
    if (!found) {
        return false;
    }
    snprintf(group, sizeof(group), "%s/weft-test-%d", path.dir, (int)getpid());
    if (mkdir(group, 0755) != 0) {
        group[0] = '\0';
        return false;
    }
    snprintf(limit, sizeof(limit), "%zu", MIB(LIMIT_MIB));
    if (write_to(kind == WF_CGROUP_V1 ? "memory.limit_in_bytes" : "memory.max",
                 limit)) {
        return true;
    }
    rmdir(group);
    group[0] = '\0';
    return false;
}

static int group_make(void **state)
{
    (void)state;
    if (!group_make_of(WF_CGROUP_V1) && !group_make_of(WF_CGROUP_V2)) {
        fprintf(stderr, "skipped: no control group can be made here\n");
    }
    return 0;
}

static int group_remove(void **state)
{
    (void)state;
    return group[0] == '\0' ? 0 : rmdir(group);
}

static void enter(void)
{
    char pid[32];

    snprintf(pid, sizeof(pid), "%d", (int)getpid());
    WT_CHECK(write_to("cgroup.procs", pid));
}

static weft_status region_of(weft_world *world, size_t mib)
{
    weft_region_options o = {.size = sizeof(o)};
    uint64_t shape[] = {mib, MIB(1)};
    weft_region *region = NULL;
    weft_status st = weft_region_create(weft_world_comm(world), 2, shape,
                                        WEFT_U8, &o, &region);

    weft_region_destroy(region);
    return st;
}

static void ask_for_too_much(void)
{
    weft_world *world = NULL;
    void *buffer = NULL;

    enter();
    wt_meet();
    WT_OK(wt_join("TIMEOUT=60s", 0, &world));
    /* Each part would fit, both do not. */
    WT_STATUS(region_of(world, LIMIT_MIB + 20), WEFT_ERR_NOMEM);
    WT_CHECK(strstr(weft_error_detail(), "control group") != NULL);
    WT_STATUS(
        weft_alloc(weft_world_comm(world), MIB(LIMIT_MIB / 2 + 10), &buffer),
        WEFT_ERR_NOMEM);
    WT_OK(region_of(world, LIMIT_MIB / 4));
    weft_world_destroy(world);
}

static void a_region_too_big_for_the_group_is_an_error(void **state)
{
    (void)state;
    if (group[0] == '\0') {
        skip();
    }
    wt_run_job(&(const wt_job){.ranks = 2, .bare = ask_for_too_much});
}

/* Both ranks ask for three quarters of the group at one moment, alone. Returns
 * how many got it. */
static uint32_t take_together(weft_world *world, unsigned round)
{
    void *block = NULL;
    weft_status st;
    uint32_t got;

    wt_meet();
    st = weft_arena_alloc(world, MIB(LIMIT_MIB) * 3 / 4, &block);
    WT_CHECK(st == WEFT_OK || st == WEFT_ERR_NOMEM);
    if (st == WEFT_OK) {
        wt_word_add(round, 1);
    }
    wt_meet();
    got = atomic_load(wt_word(round));
    weft_arena_free(block);
    wt_meet();
    return got;
}

/* Both ranks take what there is in small blocks, until there is no more. */
static void fill_together(weft_world *world)
{
    void *block[LIMIT_MIB];
    unsigned n = 0;

    wt_meet();
    while (n < LIMIT_MIB &&
           weft_arena_alloc(world, MIB(1), &block[n]) == WEFT_OK) {
        n++;
    }
    WT_CHECK(n < LIMIT_MIB);
    wt_meet();
    while (n > 0) {
        weft_arena_free(block[--n]);
    }
    wt_meet();
}

static void take_the_last(void)
{
    weft_world *world = NULL;
    void *block = NULL;

    enter();
    wt_meet();
    WT_OK(wt_join("TIMEOUT=60s ARENA_KEEP=0", 0, &world));
    for (unsigned round = 0; round < ROUNDS; round++) {
        WT_CHECK(take_together(world, round) <= 1);
        fill_together(world);
    }
    /* One alone gets it. */
    if (wt_rank() == 1) {
        WT_OK(weft_arena_alloc(world, MIB(LIMIT_MIB) / 2, &block));
        weft_arena_free(block);
    }
    weft_world_destroy(world);
}

static void of_two_that_take_the_last_memory_one_gets_it_at_most(void **state)
{
    (void)state;
    if (group[0] == '\0') {
        skip();
    }
    wt_run_job(&(const wt_job){.ranks = 2, .bare = take_the_last});
}

/* Fill what is left of the group with pages of a file. */
static void read_a_file(void)
{
    char path[] = "/var/tmp/weft-cgroup-XXXXXX";
    char *bytes = calloc(1, MIB(1));
    int fd = mkstemp(path);

    WT_CHECK(bytes != NULL && fd >= 0 && unlink(path) == 0);
    for (unsigned i = 0; i < 2 * LIMIT_MIB; i++) {
        WT_CHECK(write(fd, bytes, MIB(1)) == (ssize_t)MIB(1));
    }
    WT_CHECK(fsync(fd) == 0);
    close(fd);
    free(bytes);
}

static void join_after_reading(void)
{
    weft_world *world = NULL;
    uint64_t limit = 0;
    wf_cgroups groups;

    enter();
    wt_meet();
    if (wt_rank() == 0) {
        read_a_file();
    }
    wt_meet();
    wf_cgroups_read("", UINT64_MAX, &groups);
    limit = wf_cgroups_limit(&groups);
    WT_CHECK(limit <= MIB(LIMIT_MIB));
    WT_CHECK(wf_cgroups_room(&groups) > limit / 2);
    WT_OK(wt_join("TIMEOUT=60s", 0, &world));
    WT_OK(region_of(world, LIMIT_MIB / 4));
    weft_world_destroy(world);
}

static void a_job_starts_after_a_large_file_was_read(void **state)
{
    (void)state;
    if (group[0] == '\0') {
        skip();
    }
    wt_run_job(&(const wt_job){.ranks = 2, .bare = join_after_reading});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_region_too_big_for_the_group_is_an_error),
        cmocka_unit_test(of_two_that_take_the_last_memory_one_gets_it_at_most),
        cmocka_unit_test(a_job_starts_after_a_large_file_was_read),
    };

    return cmocka_run_group_tests(tests, group_make, group_remove);
}
