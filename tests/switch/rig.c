/* SPDX-License-Identifier: Apache-2.0 */
#include "rig.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agg/key.h"
#include "base/time.h"
#include "comm/call.h"
#include "wt_cmocka.h"

/* --- the switch ----------------------------------------------------------- */

void rig_init(rig *r)
{
    *r = (rig){.pid = 0};
    strcpy(r->folder, "/tmp/weft-switch-XXXXXX");
    assert_non_null(mkdtemp(r->folder));
    (void)snprintf(r->key_file, sizeof(r->key_file), "%s/key", r->folder);
    assert_int_equal(wf_agg_key_create(r->key_file), WEFT_OK);
    assert_int_equal(wf_agg_key_read(r->key_file, &r->key), WEFT_OK);
}

void rig_init_beside(rig *r, const rig *other)
{
    *r = *other;
    r->folder[0] = '\0';
    r->pid = 0;
    r->port = 0;
}

void rig_fini(rig *r)
{
    if (r->pid != 0) {
        (void)rig_stop(r, SIGKILL);
    }
    if (r->folder[0] != '\0') {
        unlink(r->key_file);
        rmdir(r->folder);
    }
}

static void exec_switch(const rig *r, int out, const char *const *options)
{
    char port[8];
    const char *argv[24] = {WT_SWITCH, "--key",     r->key_file,
                            "--host",  "127.0.0.1", "--port",
                            port,      "--http",    "127.0.0.1:0"};
    unsigned n = 9;

    (void)snprintf(port, sizeof(port), "%u", r->port);
    while (*options != NULL) {
        argv[n++] = *options++;
    }
    /* A test that fails leaves none behind. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(out, STDOUT_FILENO);
    execv(WT_SWITCH, (char *const *)(uintptr_t)argv);
    _exit(127);
}

/* False: it has ended without a word. */
static bool try_start(rig *r, const char *const *options)
{
    unsigned port = 0;
    unsigned http = 0;
    int fds[2];
    FILE *out;
    char line[200] = "";

    assert_int_equal(pipe(fds), 0);
    r->pid = fork();
    assert_true(r->pid >= 0);
    if (r->pid == 0) {
        close(fds[0]);
        exec_switch(r, fds[1], options);
    }
    close(fds[1]);
    out = fdopen(fds[0], "r");
    assert_non_null(out);
    if (fgets(line, sizeof(line), out) == NULL) {
        fclose(out);
        (void)rig_stop(r, SIGKILL);
        return false;
    }
    assert_int_equal(
        sscanf(line, "weft-switch: ready on port %u, http://127.0.0.1:%u/",
               &port, &http),
        2);
    r->port = (uint16_t)port;
    r->http = (uint16_t)http;
    fclose(out);
    return true;
}

/* The port that it had before may be somebody else's for a moment: the kernel
 * gives it to connections. */
void rig_start(rig *r, const char *const *options)
{
    unsigned tries = r->port != 0 ? 100 : 1;

    while (!try_start(r, options)) {
        assert_true(--tries > 0);
        poll(NULL, 0, 50);
    }
}

int rig_stop(rig *r, int signal)
{
    int status = 0;

    kill(r->pid, signal);
    assert_int_equal(waitpid(r->pid, &status, 0), r->pid);
    r->pid = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static wf_udp_address loopback(uint16_t port)
{
    wf_udp_address a = {.length = sizeof(struct sockaddr_in)};
    struct sockaddr_in *in = (struct sockaddr_in *)&a.at;

    in->sin_family = AF_INET;
    in->sin_port = htons(port);
    in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return a;
}

wf_udp_address rig_address(const rig *r)
{
    return loopback(r->port);
}

/* --- HTTP ----------------------------------------------------------------- */

char *rig_get(const rig *r, const char *path)
{
    wf_udp_address at = loopback(r->http);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char request[200];
    char *text = calloc(1, 1 << 20);
    size_t used = 0;
    ssize_t n;

    assert_non_null(text);
    assert_int_equal(connect(fd, (const struct sockaddr *)&at.at, at.length),
                     0);
    n = snprintf(request, sizeof(request), "GET %s HTTP/1.1\r\nHost: a\r\n\r\n",
                 path);
    assert_int_equal(send(fd, request, (size_t)n, 0), n);
    while ((n = recv(fd, text + used, (1 << 20) - 1 - used, 0)) > 0) {
        used += (size_t)n;
    }
    close(fd);
    return text;
}

double rig_metric(const rig *r, const char *name)
{
    char *text = rig_get(r, "/metrics");
    char *rest = NULL;
    double sum = 0;

    for (char *line = strtok_r(text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        if (strncmp(line, name, strlen(name)) == 0) {
            sum += atof(strrchr(line, ' '));
        }
    }
    free(text);
    return sum;
}

/* --- workers -------------------------------------------------------------- */

wf_agg_options worker_options(uint32_t rank, uint32_t ranks, uint64_t group)
{
    return (wf_agg_options){.group = {group, 77},
                            .rank = rank,
                            .ranks = ranks,
                            .slots = 64,
                            .payload = 1088,
                            .least_ns = 500000,
                            .most_ns = 50 * WF_MS,
                            .patience_ns = 10 * WF_SEC};
}

/* Sleep until something comes or is due, 5 ms at most. */
static void nap(const wf_agg_client *c, uint64_t now)
{
    struct pollfd p[2] = {{.fd = c->link[0].fd, .events = POLLIN},
                          {.fd = c->link[0].session.fd, .events = POLLIN}};
    uint64_t due = wf_agg_client_due(c);
    uint64_t ns = due < now ? 0 : due - now;
    struct timespec t = {.tv_nsec = (long)(ns < 5 * WF_MS ? ns : 5 * WF_MS)};

    (void)ppoll(p, 2, &t, NULL);
}

weft_status worker_join(worker *w)
{
    wf_udp_address at = rig_address(w->rig);
    weft_status st =
        wf_agg_client_open(&w->client, &at, &w->rig->key, &w->options);

    while (st == WEFT_OK && !w->client.joined) {
        st = wf_agg_client_step(&w->client, wf_now_ns());
        if (st == WEFT_OK && !w->client.joined) {
            nap(&w->client, wf_now_ns());
        }
    }
    return st;
}

weft_status worker_allreduce(worker *w, const void *src, void *dst,
                             uint64_t count, weft_dtype type, weft_op_kind op,
                             bool quantised)
{
    wf_agg_client *c = &w->client;
    const wf_agg_call call = {.src = src,
                              .dst = dst,
                              .count = count,
                              .hash = 1,
                              .kind = WF_CALL_ALLREDUCE,
                              .type = (uint8_t)type,
                              .op = (uint8_t)op,
                              .quantised = quantised};
    weft_status st = WEFT_OK;

    wf_agg_client_begin(c, &call, wf_now_ns());
    while (st == WEFT_OK && c->under_way) {
        uint64_t moved = c->moved;

        st = wf_agg_client_step(c, wf_now_ns());
        if (st == WEFT_OK && c->under_way && c->moved == moved) {
            nap(c, wf_now_ns());
        }
    }
    return st;
}

typedef struct run {
    worker *worker;
    worker_body *body;
} run;

static void *run_main(void *arg)
{
    run *r = arg;

    r->worker->status = r->body(r->worker);
    if (r->worker->status != WEFT_OK) {
        (void)snprintf(r->worker->text, sizeof(r->worker->text), "%s",
                       weft_error_detail());
    }
    wf_agg_client_close(&r->worker->client);
    return NULL;
}

void run_workers(const rig *r, const wf_agg_options *like, worker_body *body,
                 void *ctx, worker *out)
{
    pthread_t thread[RIG_WORKERS];
    run runs[RIG_WORKERS];

    for (uint32_t i = 0; i < like->ranks; i++) {
        out[i] = (worker){.rig = r, .options = *like, .seed = i, .ctx = ctx};
        out[i].options.rank = i;
        runs[i] = (run){&out[i], body};
        assert_int_equal(pthread_create(&thread[i], NULL, run_main, &runs[i]),
                         0);
    }
    for (uint32_t i = 0; i < like->ranks; i++) {
        pthread_join(thread[i], NULL);
    }
}
