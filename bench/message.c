/* SPDX-License-Identifier: Apache-2.0 */
/* How long a message takes between two ranks over shared memory: through the
 * ring, by reading the sender's memory through the kernel (CMA), and out of the
 * sender's arena.
 *
 *     message [one] [largest size in bytes [smallest]]
 *
 * Two ranks, each on a core of its own, or both on one core with "one". For
 * each size a ping-pong with the same two buffers: "plain" never touches them;
 * "used" writes the buffer before each send and reads it after each receive, as
 * a program does, and so pays for what the transport did to its cache lines.
 *
 * A virtual machine moves its cores about, so the distance of the two is probed
 * before and after each block of messages: a block is dropped if it changed,
 * and near and far ones are listed apart. Each figure is the 20th percentile of
 * its blocks, of one way, in ns. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/boot.h>

#include "base/time.h"
#include "transport/transport.h"

#define BLOCKS 40
#define PROBE_SAMPLES 15
#define PROBE_TURNS 24
#define FAR_NS 150.0
#define LARGEST ((size_t)16 << 20)

enum { RING, CMA, ARENA, WAYS };
enum { NEAR, FAR, PLACES };

static const char *const way_settings[WAYS] = {"SHM_CMA=0", "SHM_CMA=1",
                                               "SHM_CMA=1"};

static const char *const way_names[WAYS] = {"ring", "CMA", "arena"};

typedef struct page {
    _Alignas(128) _Atomic uint64_t ping;
    _Alignas(128) _Atomic uint64_t pong;
} page;

typedef struct bench {
    page *shared;
    uint64_t turns;
    uint32_t rank;
    bool one_core;
    wf_host *host;
    wf_port *port[WAYS];
    unsigned char *out[WAYS];
    unsigned char *in;
} bench;

/* The blocks of one way of one size, by the distance they were measured at. */
typedef struct samples {
    unsigned count[PLACES];
    double ns[PLACES][BLOCKS];
} samples;

