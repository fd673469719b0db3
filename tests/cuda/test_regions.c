/* SPDX-License-Identifier: Apache-2.0 */
/* Regions on a real GPU: several processes share one device.
 *
 * Each test forks its ranks before CUDA starts, the parent never starts it, and
 * a test that fails does not keep the next from running. At the end a table
 * says what was seen. Exits with 77 where there is no GPU.
 *
 *   cuda_regions           on CUDA device 0
 *   cuda_regions double    the same steps on the double, with little memory */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_double/double.h"
#include "wt.h"
#include "wt_cmocka.h"
#include "wt_fault.h"

#define COLUMNS 129u /* 516 bytes a row: no power of two, no multiple of 16 */

enum { ITEMS_MAX = 32, SHARED_GPU = 0 };

typedef struct item {
    const char *what;
    unsigned ranks;
    bool ok;
    double seconds;
    char seen[160]; /* written by rank 0, read by the parent */
} item;

static item *items; /* shared with all ranks */
static unsigned item_count;
static bool on_double;

/* --- the table ----------------------------------------------------------- */

static wt_body *body_of_item;

/* The driver keeps descriptors until a process ends, which the caller would
 * take for leaks, so a rank ends here. */
static void rank_main(void)
{
    weft_world *world = NULL;

    WT_OK(wt_join(NULL, 0, &world));
    body_of_item(world);
    weft_world_destroy(world);
    if (!on_double) {
        exit(0);
    }
}

/* An item has failed until it is through: a test that fails does not return. */
static void run_item(const char *what, wt_job job)
{
    item *it = &items[item_count++];
    double start = wt_now();

    it->what = what;
    it->ranks = job.ranks;
    body_of_item = job.body;
    job.body = NULL;
    job.bare = rank_main;
    job.deadline = 40;
    wt_run_job(&job);
    it->seconds = wt_now() - start;
    it->ok = true;
}

/* What this item is to say in the table. */
static void say(const char *fmt, ...) WEFT_PRINTF(1, 2);
static void say(const char *fmt, ...)
{
    item *it = &items[item_count - 1];
    va_list args;

    va_start(args, fmt);
    vsnprintf(it->seen, sizeof(it->seen), fmt, args);
    va_end(args);
}

static void print_table(void)
{
    printf("\n| item | processes | result | seconds | seen |\n");
    printf("| --- | --- | --- | --- | --- |\n");
    for (unsigned i = 0; i < item_count; i++) {
        printf("| %s | %u | %s | %.1f | %s |\n", items[i].what, items[i].ranks,
               items[i].ok ? "ok" : "FAILED", items[i].seconds, items[i].seen);
    }
}

/* --- what a rank does with the device ------------------------------------ */

typedef struct gpu {
    const wf_driver *cu;
    wf_device device;
} gpu;

#define GPU_OK(call) gpu_check((call), #call, __LINE__)

static void gpu_check(int error, const char *text, int line)
{
    if (error != WF_CU_OK) {
        wt_fail_at(__FILE__, line, "%s: CUDA error %d", text, error);
    }
}

/* The device stays current in this thread, as it would with torch. */
static gpu gpu_start(void)
{
    gpu g = {0};

    WT_OK(wf_driver_open("auto", &g.cu));
    WT_OK(wf_device_open(g.cu, SHARED_GPU, &g.device));
    WT_OK(wf_device_enter(&g.device));
    return g;
}

static size_t gpu_free(const gpu *g)
{
    size_t left = 0;
    size_t total = 0;

    GPU_OK(g->cu->cuMemGetInfo(&left, &total));
    return left;
}

static uint64_t rows_per_rank(void)
{
    return on_double ? 403 : 65003; /* 32 MiB */
}

static weft_region_options options_of(weft_place place)
{
    return (weft_region_options){
        .size = sizeof(weft_region_options), .place = place, .device = -1};
}

static weft_region *create(weft_comm *comm, uint64_t rows,
                           const weft_region_options *options)
{
    uint64_t shape[2] = {rows, COLUMNS};
    weft_region *region = NULL;

    WT_OK(weft_region_create(comm, 2, shape, WEFT_I32, options, &region));
    return region;
}

static int32_t value_of(uint64_t element, int32_t salt)
{
    return (int32_t)(element * 2654435761u) ^ salt;
}

static int32_t *host_buffer(uint64_t elements)
{
    int32_t *p = malloc(elements * sizeof(*p) + 1);

    WT_CHECK(p != NULL);
    return p;
}

