/* SPDX-License-Identifier: Apache-2.0 */
/* UCX's context and worker, and how they are set. What the user has set with
 * UCX's own variables is left as it is. */
#include <arpa/inet.h>
#include <dirent.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/status.h"
#include "base/time.h"
#include "transport/ucx/ucx.h"

#define ANSWER_NS WF_SEC

/* --- which interfaces ------------------------------------------------------
 */

/* Does it join other interfaces? */
static bool is_bridge(const char *name)
{
    char path[64];

    snprintf(path, sizeof(path), "/sys/class/net/%s/bridge", name);
    return access(path, F_OK) == 0;
}

/* Does a default route lead through this interface? */
static bool leads_away(const char *name)
{
    FILE *f = fopen("/proc/net/route", "re");
    char line[256];
    char device[IFNAMSIZ];
    unsigned long to;
    bool found = false;

    while (f != NULL && !found && fgets(line, sizeof(line), f) != NULL) {
        found = sscanf(line, "%15s %lx", device, &to) == 2 && to == 0 &&
                strcmp(device, name) == 0;
    }
    if (f != NULL) {
        fclose(f);
    }
    return found;
}

/* May other hosts be reached through it? Bridges of containers and virtual
 * machines have the same address on every host, and UCX (before 1.16) takes
 * each address to be reachable. */
static bool usable(const struct ifaddrs *a)
{
    return a->ifa_addr != NULL &&
           (a->ifa_addr->sa_family == AF_INET ||
            a->ifa_addr->sa_family == AF_INET6) &&
           (a->ifa_flags & IFF_UP) != 0 && (a->ifa_flags & IFF_RUNNING) != 0 &&
           (a->ifa_flags & IFF_LOOPBACK) == 0 &&
           (!is_bridge(a->ifa_name) || leads_away(a->ifa_name));
}

static bool listed(const char *list, const char *name)
{
    size_t n = strlen(name);

    for (const char *at = strstr(list, name); at != NULL;
         at = strstr(at + 1, name)) {
        if ((at == list || at[-1] == ',') && (at[n] == ',' || at[n] == '\0')) {
            return true;
        }
    }
    return false;
}

/* Is there an adapter for RDMA? A kernel that could drive one has the folder
 * without any. */