static void must(weft_status st)
{
    if (st != WEFT_OK) {
        fprintf(stderr, "message: %s\n", weft_error_detail());
        exit(1);
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

static double percentile(double *v, unsigned n, unsigned percent)
{
    qsort(v, n, sizeof(*v), compare);
    return v[n * percent / 100];
}

/* --- the distance -------------------------------------------------------- */

static void take_turn(bench *b)
{
    page *p = b->shared;
    uint64_t n = ++b->turns;

    if (b->rank == 0) {
        atomic_store_explicit(&p->ping, n, memory_order_release);
        while (atomic_load_explicit(&p->pong, memory_order_acquire) != n) {
        }
    } else {
        while (atomic_load_explicit(&p->ping, memory_order_acquire) != n) {
        }
        atomic_store_explicit(&p->pong, n, memory_order_release);
    }
}

/* What one core takes to see what the other one wrote, in ns. */
static double probe(bench *b)
{
    double v[PROBE_SAMPLES];

    if (b->one_core) {
        return 0;
    }
    for (unsigned i = 0; i < PROBE_SAMPLES; i++) {
        uint64_t start = wf_now_ns();

        for (unsigned k = 0; k < PROBE_TURNS; k++) {
            take_turn(b);
        }
        v[i] = (double)(wf_now_ns() - start) / (2 * PROBE_TURNS);
    }
    return percentile(v, PROBE_SAMPLES, 50);
}

/* --- one block ----------------------------------------------------------- */

static void finish(const bench *b, wf_port *port, const wf_msg *msg)
{
    while (!msg->done) {
        if (wf_transport_shm.progress(port) == 0 && b->one_core) {
            sched_yield();
        }
    }
}

static void use_in(const bench *b, size_t n)
{
    volatile unsigned char sum = 0;

    for (size_t i = 0; i < n; i += 64) {
        sum = (unsigned char)(sum + b->in[i]);
    }
}

/* One message there and one back. */
static void round_trip(bench *b, unsigned way, size_t n, bool used)
{
    const wf_transport *t = &wf_transport_shm;
    wf_port *port = b->port[way];
    wf_msg send;
    wf_msg recv;

    must(t->recv(port, 1 - b->rank, 1, WF_TAG_EXACT, b->in, n, &recv));
    if (b->rank == 1) {
        finish(b, port, &recv);
        if (used) {
            use_in(b, n);
        }
    }
    if (used) {
        memset(b->out[way], (int)b->turns + 1, n);
    }
    must(t->send(port, 1 - b->rank, 1, b->out[way], n, &send));
    finish(b, port, &recv);
    if (used && b->rank == 0) {
        use_in(b, n);
    }
    finish(b, port, &send);
}

static void one_block(bench *b, unsigned way, size_t n, bool used, samples *s)
{
    unsigned trips = n <= 4096 ? 300 : n <= 65536 ? 40 : n <= 1 << 20 ? 6 : 2;
    double before = probe(b);
    double after;
    uint64_t start;
    double ns;
    int place;

    round_trip(b, way, n, used);
    start = wf_now_ns();
    for (unsigned i = 0; i < trips; i++) {
        round_trip(b, way, n, used);
    }
    ns = (double)(wf_now_ns() - start) / (2 * trips);
    after = probe(b);
    if ((before > FAR_NS) == (after > FAR_NS)) {
        place = before > FAR_NS ? FAR : NEAR;
        s->ns[place][s->count[place]++] = ns;
    }
}

/* --- the table ----------------------------------------------------------- */

static void print_cell(samples *s, int place, size_t n)
{
    double ns;

    if (s->count[place] < 4) {
        printf(" %10s %6s", "-", "-");
        return;
    }
    ns = percentile(s->ns[place], s->count[place], 20);
    printf(" %10.0f %6.1f", ns, (double)n / ns);
}

static void one_size(bench *b, size_t n)
{
    static samples s[2 * WAYS];
    static const char *const places[PLACES] = {"near", "far"};

    memset(s, 0, sizeof(s));
    for (unsigned i = 0; i < BLOCKS; i++) {
        for (unsigned c = 0; c < 2 * WAYS; c++) {
            one_block(b, c % WAYS, n, c >= WAYS, &s[c]);
        }
    }
    for (int place = 0; place < PLACES && b->rank == 0; place++) {
        if (s[0].count[place] < 4) {
            continue;
        }
        printf("%9zu %5s", n, b->one_core ? "one" : places[place]);
        for (unsigned c = 0; c < 2 * WAYS; c++) {
            print_cell(&s[c], place, n);
        }
        printf("\n");
        fflush(stdout);
    }
}

static void join(bench *b, const char *name)
{
    weft_boot *boot;
    wf_settings settings;
    cpu_set_t core;

    CPU_ZERO(&core);
    CPU_SET(b->one_core ? 0 : b->rank, &core);
    if (sched_setaffinity(0, sizeof(core), &core) != 0) {
        perror("message: sched_setaffinity");
    }
    must(wf_settings_load(NULL, &settings));
    must(weft_boot_open_local(name, b->rank, 2, &boot));
    must(wf_host_join(boot, &settings, NULL, 0, (wf_interrupt){0}, &b->host));
    weft_boot_close(boot);
    for (unsigned w = 0; w < WAYS; w++) {
        uint32_t other = 1 - b->rank;
        wf_port_setup setup = {
            .host = b->host, .settings = &settings, .rank = &other, .ranks = 1};

        must(wf_settings_load(way_settings[w], &settings));
        must(wf_transport_shm.open(&setup, &b->port[w]));
    }
}

static unsigned char *private_memory(size_t n)
{
    unsigned char *at = malloc(n);

    if (at == NULL) {
        fprintf(stderr, "message: no memory for %zu bytes\n", n);
        exit(1);
    }
    return at;
}

static void run(bench *b, const char *name, size_t smallest, size_t largest)
{
    join(b, name);
    b->in = private_memory(largest);
    for (unsigned w = 0; w < WAYS; w++) {
        if (w == ARENA) {
            must(wf_arena_take(b->host->arena, largest, false,
                               (void **)&b->out[w]));
        } else {
            b->out[w] = private_memory(largest);
        }
        memset(b->out[w], 1, largest);
    }
    memset(b->in, 2, largest);
    if (b->rank == 0) {
        printf("%15s", "");
        for (unsigned c = 0; c < 2 * WAYS; c++) {
            printf(" %9s, %-6s", way_names[c % WAYS],
                   c < WAYS ? "plain" : "used");
        }
        printf("\n");
        printf("%9s %5s", "bytes", "");
        for (unsigned c = 0; c < 2 * WAYS; c++) {
            printf(" %10s %6s", "ns", "GB/s");
        }
        printf("\n");
    }
    for (size_t n = smallest; n <= largest; n *= n < 65536 ? 2 : 4) {
        one_size(b, n);
    }
    free(b->in);
    for (unsigned w = 0; w < WAYS; w++) {
        wf_transport_shm.close(b->port[w]);
        if (w == ARENA) {
            weft_arena_free(b->out[w]);
        } else {
            free(b->out[w]);
        }
    }
    wf_host_leave(b->host);
}

int main(int argc, char **argv)
{
    bench b = {0};
    size_t largest = LARGEST;
    size_t smallest = 8;
    size_t *next = &largest;
    char name[64];
    pid_t child;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "one") == 0) {
            b.one_core = true;
        } else {
            *next = strtoull(argv[i], NULL, 10);
            next = &smallest;
        }
    }
    snprintf(name, sizeof(name), "bench-message-%d", (int)getpid());
    b.shared = mmap(NULL, sizeof(page), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (b.shared == MAP_FAILED) {
        perror("message: mmap");
        return 1;
    }
    child = fork();
    b.rank = child == 0 ? 1 : 0;
    run(&b, name, smallest, largest < smallest ? smallest : largest);
    if (child > 0) {
        waitpid(child, NULL, 0);
    }
    return 0;
}
