/* SPDX-License-Identifier: Apache-2.0 */
/* The worker's side of operations on many keys: bulk.h. */
#include "store/hosts/bulk.h"

#include <string.h>

#include "base/log.h"
#include "base/time.h"

/* A parcel is about so much of what may be under way, so that the next one is
 * there when it is answered. */
#define WINDOW_PARTS 4u

/* What became of a key, in wf_remote.bulk. */
enum { APART = 0, SENT = 1 };

bool wf_bulk_takes(const wf_store_hosts *h, wf_op_kind kind, uint64_t i,
                   uint32_t word)
{
    uint32_t owner = wf_word_owner(word);

    return i < WF_BULK_NOT_DONE &&
           (kind == WF_OP_PULL || wf_op_has_values(kind)) &&
           (word & WF_KEY_HERE) == 0 && owner != h->store->number &&
           owner < h->store->hosts && h->server[owner] != UINT32_MAX;
}

/* --- shares that wait for room -------------------------------------------- */

static bool waits(const wf_share *s)
{
    return s->next < s->end;
}

static void line_add(wf_store_hosts *h, wf_share *s)
{
    wf_line *line = &h->line[s->host];

    h->waiting_shares++;
    s->before = line->last;
    s->after = NULL;
    *(line->last != NULL ? &line->last->after : &line->first) = s;
    line->last = s;
}

static void line_remove(wf_store_hosts *h, wf_share *s)
{
    wf_line *line = &h->line[s->host];

    h->waiting_shares--;
    *(s->before != NULL ? &s->before->after : &line->first) = s->after;
    *(s->after != NULL ? &s->after->before : &line->last) = s->before;
}

/* --- what is under way ---------------------------------------------------- */

static uint64_t cost(const wf_store_hosts *h, const wf_remote *r, uint32_t i)
{
    return WF_BULK_OP_BYTES + wf_store_row_bytes(h->store, r->key[i]);
}

/* To the server of a host; NULL: it has none. */
static wf_flow *flow_to(const wf_store_hosts *h, uint32_t host)
{
    return h->server[host] != UINT32_MAX
               ? wf_ports_flow(h->world, h->server[host])
               : NULL;
}

/* A key is answered, or will not be: the bytes that were under way for it. */
static uint64_t settle(wf_store_hosts *h, wf_remote *r, uint32_t i)
{
    uint64_t bytes = r->bulk[i] == SENT ? cost(h, r, i) : 0;

    if (bytes > 0) {
        h->line[wf_word_owner(r->word[i])].under_way -= bytes;
        r->bulk[i] = APART;
    }
    return bytes;
}

void wf_bulk_answered(wf_store_hosts *h, wf_remote *r, uint32_t i)
{
    uint32_t host = wf_word_owner(r->word[i]);
    uint64_t bytes = settle(h, r, i);
    wf_flow *flow = bytes > 0 ? flow_to(h, host) : NULL;

    if (bytes > 0) {
        h->line[host].heard_ns = h->heard_ns;
    }
    if (flow != NULL) {
        wf_flow_answered(flow, bytes, h->heard_ns);
    }
}

static void lose(wf_store_hosts *h, wf_remote *r, uint32_t i)
{
    uint32_t host = wf_word_owner(r->word[i]);
    uint64_t bytes = settle(h, r, i);
    wf_flow *flow = bytes > 0 ? flow_to(h, host) : NULL;

    if (flow != NULL) {
        wf_flow_lost(flow, bytes);
    }
}

void wf_bulk_drop(wf_store_hosts *h, wf_remote *r)
{
    for (uint32_t i = 0; r->left > 0 && i < r->n; i++) {
        lose(h, r, i);
    }
    for (uint32_t i = 0; i < r->shares; i++) {
        if (waits(&r->share[i])) {
            line_remove(h, &r->share[i]);
        }
    }
    r->shares = 0;
}

void wf_bulk_lost(wf_store_hosts *h, uint32_t host)
{
    for (uint32_t place = 0; place < h->ops; place++) {
        wf_remote *r = h->op[place].op;

        for (uint64_t i = 0; r != NULL && i < r->n; i++) {
            if (r->bulk[i] == SENT && wf_word_owner(r->word[i]) == host) {
                lose(h, r, (uint32_t)i);
            }
        }
    }
}