/* Each owner writes its parts by copies to the device. */
static void write_own(const gpu *g, const weft_region *region, int32_t salt)
{
    uint32_t rank = wt_rank();
    weft_region_part part;

    for (uint32_t i = 0; i < weft_region_parts(region, rank); i++) {
        int32_t *data;
        uint64_t n;

        WT_OK(weft_region_part_of(region, rank, i, &part));
        n = part.rows * COLUMNS;
        data = host_buffer(n);
        for (uint64_t e = 0; e < n; e++) {
            data[e] = value_of(part.row * COLUMNS + e, salt);
        }
        if (n > 0) {
            GPU_OK(g->cu->cuMemcpyHtoD((uintptr_t)part.at, data, n * 4));
        }
        free(data);
    }
}

/* Elements from `from` on that are not what they should be; zero_from on they
 * should be zero. */
static uint64_t count_wrong(const gpu *g, const void *base, uint64_t elements,
                            uint64_t zero_from, int32_t salt)
{
    int32_t *data = host_buffer(elements);
    uint64_t wrong = 0;

    if (elements > 0) {
        GPU_OK(g->cu->cuMemcpyDtoH(data, (uintptr_t)base, elements * 4));
    }
    for (uint64_t e = 0; e < elements; e++) {
        wrong += data[e] != (e < zero_from ? value_of(e, salt) : 0);
    }
    free(data);
    return wrong;
}

/* --- shared, grown, shrunk ----------------------------------------------- */

static void share_body(weft_world *world)
{
    gpu g = gpu_start();
    weft_region_options options = options_of(WEFT_CUDA);
    uint64_t rows = rows_per_rank() * wt_ranks() + 1;
    weft_region *region;
    weft_region_info info;
    double start;
    double made;
    void *base;

    options.max_rows = 2 * rows;
    WT_OK(weft_barrier(weft_world_comm(world)));
    start = wt_now();
    region = create(weft_world_comm(world), rows, &options);
    made = wt_now() - start;
    base = weft_region_base(region);
    weft_region_describe(region, &info);
    WT_CHECK(info.flat && info.device == SHARED_GPU);
    WT_CHECK(count_wrong(&g, base, rows * COLUMNS, 0, 0) == 0);
    WT_OK(weft_region_barrier(region, 30));
    write_own(&g, region, 1);
    WT_OK(weft_region_barrier(region, 30));
    WT_CHECK(count_wrong(&g, base, rows * COLUMNS, UINT64_MAX, 1) == 0);
    WT_OK(weft_region_barrier(region, 30));
    WT_OK(weft_region_resize(region, 2 * rows));
    WT_CHECK(weft_region_base(region) == base);
    WT_CHECK(count_wrong(&g, base, 2 * rows * COLUMNS, rows * COLUMNS, 1) == 0);
    WT_OK(weft_region_barrier(region, 30));
    write_own(&g, region, 2);
    WT_OK(weft_region_barrier(region, 30));
    WT_CHECK(count_wrong(&g, base, 2 * rows * COLUMNS, UINT64_MAX, 2) == 0);
    WT_OK(weft_region_barrier(region, 30));
    WT_OK(weft_region_resize(region, rows / 2));
    WT_OK(weft_region_resize(region, rows));
    WT_CHECK(count_wrong(&g, base, rows * COLUMNS, rows / 2 * COLUMNS, 2) == 0);
    if (wt_rank() == 0) {
        say("granule %llu KiB; %llu MiB made and mapped in %.1f ms; all words "
            "right on all ranks, fresh rows zero",
            (unsigned long long)info.page >> 10,
            (unsigned long long)(rows * COLUMNS * 4 >> 20), made * 1e3);
    }
    weft_region_destroy(region);
}

static void share_among(unsigned ranks)
{
    run_item("create, write, verify from all, grow, shrink",
             (wt_job){.ranks = ranks, .body = share_body});
}

static void one_rank_has_it_all(void **state)
{
    (void)state;
    share_among(1);
}

static void two_ranks_read_what_each_wrote(void **state)
{
    (void)state;
    share_among(2);
}

static void four_ranks_read_what_each_wrote(void **state)
{
    (void)state;
    share_among(4);
}

static void eight_ranks_read_what_each_wrote(void **state)
{
    (void)state;
    share_among(8);
}

