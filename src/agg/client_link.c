/* SPDX-License-Identifier: Apache-2.0 */
/* The switches of a job, from connecting to the lanes that each of them has. */
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

#include "agg/address.h"
#include "agg/client.h"
#include "base/alloc.h"
#include "base/num.h"
#include "base/status.h"

weft_status wf_agg_link_fail(const wf_agg_link *link, weft_status st)
{
    char at[WF_AGG_ADDRESS_TEXT];
    wf_failure why = wf_failure_of(st);

    wf_agg_address_text(&link->at, at, sizeof(at));
    return wf_fail(st, "%s: %.800s", at, why.text);
}

/* --- from open to close --------------------------------------------------- */

/* Packets leave from any port, which the switch is told. */
static weft_status open_socket(wf_agg_link *link, uint16_t *port)
{
    wf_udp_address own = {.length = link->at.length};
    weft_status st;

    own.at.ss_family = link->at.at.ss_family;
    st = wf_udp_open(&own, true, &link->fd);
    *port = st == WEFT_OK ? ntohs(*wf_agg_address_port(&own)) : 0;
    return st;
}

static weft_status open_link(wf_agg_link *link, const wf_secret *key,
                             const wf_agg_options *o)
{
    wf_agg_join join = {.group = {o->group[0], o->group[1]},
                        .rank = (uint16_t)o->rank,
                        .ranks = (uint16_t)o->ranks,
                        .slots = (uint16_t)o->slots,
                        .payload = (uint16_t)o->payload,
                        .whole = o->whole};
    weft_status st = open_socket(link, &join.port);

    if (st == WEFT_OK) {
        st = wf_agg_session_open(&link->session, &link->at, key, &join);
    }
    return st == WEFT_OK ? st : wf_agg_link_fail(link, st);
}

weft_status wf_agg_client_open(wf_agg_client *c, const wf_udp_address *at,
                               const wf_secret *key,
                               const wf_agg_options *options)
{
    weft_status st;

    *c = (wf_agg_client){.options = *options, .missing = WF_AGG_ALL};
    c->links = options->switches == 0 ? 1 : options->switches;
    for (uint32_t i = 0; i < c->links; i++) {
        c->link[i] =
            (wf_agg_link){.at = at[i], .fd = -1, .session = {.fd = -1}};
    }
    c->inbox = wf_zalloc_aligned(64, sizeof(*c->inbox));
    c->batch = wf_zalloc(sizeof(*c->batch));
    c->stage = wf_zalloc_aligned(64, WF_UDP_BYTES + 64 * WF_UDP_SEGMENTS);
    c->scratch = wf_zalloc_aligned(64, WF_AGG_PAYLOAD_MAX);
    c->aligned = wf_zalloc_aligned(64, WF_AGG_PAYLOAD_MAX);
    st = c->inbox != NULL && c->batch != NULL && c->stage != NULL &&
                 c->scratch != NULL && c->aligned != NULL
             ? WEFT_OK
             : wf_fail_nomem("packets of a switch");
    for (uint32_t i = 0; i < c->links && st == WEFT_OK; i++) {
        st = open_link(&c->link[i], key, options);
    }
    if (st != WEFT_OK) {
        wf_agg_client_close(c);
    }
    return st;
}

static void close_link(wf_agg_link *link)
{
    wf_agg_session_close(&link->session);
    if (link->fd >= 0) {
        close(link->fd);
    }
    link->fd = -1;
}

void wf_agg_client_close(wf_agg_client *c)
{
    for (uint32_t i = 0; i < c->links; i++) {
        close_link(&c->link[i]);
    }
    for (uint32_t i = 0; i < c->lanes; i++) {
        wf_free(c->lane[i].entries);
        c->lane[i] = (wf_agg_lane){.entries = NULL};
    }
    wf_free(c->inbox);
    wf_free(c->batch);
    wf_free(c->stage);
    wf_free(c->scratch);
    wf_free(c->aligned);
    c->inbox = NULL;
    c->batch = NULL;
    c->stage = NULL;
    c->scratch = NULL;
    c->aligned = NULL;
    c->lanes = 0;
    c->links = 0;
    c->joined = false;
    c->under_way = false;
}

/* --- joining -------------------------------------------------------------- */

static weft_status open_lane(wf_agg_client *c, uint32_t number, uint8_t shard)
{
    const wf_agg_options *o = &c->options;
    const wf_agg_link *link = &c->link[number];
    uint32_t slots = link->session.joined.slots;
    uint32_t window = o->window == 0 ? slots : o->window;
    const wf_agg_window_config config = {.slots = slots,
                                         .limit =
                                             (uint32_t)wf_least(window, slots),
                                         .least_ns = o->least_ns,
                                         .most_ns = o->most_ns,
                                         .patience_ns = o->patience_ns};
    wf_agg_lane *lane = &c->lane[c->lanes++];

    *lane = (wf_agg_lane){.link = number, .shard = shard, .to = link->at};
    *wf_agg_address_port(&lane->to) = htons(link->session.joined.port[shard]);
    lane->entries = wf_alloc(slots * sizeof(*lane->entries));
    if (lane->entries == NULL) {
        return wf_fail_nomem("the window of a switch");
    }
    wf_agg_window_init(&lane->window, &config, lane->entries);
    return WEFT_OK;
}

static weft_status join(wf_agg_client *c)
{
    weft_status st = WEFT_OK;

    for (uint32_t i = 0; i < c->links && st == WEFT_OK; i++) {
        wf_agg_link *link = &c->link[i];
        const wf_agg_joined *joined = &link->session.joined;

        link->key.secret =
            wf_agg_derive(&link->session.key, c->options.group, joined);
        link->key.whole = c->options.whole;
        link->first = c->lanes;
        for (uint8_t s = 0; s < joined->shards && st == WEFT_OK; s++) {
            st = open_lane(c, i, s);
        }
    }
    c->joined = st == WEFT_OK;
    return st;
}

weft_status wf_agg_client_meet(wf_agg_client *c, uint32_t heard)
{
    bool all = true;

    for (uint32_t i = 0; i < c->links; i++) {
        wf_agg_session *session = &c->link[i].session;
        weft_status st =
            (heard >> i & 1) != 0 ? WEFT_OK : wf_agg_session_step(session);

        if (st != WEFT_OK) {
            return wf_agg_link_fail(&c->link[i], st);
        }
        all = all && session->state == WF_AGG_SESSION_JOINED;
    }
    return all && !c->joined ? join(c) : WEFT_OK;
}

bool wf_agg_client_answered(const wf_agg_client *c)
{
    for (uint32_t i = 0; i < c->links; i++) {
        if (c->link[i].session.state < WF_AGG_SESSION_JOINING) {
            return false;
        }
    }
    return true;
}

uint64_t wf_agg_client_reach(const wf_agg_client *c)
{
    uint64_t most = 0;

    for (uint32_t i = 0; i < c->links; i++) {
        uint64_t slots = c->link[i].session.joined.slots;

        most = slots > most ? slots : most;
    }
    return most * c->lanes;
}