uint64_t wf_bulk_heard(const wf_store_hosts *h, const wf_remote *r)
{
    uint64_t heard = r->since;

    for (uint32_t i = 0; i < r->shares; i++) {
        uint64_t of_host = h->line[r->share[i].host].heard_ns;

        if (waits(&r->share[i]) && of_host > heard) {
            heard = of_host;
        }
    }
    return heard;
}

/* --- sending -------------------------------------------------------------- */

/* A parcel that is about to be sent: n keys of an operation. */
typedef struct ops_parcel {
    const wf_store_hosts *h;
    const wf_remote *r;
    const uint32_t *at; /* which keys of it */
    uint32_t n;
} ops_parcel;

static void fill_ops(void *ctx, void *payload)
{
    const ops_parcel *p = ctx;
    const wf_remote *r = p->r;
    uint64_t *key = payload;
    uint32_t *position = (uint32_t *)(void *)(key + p->n);
    uint16_t *epoch = (uint16_t *)(void *)(position + p->n);
    char *row = (char *)payload + wf_ops_head(p->n);

    for (uint32_t i = 0; i < p->n; i++) {
        key[i] = r->key[p->at[i]];
        position[i] = p->at[i];
        epoch[i] = wf_word_epoch(r->word[p->at[i]]);
    }
    memset(epoch + p->n, 0, (size_t)(row - (char *)(epoch + p->n)));
    for (uint32_t i = 0; wf_op_has_values(r->kind) && i < p->n; i++) {
        uint64_t bytes = wf_store_row_bytes(p->h->store, r->key[p->at[i]]);

        memcpy(row, r->values + r->offset[p->at[i]], bytes);
        row += bytes;
    }
}

static void mark(const ops_parcel *p, wf_remote *r, bool how)
{
    for (uint32_t i = 0; i < p->n; i++) {
        r->bulk[p->at[i]] = how;
    }
}

/* The first n keys of what is left of a share; their bytes, which are under way
 * then. Without memory to send them the operation fails. */
static uint64_t send_ops(wf_store_hosts *h, wf_remote *r, const wf_share *s,
                         uint32_t n)
{
    ops_parcel p = {.h = h, .r = r, .at = &r->order[s->next], .n = n};
    wf_parcel parcel = {.store = h->box.store,
                        .kind = WF_PARCEL_OPS,
                        .bytes = wf_ops_head(n),
                        .count = n,
                        .token = r->token,
                        .extra = (uint64_t)r->kind};
    uint64_t bytes = 0;

    mark(&p, r, SENT);
    for (uint32_t i = 0; i < n; i++) {
        bytes += cost(h, r, p.at[i]);
    }
    if (wf_op_has_values(r->kind)) {
        parcel.bytes += bytes - n * WF_BULK_OP_BYTES;
    }
    if (n > 0 && !wf_out_filled(h, h->server[s->host], &parcel, fill_ops, &p)) {
        mark(&p, r, APART);
        wf_remote_fail(r, WEFT_ERR_NOMEM, "no memory to send keys of a store");
        return 0;
    }
    return bytes;
}

/* How many of the next keys of a share fit into one parcel, and their rows into
 * a part of the window: one at least. Their bytes, too. */
static uint32_t ops_fit(const wf_store_hosts *h, const wf_remote *r,
                        const wf_share *s, const wf_flow *flow, uint64_t *bytes)
{
    uint64_t part = flow->window / WINDOW_PARTS;
    uint64_t most = part > flow->payload ? part : flow->payload;
    uint64_t parcel = 8;
    uint32_t n = 0;

    *bytes = 0;
    while (s->next + n < s->end) {
        uint64_t one = cost(h, r, r->order[s->next + n]);

        parcel += wf_op_has_values(r->kind) ? one : WF_BULK_OP_BYTES;
        if (n > 0 && (parcel > flow->payload || *bytes + one > most)) {
            break;
        }
        *bytes += one;
        n++;
    }
    return n;
}

/* The next n keys have waited. Those that have come here meanwhile, or gone
 * elsewhere, are sent as messages of their own; how many are left. */