static bool has_rdma(void)
{
    DIR *folder = opendir("/sys/class/infiniband");
    const struct dirent *entry = NULL;

    while (folder != NULL && (entry = readdir(folder)) != NULL &&
           entry->d_name[0] == '.') {
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return entry != NULL;
}

/* Interfaces for TCP, with commas; "lo" when there is no other. Nothing is
 * chosen where there are adapters for RDMA: UCX prefers those. */
static bool choose_devices(char *list, size_t room)
{
    struct ifaddrs *all = NULL;
    size_t n = 0;

    list[0] = '\0';
    if (has_rdma() || getifaddrs(&all) != 0) {
        return false;
    }
    for (const struct ifaddrs *a = all; a != NULL; a = a->ifa_next) {
        if (usable(a) && !listed(list, a->ifa_name) &&
            n + strlen(a->ifa_name) + 2 < room) {
            n += (size_t)snprintf(list + n, room - n, "%s%s", n > 0 ? "," : "",
                                  a->ifa_name);
        }
    }
    freeifaddrs(all);
    if (n == 0) {
        snprintf(list, room, "lo");
    }
    return true;
}

/* --- settings of UCX -------------------------------------------------------
 */

/* UCX's variables belong to UCX, not to the table of our settings. */
static bool given(const char *prefix, const char *name)
{
    char variable[64];

    snprintf(variable, sizeof(variable), "UCX_%s%s", prefix, name);
    return getenv(variable) != NULL;
}

static void prefer(ucp_config_t *config, const char *name, const char *value)
{
    if (!given("", name) && ucp_config_modify(config, name, value) != UCS_OK) {
        wf_log(WEFT_LOG_DEBUG, "this UCX has no UCX_%s", name);
    }
}

/* For settings of one transport, UCX wants to hear whose they are since version
 * 1.17, and not before. */
static void prefer_tcp(ucp_config_t *config, const char *name,
                       const char *value)
{
    char full[64];
    unsigned major;
    unsigned minor;
    unsigned release;

    ucp_get_version(&major, &minor, &release);
    snprintf(full, sizeof(full), "%s%s", major == 1 && minor < 17 ? "" : "TCP_",
             name);
    if (!given("TCP_", name)) {
        prefer(config, full, value);
    }
}

/* A process that ends closes its connections, which its peers see at once. A
 * cable that is cut is not to end them before the core has decided so: TCP
 * begins to ask after this time, and gives up a few questions later. */
static void keep_alive(ucp_config_t *config, uint64_t patience_ns)
{
    char text[32];

    snprintf(text, sizeof(text), "%llus",
             (unsigned long long)(patience_ns / WF_SEC + 5));
    prefer(config, "KEEPALIVE_INTERVAL", text);
    prefer_tcp(config, "KEEPIDLE", text);
    prefer_tcp(config, "KEEPINTVL", "5s");
    prefer_tcp(config, "KEEPCNT", "3");
}

static void configure(wf_port *port, ucp_config_t *config,
                      const wf_settings *settings)
{
    char devices[512];

    /* Ranks of one host have the shm transport. */
    prefer(config, "TLS", "^sm,self");
    port->tcp = choose_devices(devices, sizeof(devices));
    if (port->tcp) {
        prefer(config, "NET_DEVICES", devices);
    }
    keep_alive(config, settings->host_timeout_ns);
    /* No call of ours may block. */
    prefer_tcp(config, "CONN_NB", "y");
    /* Else a peer writes our memory by itself, also after the message that the
     * memory was lent for has been dropped. */
    prefer_tcp(config, "PUT_ENABLE", "n");
    /* The longest piece that a call of the kernel takes of a large message. A
     * longer one does not stay in the cache until it is copied out. */
    prefer_tcp(config, "RX_SEG_SIZE", "256k");
}

/* --- open and close --------------------------------------------------------
 */

static weft_status failed(const char *what, ucs_status_t status)
{
    return wf_fail(WEFT_ERR_UNSUPPORTED, "UCX %s: %s: %s",
                   ucp_get_version_string(), what, ucs_status_string(status));
}

static weft_status open_context(wf_port *port, const wf_settings *settings)
{
    const ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                 .features =
                                     UCP_FEATURE_AM | UCP_FEATURE_WAKEUP};
    ucp_config_t *config = NULL;
    ucs_status_t st = ucp_config_read(NULL, NULL, &config);

    if (st != UCS_OK) {
        return failed("reading its settings", st);
    }
    configure(port, config, settings);
    if (!given("", "LOG_LEVEL")) {
        ucx_log_take();
    }
    st = ucp_init(&params, config, &port->context);
    ucp_config_release(config);
    return st == UCS_OK ? WEFT_OK : failed("starting", st);
}