static void layouts_body(weft_world *world)
{
    gpu g = gpu_start();
    weft_region_options options = options_of(WEFT_CUDA);
    uint64_t given[4] = {rows_per_rank(), 0, 3, 2 * rows_per_rank()};
    weft_region *region;

    options.partition = WEFT_PARTITION_GIVEN;
    options.part_rows = given;
    region = create(weft_world_comm(world), 3 * rows_per_rank() + 3, &options);
    write_own(&g, region, 3);
    WT_OK(weft_region_barrier(region, 30));
    WT_CHECK(count_wrong(&g, weft_region_base(region),
                         (3 * rows_per_rank() + 3) * COLUMNS, UINT64_MAX,
                         3) == 0);
    WT_OK(weft_region_barrier(region, 30));
    weft_region_destroy(region);
    if (wt_rank() == 0) {
        say("rows given per rank, none on one of them");
    }
}

static void parts_may_be_uneven_or_empty(void **state)
{
    (void)state;
    run_item("uneven parts", (wt_job){.ranks = 4, .body = layouts_body});
}

/* --- read-only view ------------------------------------------------------ */

/* The write ends rank 1's context, so that rank does nothing after it. */
static void view_body(weft_world *world)
{
    gpu g = gpu_start();
    weft_region_options options = options_of(WEFT_CUDA);
    uint64_t rows = rows_per_rank() * 2;
    weft_region *region = create(weft_world_comm(world), rows, &options);
    void *view = NULL;
    int error;

    write_own(&g, region, 4);
    WT_OK(weft_region_view_readonly(region, &view));
    WT_OK(weft_region_barrier(region, 30));
    WT_CHECK(count_wrong(&g, view, rows * COLUMNS, UINT64_MAX, 4) == 0);
    WT_OK(weft_region_barrier(region, 30));
    if (wt_rank() == 1) {
        error = g.cu->cuMemsetD8Async((uintptr_t)view, 9, 4096,
                                      WF_CU_STREAM_PER_THREAD);
        if (error == WF_CU_OK) {
            error = g.cu->cuStreamSynchronize(WF_CU_STREAM_PER_THREAD);
        }
        wt_word_set(1, (uint32_t)error);
        wt_word_set(0, 1);
        _exit(0);
    }
    wt_word_await(0, 1);
    wt_await_gone(1);
    WT_CHECK(atomic_load(wt_word(1)) != WF_CU_OK);
    WT_CHECK(count_wrong(&g, weft_region_base(region), rows * COLUMNS,
                         UINT64_MAX, 4) == 0);
    say("reads work; the write is CUDA error %u in its own process only",
        atomic_load(wt_word(1)));
    weft_region_destroy(region);
}

static void a_write_to_a_read_only_view_faults(void **state)
{
    (void)state;
    run_item("read-only view",
             (wt_job){.ranks = 2, .body = view_body, .doomed = 1u << 1});
}

/* --- death --------------------------------------------------------------- */

/* Bytes of each of the two parts; more than a context takes. */
static uint64_t large_part(void)
{
    return on_double ? 1u << 20 : 2ull << 30;
}

/* Rank 2 has no part of it: it is the third process, which looks at the free
 * memory when word 0 reaches 1, 2 and 3. */
static void look_on(const gpu *g, size_t before)
{
    uint64_t part = large_part();
    size_t full;
    size_t orphaned;
    size_t after;

    wt_word_await(0, 1);
    full = gpu_free(g);
    wt_word_add(2, 1);
    wt_await_gone(1);
    wt_word_await(0, 2);
    orphaned = gpu_free(g);
    wt_word_add(2, 1);
    wt_word_await(0, 3);
    after = gpu_free(g);
    /* The driver takes a moment to clear up after a process that was killed. */
    for (int i = 0; i < 100 && after + part / 8 < before; i++) {
        usleep(50000);
        after = gpu_free(g);
    }
    say("free MiB seen by a third process: %zu, with the region %zu, its owner "
        "killed %zu, released %zu",
        before >> 20, full >> 20, orphaned >> 20, after >> 20);
    WT_CHECK(before - full >= 2 * part - part / 8);
    WT_CHECK(orphaned < full + part / 2);
    WT_CHECK(after + part / 8 >= before);
}

