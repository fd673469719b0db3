/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/mail.h"

#include <stdio.h>
#include <string.h>

#include "base/secret.h"
#include "base/time.h"
#include "comm/ids.h"

typedef struct note {
    int32_t status;
    char text[WF_DETAIL_MAX];
} note;

uint64_t wf_mail_key(const uint32_t *members, uint32_t size, uint64_t salt,
                     enum wf_mail_step step)
{
    /* Not a secret: it only has to tell groups of ranks apart. */
    wf_secret key = {{salt, size}};
    uint64_t hash = wf_keyed_hash(&key, members, size * sizeof(*members));

    return (hash & ~(WF_MAIL_CALL | 3)) | (uint64_t)step;
}

/* --- among a group -------------------------------------------------------- */

wf_mail_group wf_mail_group_of(weft_comm *comm)
{
    return (wf_mail_group){.world = comm->world,
                           .comm = comm,
                           .member = comm->member,
                           .size = comm->size,
                           .deadline_ns = wf_now_ns() + comm->timeout_ns};
}

weft_status wf_mail_give_up(const wf_mail_group *g, weft_status st)
{
    return g->comm == NULL ? st : wf_comm_give_up(g->comm, st);
}

weft_status wf_mail_post(const wf_mail_group *g, uint32_t to, uint64_t key,
                         const void *data, size_t n, int fd)
{
    weft_status st =
        wf_host_post(g->world->host, g->member[to], key, data, n, fd);

    return st == WEFT_OK ? st : wf_mail_give_up(g, st);
}

static weft_status group_check(void *ctx)
{
    return wf_comm_check(ctx);
}

weft_status wf_mail_take(const wf_mail_group *g, uint32_t from, uint64_t key,
                         void *data, size_t *n, int *fd)
{
    wf_await await = {.host = g->world->host,
                      .needs = g->member,
                      .count = g->size,
                      .deadline_ns = g->deadline_ns,
                      .check = g->comm != NULL ? group_check : NULL,
                      .ctx = g->comm};
    weft_status st = wf_await_mail(&await, g->member[from], key, data, n, fd);

    return wf_await_spent(st) ? st : wf_mail_give_up(g, st);
}

/* --- a status ------------------------------------------------------------- */

static size_t note_make(weft_status status, const char *text, note *out)
{
    out->status = (int32_t)status;
    snprintf(out->text, sizeof(out->text), "%s", text);
    return offsetof(note, text) + strlen(out->text) + 1;
}

weft_status wf_mail_post_status(const wf_mail_group *g, uint32_t to,
                                uint64_t key, weft_status status,
                                const char *text)
{
    note n;
    size_t bytes = note_make(status, text, &n);

    return wf_mail_post(g, to, key, &n, bytes, -1);
}

static weft_status note_read(const void *data, size_t n, note *out)
{
    if (n <= offsetof(note, text) || n > sizeof(*out) ||
        ((const char *)data)[n - 1] != '\0') {
        return wf_fail(WEFT_ERR_PROTOCOL, "mail of %zu bytes is malformed", n);
    }
    memcpy(out, data, n);
    out->status = (int32_t)wf_status_parse(out->status);
    return WEFT_OK;
}

weft_status wf_mail_take_status(const wf_mail_group *g, uint32_t from,
                                uint64_t key, weft_status *theirs)
{
    unsigned char data[WF_MAIL_MAX];
    size_t n = sizeof(data);
    note got;
    weft_status st = wf_mail_take(g, from, key, data, &n, NULL);

    if (!wf_await_spent(st)) {
        return st;
    }
    if (st == WEFT_OK) {
        st = note_read(data, n, &got);
    }
    *theirs = st != WEFT_OK ? st
              : got.status != (int)WEFT_OK
                  ? wf_fail((weft_status)got.status, "%s", got.text)
                  : WEFT_OK;
    return WEFT_OK;
}

/* --- the end of a communicator -------------------------------------------- */

void wf_mail_break(weft_comm *comm)
{
    note n;
    size_t bytes = note_make(comm->status, comm->text, &n);

    for (uint32_t r = 0; r < comm->size; r++) {
        if (r != comm->rank) {
            (void)wf_host_post(comm->world->host, comm->member[r],
                               WF_MAIL_CALL | comm->id, &n, bytes, -1);
        }
    }
}

/* On the watching thread. */
static void on_mail(void *ctx, uint32_t from, uint64_t key, const void *data,
                    size_t n)
{
    weft_world *world = ctx;
    note got;

    if ((key & WF_MAIL_IDS) != 0) {
        wf_ids_asked(world, from);
        return;
    }
    if (note_read(data, n, &got) != WEFT_OK) {
        return;
    }
    pthread_mutex_lock(&world->comms_lock);
    for (weft_comm *c = world->comms; c != NULL; c = c->next) {
        if (c->id == (uint32_t)key) {
            wf_comm_broken_by(c, (weft_status)got.status, got.text);
        }
    }
    pthread_mutex_unlock(&world->comms_lock);
}

void wf_mail_listen(weft_world *world)
{
    wf_host_on_mail(world->host, on_mail, world);
}