static uint32_t look_again(wf_store_hosts *h, wf_remote *r, const wf_share *s,
                           uint32_t n)
{
    uint32_t *order = &r->order[s->next];
    uint32_t kept = 0;

    for (uint32_t at = 0; at < n; at++) {
        uint32_t i = order[at];

        r->word[i] = wf_directory_get(h->store->slots, r->key[i]);
        if (wf_bulk_takes(h, r->kind, i, r->word[i]) &&
            wf_word_owner(r->word[i]) == s->host) {
            order[kept++] = i;
        } else {
            wf_remote_send_key(h, r, i, r->kind);
        }
    }
    return kept;
}

/* The next parcel of a share; false if there is no room for it. */
static bool send_next(wf_store_hosts *h, wf_share *s, bool late)
{
    wf_line *line = &h->line[s->host];
    wf_flow *flow = flow_to(h, s->host);
    uint64_t bytes;
    uint32_t n;

    if (flow == NULL) {
        return false; /* the operation is looked at after the death */
    }
    n = ops_fit(h, s->op, s, flow, &bytes);
    if (!wf_flow_room(flow, line->under_way, bytes)) {
        return false;
    }
    bytes = send_ops(h, s->op, s, late ? look_again(h, s->op, s, n) : n);
    line->under_way += bytes;
    s->op->since = wf_now_ns(); /* what it waited before is not silence */
    wf_flow_sent(flow, bytes, s->op->since);
    s->next = s->op->status == WF_PENDING ? s->next + n : s->end;
    return true;
}

void wf_bulk_send(wf_store_hosts *h, wf_share *s)
{
    bool room = h->line[s->host].first == NULL;

    while (room && waits(s)) {
        room = send_next(h, s, false);
    }
    if (waits(s)) {
        line_add(h, s);
    }
}

/* One parcel of each operation in turn, so that a short one does not wait for
 * all of a long one. */
static void send_waiting(wf_store_hosts *h, const wf_line *line)
{
    wf_share *s;

    while ((s = line->first) != NULL && send_next(h, s, true)) {
        line_remove(h, s);
        if (waits(s)) {
            line_add(h, s);
        }
    }
}

void wf_bulk_go_on(wf_store_hosts *h)
{
    if (h->waiting_shares == 0 || h->paused) {
        return;
    }
    for (uint32_t host = 0; host < h->store->hosts; host++) {
        send_waiting(h, &h->line[host]);
    }
    wf_out_flush(h);
}

/* --- answers -------------------------------------------------------------- */

/* The keys of an answer, of whose rows `left` bytes came; the bytes that were
 * under way for them. */
static uint64_t read_done(wf_store_hosts *h, wf_remote *r, uint64_t n,
                          const uint32_t *position, uint64_t left)
{
    const unsigned char *row =
        (const unsigned char *)position + wf_done_head(n);
    uint64_t settled = 0;

    for (uint64_t i = 0; i < n; i++) {
        uint32_t at = position[i] & ~WF_BULK_NOT_DONE;
        uint64_t bytes = 0;

        if (at >= r->n) {
            break;
        }
        if (r->kind == WF_OP_PULL) {
            bytes = wf_store_row_bytes(h->store, r->key[at]);
        }
        if (bytes > left) {
            break;
        }
        if (at == position[i]) {
            settled += settle(h, r, at);
            wf_remote_done(h, r, at, row, bytes);
        }
        row += bytes;
        left -= bytes;
    }
    return settled;
}

void wf_bulk_done(wf_store_hosts *h, uint32_t from, const wf_parcel *parcel,
                  const void *body)
{
    wf_remote *r = parcel->token <= UINT32_MAX
                       ? wf_token_find(h, (uint32_t)parcel->token)
                       : NULL;
    uint64_t head = wf_done_head(parcel->count);
    uint32_t host = h->host_of[from];
    uint64_t settled;

    if (r == NULL) {
        return; /* of an operation that is over */
    }
    if (parcel->bytes < head || host == h->store->number) {
        wf_log(WEFT_LOG_ERROR,
               "rank %u sent malformed answers of a store; dropped", from);
        return;
    }
    h->line[host].heard_ns = h->heard_ns;
    settled = read_done(h, r, parcel->count, body, parcel->bytes - head);
    if (settled > 0) {
        wf_flow_answered(wf_ports_flow(h->world, from), settled, h->heard_ns);
    }
}
