/* SPDX-License-Identifier: Apache-2.0 */
#include "mem/join.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/status.h"
#include "base/time.h"

#define TABLE_KEY "weft/table"

/* A rank that cannot join says so with this in place of its record. */
#define NOTE_MAGIC 0x4e464557u

/* How long a rank that cannot join waits for rank 0, to tell it. */
#define DECLINE_MS 1000

bool wf_join_same_host(const wf_join_record *a, const wf_join_record *b)
{
    return a->user == b->user && a->netns == b->netns &&
           a->userns == b->userns && strcmp(a->boot_id, b->boot_id) == 0;
}

bool wf_join_same_node(const wf_join_record *a, const wf_join_record *b)
{
    return wf_join_same_host(a, b) && strcmp(a->node, b->node) == 0;
}

static weft_status check_record(const wf_join_record *r, uint32_t rank)
{
    if (r->magic != WF_JOIN_MAGIC || r->version != WF_JOIN_VERSION) {
        return wf_fail(WEFT_ERR_PROTOCOL,
                       "rank %u runs another version of weft", rank);
    }
    if (r->rank != rank || r->boot_id[0] == '\0' ||
        memchr(r->host, 0, sizeof(r->host)) == NULL ||
        memchr(r->node, 0, sizeof(r->node)) == NULL ||
        memchr(r->boot_id, 0, sizeof(r->boot_id)) == NULL) {
        return wf_fail(WEFT_ERR_PROTOCOL, "the record of rank %u is malformed",
                       rank);
    }
    return WEFT_OK;
}

/* --- addresses ------------------------------------------------------------ */

static size_t padded(size_t n)
{
    return (n + 7) / 8 * 8;
}

static size_t packed_bytes(const wf_address *addresses, size_t count)
{
    size_t n = 0;

    for (size_t i = 0; i < count; i++) {
        n += sizeof(wf_join_section) + padded(addresses[i].n);
    }
    return n;
}

static void pack(const wf_address *addresses, size_t count, unsigned char *to)
{
    for (size_t i = 0; i < count; i++) {
        wf_join_section s = {.bytes = addresses[i].n};

        snprintf(s.of, sizeof(s.of), "%s", addresses[i].of);
        memcpy(to, &s, sizeof(s));
        to += sizeof(s);
        memset(to, 0, padded(addresses[i].n));
        if (addresses[i].n > 0) {
            memcpy(to, addresses[i].data, addresses[i].n);
        }
        to += padded(addresses[i].n);
    }
}

/* Take the first of the sections in `*left` bytes at `*at`; false if there is
 * none that is whole. */
static bool next_section(const unsigned char **at, size_t *left,
                         wf_address *out)
{
    const wf_join_section *s = (const void *)*at;
    size_t n;

    if (*left < sizeof(*s) || memchr(s->of, 0, sizeof(s->of)) == NULL ||
        s->bytes > *left - sizeof(*s) ||
        padded(s->bytes) > *left - sizeof(*s)) {
        return false;
    }
    n = sizeof(*s) + padded(s->bytes);
    *out = (wf_address){s->of, *at + sizeof(*s), s->bytes};
    *at += n;
    *left -= n;
    return true;
}

static weft_status check_addresses(const unsigned char *at, size_t n,
                                   uint32_t rank)
{
    wf_address ignored;

    while (n > 0) {
        if (!next_section(&at, &n, &ignored)) {
            return wf_fail(WEFT_ERR_PROTOCOL,
                           "the addresses of rank %u are malformed", rank);
        }
    }
    return WEFT_OK;
}

bool wf_join_address(const wf_join_table *t, uint32_t rank, const char *of,
                     wf_address *out)
{
    const unsigned char *at = (const unsigned char *)&t->record[t->head.ranks];
    size_t left = t->record[rank].address_bytes;

    for (uint32_t r = 0; r < rank; r++) {
        at += t->record[r].address_bytes;
    }
    while (next_section(&at, &left, out)) {
        if (strcmp(out->of, of) == 0) {
            return true;
        }
    }
    return false;
}

