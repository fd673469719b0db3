/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/mail.h"

#include <stdio.h>
#include <string.h>

#include "base/secret.h"
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

weft_status wf_mail_status(weft_world *world, uint32_t to, uint64_t key,
                           weft_status status, const char *text)
{
    note n = {.status = (int32_t)status};

    snprintf(n.text, sizeof(n.text), "%s", text);
    return wf_host_post(world->host, to, key, &n,
                        offsetof(note, text) + strlen(n.text) + 1, -1);
}

static weft_status note_read(const void *data, size_t n, note *out)
{
    if (n <= offsetof(note, text) || n > sizeof(*out) ||
        ((const char *)data)[n - 1] != '\0') {
        return wf_fail(WEFT_ERR_PROTOCOL, "mail of %zu bytes is malformed", n);
    }
    memcpy(out, data, n);
    out->status = (int32_t)wf_status_told(out->status);
    return WEFT_OK;
}

weft_status wf_mail_take_status(weft_world *world, uint32_t from, uint64_t key,
                                uint64_t deadline_ns)
{
    unsigned char data[WF_MAIL_MAX];
    size_t n = sizeof(data);
    note got;
    weft_status st =
        wf_host_take(world->host, from, key, data, &n, NULL, deadline_ns);

    if (st == WEFT_OK) {
        st = note_read(data, n, &got);
    }
    if (st == WEFT_OK && got.status != WEFT_OK) {
        st = wf_fail((weft_status)got.status, "%s", got.text);
    }
    return st;
}

void wf_mail_break(weft_comm *comm)
{
    for (uint32_t r = 0; r < comm->size; r++) {
        if (r != comm->rank) {
            (void)wf_mail_status(comm->world, comm->member[r],
                                 WF_MAIL_CALL | comm->id, comm->status,
                                 comm->text);
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