static weft_status open_worker(wf_port *port)
{
    const ucp_worker_params_t params = {
        .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
        .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    const ucp_am_handler_param_t handler = {.field_mask =
                                                UCP_AM_HANDLER_PARAM_FIELD_ID |
                                                UCP_AM_HANDLER_PARAM_FIELD_CB |
                                                UCP_AM_HANDLER_PARAM_FIELD_ARG,
                                            .id = UCX_HANDLER,
                                            .cb = ucx_in_arrived,
                                            .arg = port};
    ucs_status_t st = ucp_worker_create(port->context, &params, &port->worker);

    if (st == UCS_OK) {
        st = ucp_worker_set_am_recv_handler(port->worker, &handler);
    }
    if (st == UCS_OK) {
        st = ucp_worker_get_efd(port->worker, &port->fd);
    }
    if (st == UCS_OK) {
        st = ucp_worker_get_address(port->worker, &port->address,
                                    &port->address_bytes);
    }
    return st == UCS_OK ? WEFT_OK : failed("a worker", st);
}

static weft_status publish(wf_port *port)
{
    weft_status st = wf_random(&port->nonce, sizeof(port->nonce));

    port->published = wf_zalloc(sizeof(ucx_address) + port->address_bytes);
    if (st == WEFT_OK && port->published == NULL) {
        st = wf_fail_nomem("the address of transport ucx");
    }
    if (st == WEFT_OK) {
        *port->published = (ucx_address){UCX_MAGIC, UCX_VERSION, port->nonce};
        memcpy(port->published + 1, port->address, port->address_bytes);
    }
    return st;
}

weft_status ucx_context_open(wf_port *port, const wf_settings *settings)
{
    weft_status st = open_context(port, settings);

    port->fd = -1;
    if (st == WEFT_OK) {
        st = open_worker(port);
    }
    return st == WEFT_OK ? publish(port) : st;
}

/* Has UCX nothing more to send, and is nothing more coming in? */
static bool all_out(ucp_worker_h worker, uint64_t deadline)
{
    const ucp_request_param_t param = {0};
    ucs_status_ptr_t flush = ucp_worker_flush_nbx(worker, &param);
    bool at_once = !UCS_PTR_IS_PTR(flush);
    bool quiet = ucp_worker_progress(worker) == 0;

    while (!at_once && ucp_request_check_status(flush) == UCS_INPROGRESS &&
           wf_now_ns() < deadline) {
        if (ucp_worker_progress(worker) == 0) {
            sched_yield();
        }
    }
    if (!at_once) {
        ucp_request_free(flush);
    }
    return at_once && quiet;
}

/* Peers that are just connecting are owed an answer, and UCX (1.13) aborts the
 * process if a worker is destroyed before that is out. False: it is not out
 * yet, as a peer does not take it. */
static bool all_answered(ucp_worker_h worker)
{
    uint64_t deadline = wf_now_ns() + ANSWER_NS;
    bool done = false;

    while (!done && wf_now_ns() < deadline) {
        done = all_out(worker, deadline);
    }
    return done;
}

void ucx_context_close(wf_port *port)
{
    if (port->worker != NULL) {
        if (port->address != NULL) {
            ucp_worker_release_address(port->worker, port->address);
        }
        if (all_answered(port->worker)) {
            ucp_worker_destroy(port->worker);
        } else {
            /* Its memory is lost, which is better than the process. */
            wf_log(WEFT_LOG_INFO, "UCX is left as it is: a peer was "
                                  "connecting and does not answer");
            port->context = NULL;
        }
    }
    if (port->context != NULL) {
        ucp_cleanup(port->context);
    }
    wf_free(port->published);
    port->worker = NULL;
    port->context = NULL;
    port->address = NULL;
    port->published = NULL;
}

/* --- what was chosen -------------------------------------------------------
 */

/* Add the "tcp/eth0" of a line about a lane, once. */
static void add_lane(const char *line, char *list, size_t room)
{
    char name[64];
    const char *at = strstr(line, "lane[");
    size_t n = strlen(list);

    at = at != NULL ? strchr(at + 5, ':') : NULL;
    at = at != NULL ? strchr(at + 1, ':') : NULL;
    if (at == NULL || sscanf(at + 1, "%63[^ .]", name) != 1 ||
        listed(list, name)) {
        return;
    }
    snprintf(list + n, room - n, "%s%s", n > 0 ? "," : "", name);
}

void ucx_context_tell(wf_port *port, const ucx_peer *peer)
{
    char *text = NULL;
    char *rest;
    size_t n = 0;
    FILE *f = port->told ? NULL : open_memstream(&text, &n);
    char lanes[256] = "";

    if (f == NULL) {
        return;
    }
    ucp_ep_print_info(peer->ep, f);
    fclose(f);
    port->told = true;
    for (char *line = strtok_r(text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        add_lane(line, lanes, sizeof(lanes));
    }
    free(text);
    wf_log(WEFT_LOG_INFO, "rank %u uses UCX %s over %s", port->setup.host->rank,
           ucp_get_version_string(),
           lanes[0] != '\0' ? lanes : "what it has chosen");
}