/* --- the table ------------------------------------------------------------ */

/* Check the records and, behind them, `n` bytes of addresses. */
static weft_status check_records(const wf_join_table *t, uint32_t ranks,
                                 size_t n)
{
    const unsigned char *at = (const unsigned char *)&t->record[ranks];
    weft_status st = WEFT_OK;

    for (uint32_t r = 0; r < ranks && st == WEFT_OK; r++) {
        size_t bytes = t->record[r].address_bytes;

        st = check_record(&t->record[r], r);
        if (st == WEFT_OK && (bytes > n || bytes % 8 != 0)) {
            st = wf_fail(WEFT_ERR_PROTOCOL,
                         "the addresses of rank %u are malformed", r);
        }
        if (st == WEFT_OK) {
            st = check_addresses(at, bytes, r);
            at += bytes;
            n -= bytes;
        }
    }
    return st == WEFT_OK && n > 0
               ? wf_fail(WEFT_ERR_PROTOCOL,
                         "the job's table has %zu bytes too many", n)
               : st;
}

weft_status wf_join_check(const void *data, size_t n, uint32_t ranks)
{
    const wf_join_table *t = data;
    size_t fixed = sizeof(t->head) + (size_t)ranks * sizeof(t->record[0]);

    if (n < sizeof(t->head) || t->head.magic != WF_JOIN_MAGIC ||
        t->head.version != WF_JOIN_VERSION) {
        return wf_fail(WEFT_ERR_PROTOCOL,
                       "the job's table comes from another version of weft");
    }
    if (t->head.failed != 0) {
        return wf_fail(WEFT_ERR_PEER, "rank 0 could not form the job: %.*s",
                       (int)(n - sizeof(t->head)),
                       (const char *)data + sizeof(t->head));
    }
    if (t->head.ranks != ranks || n < fixed) {
        return wf_fail(WEFT_ERR_PROTOCOL,
                       "the job's table has %u ranks, but this rank was "
                       "started with %u",
                       t->head.ranks, ranks);
    }
    return check_records(t, ranks, n - fixed);
}

/* A table has no way to interrupt a get, so it is asked again and again. One
 * that gives up before its time means it. */
static weft_status patient_get(const weft_boot *boot, const char *key,
                               const wf_patience *patience, void *value,
                               size_t *n)
{
    size_t room = *n;
    uint64_t until;
    weft_status st;

    do {
        until = wf_patience_slice(patience);
        *n = room;
        st = boot->get(boot->ctx, key, value, n, (uint32_t)wf_ms_until(until));
    } while (wf_now_ns() + WF_SLICE_NS / 2 >= until &&
             wf_patience_lasts(patience, &st));
    return st;
}

typedef struct note {
    wf_join_head head;
    char text[512];
} note;

static weft_status read_note(const void *data, size_t n, uint32_t rank)
{
    wf_join_head head;

    if (n < sizeof(head)) {
        n = 0;
    } else {
        memcpy(&head, data, sizeof(head));
    }
    if (n != 0 && head.magic == WF_JOIN_MAGIC &&
        head.version != WF_JOIN_VERSION) {
        return wf_fail(WEFT_ERR_PROTOCOL,
                       "rank %u runs another version of weft", rank);
    }
    if (n == 0 || head.magic != NOTE_MAGIC) {
        return wf_fail(WEFT_ERR_PROTOCOL, "the record of rank %u is malformed",
                       rank);
    }
    return wf_fail(WEFT_ERR_PEER, "rank %u could not join: %.*s", rank,
                   (int)(n - sizeof(head)), (const char *)data + sizeof(head));
}

/* A table that is being filled: `n` of `room` bytes are. */
typedef struct filling {
    wf_join_table *table;
    size_t n;
    size_t room;
} filling;