static void killed_body(weft_world *world)
{
    gpu g = gpu_start();
    weft_region_options options = options_of(WEFT_CUDA);
    uint64_t rows = 2 * large_part() / (COLUMNS * 4);
    uint64_t given[2] = {rows / 2, rows - rows / 2};
    uint64_t elements = rows_per_rank() * COLUMNS; /* as many are compared */
    weft_region *region;
    weft_comm *pair = NULL;
    char *last;
    size_t before;

    WT_OK(weft_barrier(weft_world_comm(world))); /* all contexts exist */
    before = gpu_free(&g);
    WT_OK(weft_comm_split(weft_world_comm(world), wt_rank() < 2 ? 0 : -1, 0,
                          &pair));
    if (wt_rank() == 2) {
        look_on(&g, before);
        return;
    }
    options.partition = WEFT_PARTITION_GIVEN;
    options.part_rows = given;
    region = create(pair, rows, &options);
    last = (char *)weft_region_base(region) + (rows - 1) * COLUMNS * 4;
    if (wt_rank() == 1) {
        int32_t *data = host_buffer(elements);

        for (uint64_t e = 0; e < elements; e++) {
            data[e] = value_of(e, 5);
        }
        GPU_OK(g.cu->cuMemcpyHtoD((uintptr_t)last - (elements - COLUMNS) * 4,
                                  data, elements * 4));
        free(data);
    }
    WT_OK(weft_region_barrier(region, 30));
    if (wt_rank() == 1) {
        wt_word_await(2, 1);
        wt_strike(WT_BLOW_KILL);
    }
    wt_word_set(0, 1);
    wt_await_gone(1);
    WT_CHECK(count_wrong(&g, last - (elements - COLUMNS) * 4, elements,
                         UINT64_MAX, 5) == 0);
    wt_word_set(0, 2);
    wt_word_await(2, 2);
    weft_region_destroy(region);
    weft_comm_destroy(pair);
    wt_word_set(0, 3);
}

static void memory_of_a_killed_owner_returns_with_the_last_holder(void **state)
{
    (void)state;
    run_item("owner killed with SIGKILL",
             (wt_job){.ranks = 3, .body = killed_body, .doomed = 1u << 1});
}

static weft_region *at_exit;

/* Runs after the driver's own handlers, which were registered later. */
static void destroy_at_exit(void)
{
    weft_region_destroy(at_exit);
    wt_word_set(3, 1);
}

static void exit_body(weft_world *world)
{
    weft_region_options options = options_of(WEFT_CUDA);

    if (wt_rank() == 1) {
        atexit(destroy_at_exit);
    }
    gpu_start();
    at_exit = create(weft_world_comm(world), 1000, &options);
    WT_OK(weft_region_barrier(at_exit, 30));
    if (wt_rank() == 1) {
        exit(0);
    }
    wt_await_gone(1);
    WT_CHECK(atomic_load(wt_word(3)) == 1);
    weft_region_destroy(at_exit);
    say("a destroy after the driver has shut down returns");
}

static void a_region_may_end_after_the_driver(void **state)
{
    (void)state;
    run_item("destroy in an exit handler",
             (wt_job){.ranks = 2, .body = exit_body, .doomed = 1u << 1});
}

/* --- host regions -------------------------------------------------------- */

/* The GPU writes to the registered memory and copies from it. */
static void host_body(weft_world *world)
{
    gpu g = gpu_start();
    weft_region_options on_host = options_of(WEFT_HOST);
    weft_region_options on_gpu = options_of(WEFT_CUDA);
    uint64_t rows = rows_per_rank() * wt_ranks();
    uint64_t elements = rows * COLUMNS;
    weft_region *host = create(weft_world_comm(world), rows, &on_host);
    weft_region *device = create(weft_world_comm(world), rows, &on_gpu);
    int32_t *base = weft_region_base(host);
    weft_region_part part;
    double start = wt_now();

    WT_CHECK(weft_region_base_on(host, SHARED_GPU) == base);
    if (wt_rank() == 0) {
        say("%llu MiB registered in %.0f ms; one address; the GPU's writes "
            "are seen by all processors, theirs by the GPU",
            (unsigned long long)(elements * 4 >> 20), (wt_now() - start) * 1e3);
    }
    WT_OK(weft_region_part_of(host, wt_rank(), 0, &part));
    GPU_OK(g.cu->cuMemsetD8Async((uintptr_t)part.at, 0x5a,
                                 part.rows * COLUMNS * 4,
                                 WF_CU_STREAM_PER_THREAD));
    GPU_OK(g.cu->cuStreamSynchronize(WF_CU_STREAM_PER_THREAD));
    WT_OK(weft_region_barrier(host, 30));
    for (uint64_t e = 0; e < elements; e++) {
        WT_CHECK(base[e] == 0x5a5a5a5a);
    }
    WT_OK(weft_region_barrier(host, 30));
    for (uint64_t e = 0; e < part.rows * COLUMNS; e++) {
        ((int32_t *)part.at)[e] = value_of(part.row * COLUMNS + e, 6);
    }
    WT_OK(weft_region_barrier(host, 30));
    WT_CHECK(count_wrong(&g, base, elements, UINT64_MAX, 6) == 0);
    if (wt_rank() == 0) {
        GPU_OK(g.cu->cuMemcpyHtoD((uintptr_t)weft_region_base(device), base,
                                  elements * 4));
    }
    WT_OK(weft_region_barrier(device, 30));
    WT_CHECK(count_wrong(&g, weft_region_base(device), elements, UINT64_MAX,
                         6) == 0);
    WT_OK(weft_region_barrier(device, 30));
    weft_region_destroy(host);
    weft_region_destroy(device);
}