/* Put the record of `rank`, which came as `n` bytes at `data` with its
 * addresses behind it, into the table. */
static weft_status enter(filling *f, uint32_t rank, const void *data, size_t n)
{
    wf_join_record *r = &f->table->record[rank];
    size_t addresses = n - sizeof(*r);
    weft_status st;

    memcpy(r, data, sizeof(*r));
    st = check_record(r, rank);
    if (st == WEFT_OK && r->address_bytes != addresses) {
        st = wf_fail(WEFT_ERR_PROTOCOL, "the record of rank %u is malformed",
                     rank);
    }
    if (st == WEFT_OK && addresses > f->room - f->n) {
        st = wf_fail(WEFT_ERR_UNSUPPORTED,
                     "the addresses of rank %u take %zu bytes; the table of "
                     "the job, with %u bytes at most, has no room for them",
                     rank, addresses, WEFT_BOOT_VALUE_MAX);
    }
    if (st == WEFT_OK && addresses > 0) {
        memcpy((char *)f->table + f->n, (const char *)data + sizeof(*r),
               addresses);
        f->n += addresses;
    }
    return st;
}

static weft_status collect_one(const weft_boot *boot, uint32_t rank,
                               const wf_patience *patience, void *buffer,
                               filling *f)
{
    size_t n = WEFT_BOOT_VALUE_MAX;
    char key[32];
    weft_status st;

    snprintf(key, sizeof(key), "weft/rank/%u", rank);
    st = patient_get(boot, key, patience, buffer, &n);
    if (st == WEFT_ERR_TIMEOUT) {
        return wf_fail(st, "rank %u did not join in time", rank);
    }
    if (st != WEFT_OK) {
        return st;
    }
    return n >= sizeof(wf_join_record) ? enter(f, rank, buffer, n)
                                       : read_note(buffer, n, rank);
}

static weft_status collect(const weft_boot *boot, const void *own, size_t n,
                           const wf_patience *patience, filling *f)
{
    void *buffer = boot->ranks > 1 ? wf_alloc(WEFT_BOOT_VALUE_MAX) : NULL;
    weft_status st = enter(f, 0, own, n);

    if (boot->ranks > 1 && buffer == NULL) {
        st = wf_fail_nomem("the record of a rank");
    }
    for (uint32_t r = 1; r < boot->ranks && st == WEFT_OK; r++) {
        st = collect_one(boot, r, patience, buffer, f);
    }
    wf_free(buffer);
    return st;
}

/* So that the others need not wait for their own deadline. */
static void publish_failure(const weft_boot *boot, const char *key,
                            uint32_t magic, size_t room)
{
    note why;

    memset(&why, 0, sizeof(why));
    why.head.magic = magic;
    why.head.version = WF_JOIN_VERSION;
    why.head.failed = 1;
    snprintf(why.text, room - sizeof(why.head), "%s", weft_error_detail());
    (void)boot->set(boot->ctx, key, &why, sizeof(why.head) + strlen(why.text));
}

void wf_join_decline(const weft_boot *boot)
{
    wf_failure why = wf_failure_of(WEFT_OK);
    note answer;
    size_t n = sizeof(answer);
    char key[32];

    if (boot->ranks == 1) {
        return;
    }
    if (boot->rank == 0) {
        publish_failure(boot, TABLE_KEY, WF_JOIN_MAGIC, sizeof(note));
    } else {
        snprintf(key, sizeof(key), "weft/rank/%u", boot->rank);
        publish_failure(boot, key, NOTE_MAGIC, sizeof(wf_join_record));
        /* A table that has yet to reach rank 0 gets a moment for it. */
        (void)boot->get(boot->ctx, TABLE_KEY, &answer, &n, DECLINE_MS);
    }
    wf_failure_again(&why);
}

static weft_status lead(const weft_boot *boot, const void *own, size_t n,
                        const wf_patience *patience, filling *f)
{
    wf_join_table *t = f->table;
    wf_failure why;
    weft_status st = collect(boot, own, n, patience, f);

    t->head = (wf_join_head){.magic = WF_JOIN_MAGIC,
                             .version = WF_JOIN_VERSION,
                             .ranks = boot->ranks};
    if (st == WEFT_OK) {
        st = wf_random(&t->head.secret, sizeof(t->head.secret));
    }
    if (st == WEFT_OK) {
        st = wf_random(&t->head.job, sizeof(t->head.job));
    }
    if (st != WEFT_OK) {
        why = wf_failure_of(st);
        publish_failure(boot, TABLE_KEY, WF_JOIN_MAGIC, sizeof(note));
        return wf_failure_again(&why);
    }
    return boot->ranks == 1 ? WEFT_OK
                            : boot->set(boot->ctx, TABLE_KEY, t, f->n);
}

static weft_status follow(const weft_boot *boot, const void *own, size_t n,
                          const wf_patience *patience, filling *f)
{
    /* A little longer than rank 0 waits, so that its explanation gets here. */
    wf_patience longer = {patience->deadline_ns + WF_SEC / 2,
                          patience->interrupt};
    char key[32];
    weft_status st;

    snprintf(key, sizeof(key), "weft/rank/%u", boot->rank);
    st = boot->set(boot->ctx, key, own, n);
    if (st != WEFT_OK) {
        wf_join_decline(boot);
        return st;
    }
    st = patient_get(boot, TABLE_KEY, &longer, f->table, &f->room);
    if (st == WEFT_ERR_TIMEOUT) {
        return wf_fail(st, "rank 0 did not form the job in time");
    }
    return st != WEFT_OK ? st : wf_join_check(f->table, f->room, boot->ranks);
}

/* The record as it is published, with its addresses behind it. */
static weft_status publishable(const wf_join_record *own,
                               const wf_address *addresses, size_t count,
                               void **out, size_t *n)
{
    size_t bytes = packed_bytes(addresses, count);
    wf_join_record *r = wf_alloc(sizeof(*r) + bytes);

    if (r == NULL) {
        return wf_fail_nomem("addresses of %zu bytes", bytes);
    }
    *r = *own;
    r->address_bytes = bytes;
    pack(addresses, count, (unsigned char *)(r + 1));
    *out = r;
    *n = sizeof(*r) + bytes;
    return WEFT_OK;
}

weft_status wf_join_exchange(const weft_boot *boot, const wf_join_record *own,
                             const wf_address *addresses, size_t count,
                             const wf_patience *patience, wf_join_table **out)
{
    size_t fixed =
        sizeof(wf_join_head) + (size_t)boot->ranks * sizeof(wf_join_record);
    filling f = {.n = fixed};
    wf_join_table *shrunk;
    void *record = NULL;
    size_t n = 0;
    weft_status st = publishable(own, addresses, count, &record, &n);

    /* Room for rank 0's explanation even when the table is smaller. */
    f.room = boot->ranks == 1              ? fixed + n
             : fixed > WEFT_BOOT_VALUE_MAX ? fixed
                                           : WEFT_BOOT_VALUE_MAX;
    f.table = wf_alloc(f.room);
    if (st == WEFT_OK && f.table == NULL) {
        st = wf_fail_nomem("a table of %u ranks", boot->ranks);
    }
    if (st != WEFT_OK) {
        wf_join_decline(boot);
    } else {
        memset(f.table, 0, fixed); /* the rest, mostly unused, is not touched */
        st = own->rank == 0 ? lead(boot, record, n, patience, &f)
                            : follow(boot, record, n, patience, &f);
    }
    wf_free(record);
    if (st != WEFT_OK) {
        wf_free(f.table);
        return st;
    }
    shrunk = wf_realloc(f.table, own->rank == 0 ? f.n : f.room);
    *out = shrunk != NULL ? shrunk : f.table;
    return WEFT_OK;
}