static void a_gpu_sees_a_host_region_of_two_ranks(void **state)
{
    (void)state;
    run_item("host region registered", (wt_job){.ranks = 2, .body = host_body});
}

static void a_gpu_sees_a_host_region_of_four_ranks(void **state)
{
    (void)state;
    run_item("host region registered", (wt_job){.ranks = 4, .body = host_body});
}

/* --- too big ------------------------------------------------------------- */

static void too_big_body(weft_world *world)
{
    gpu g = gpu_start();
    weft_region_options options = options_of(WEFT_CUDA);
    size_t left = 0;
    size_t total = 0;
    uint64_t shape[2] = {0, COLUMNS};
    weft_region *region = NULL;

    GPU_OK(g.cu->cuMemGetInfo(&left, &total));
    shape[0] = 2 * (uint64_t)total / (COLUMNS * 4);
    WT_STATUS(weft_region_create(weft_world_comm(world), 2, shape, WEFT_I32,
                                 &options, &region),
              WEFT_ERR_NOMEM);
    if (wt_rank() == 0) {
        say("%s", weft_error_detail());
    }
    WT_OK(weft_barrier(weft_world_comm(world)));
    region = create(weft_world_comm(world), rows_per_rank(), &options);
    write_own(&g, region, 7);
    WT_OK(weft_region_barrier(region, 30));
    WT_CHECK(count_wrong(&g, weft_region_base(region),
                         rows_per_rank() * COLUMNS, UINT64_MAX, 7) == 0);
    WT_OK(weft_region_barrier(region, 30));
    weft_region_destroy(region);
}

static void too_big_is_an_error_on_all_ranks(void **state)
{
    (void)state;
    run_item("twice the memory there is",
             (wt_job){.ranks = 2, .body = too_big_body});
}

/* --- starting ------------------------------------------------------------ */

/* In a child, so that CUDA does not start here. */
static bool have_gpu(void)
{
    int status = 0;
    pid_t child = fork();

    if (child == 0) {
        const wf_driver *cu = NULL;
        wf_device device = {0};
        weft_status st = wf_driver_open("auto", &cu);
        int number = 0;

        st = st == WEFT_OK ? wf_device_choose(cu, 0, 0, &number) : st;
        st = st == WEFT_OK ? wf_device_open(cu, number, &device) : st;
        if (st != WEFT_OK) {
            printf("skipped: %s\n", weft_error_detail());
            fflush(stdout);
        }
        _exit(st == WEFT_OK ? 0 : 1);
    }
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_has_it_all),
        cmocka_unit_test(two_ranks_read_what_each_wrote),
        cmocka_unit_test(four_ranks_read_what_each_wrote),
        cmocka_unit_test(eight_ranks_read_what_each_wrote),
        cmocka_unit_test(parts_may_be_uneven_or_empty),
        cmocka_unit_test(a_write_to_a_read_only_view_faults),
        cmocka_unit_test(memory_of_a_killed_owner_returns_with_the_last_holder),
        cmocka_unit_test(a_region_may_end_after_the_driver),
        cmocka_unit_test(a_gpu_sees_a_host_region_of_two_ranks),
        cmocka_unit_test(a_gpu_sees_a_host_region_of_four_ranks),
        cmocka_unit_test(too_big_is_an_error_on_all_ranks),
    };
    int failed;

    on_double = argc > 1 && strcmp(argv[1], "double") == 0;
    if (WT_TSAN || (WT_ASAN && !on_double)) {
        printf("skipped: needs processes and, for CUDA, no sanitizer\n");
        return WT_EXIT_SKIP;
    }
    if (on_double) {
        wf_double_options machine = {
            .bytes = 64u << 20, .granule = 65536, .tag = (uint32_t)getpid()};

        wf_driver_use(wf_double_start(&machine));
    }
    if (!have_gpu()) {
        return WT_EXIT_SKIP;
    }
    items = mmap(NULL, ITEMS_MAX * sizeof(*items), PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (items == MAP_FAILED) {
        return 1;
    }
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    print_table();
    return failed;
}
