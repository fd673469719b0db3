/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/shm/shared.h"

#include <sys/mman.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "comm/mail.h"

const shm_shared *shm_shared_find(const shm_shared *list, uint32_t rank,
                                  const void *at, size_t bytes)
{
    for (const shm_shared *s = list; s != NULL; s = s->next) {
        uintptr_t from = (uintptr_t)shm_shared_part(s, rank);
        uintptr_t p = (uintptr_t)at;

        if (!s->given_back && p >= from && p - from <= s->bytes &&
            bytes <= s->bytes - (p - from)) {
            return s;
        }
    }
    return NULL;
}

const shm_shared *shm_shared_by_id(const shm_shared *list, uint32_t id)
{
    const shm_shared *one = list;

    while (one != NULL && one->id != id) {
        one = one->next;
    }
    return one;
}

bool shm_shared_holds(const shm_shared *s, uint64_t at, size_t bytes)
{
    return s != NULL && at <= s->bytes && bytes <= s->bytes - at;
}

static size_t whole_bytes(const weft_comm *comm, const shm_shared *s)
{
    return s->parts_at + comm->size * s->bytes;
}

/* Rank 0 creates the segment and mails it; `bytes` is 0 if it failed. */
static weft_status lead(weft_comm *comm, uint64_t key, shm_shared *s)
{
    wf_mail_group group = wf_mail_group_of(comm);
    uint64_t bytes = s->bytes;
    weft_status st =
        wf_segment_create("shared buffers", whole_bytes(comm, s),
                          (wf_huge)comm->world->settings.huge, &s->segment);
    weft_status sent = WEFT_OK;

    if (st != WEFT_OK) {
        bytes = 0;
    }
    for (uint32_t r = 1; r < comm->size && sent == WEFT_OK; r++) {
        sent = wf_mail_post(&group, r, key, &bytes, sizeof(bytes),
                            st == WEFT_OK ? s->segment.fd : -1);
    }
    return st != WEFT_OK ? st : sent;
}

static weft_status follow(weft_comm *comm, uint64_t key, shm_shared *s)
{
    wf_mail_group group = wf_mail_group_of(comm);
    uint64_t bytes = 0;
    size_t n = sizeof(bytes);
    int fd = -1;
    weft_status st = wf_mail_take(&group, 0, key, &bytes, &n, &fd);

    if (st != WEFT_OK) {
        return st;
    }
    if (n != sizeof(bytes) || bytes != s->bytes || fd < 0) {
        wf_close(fd);
        return wf_fail(WEFT_ERR_NOMEM,
                       "rank 0 could not make %u buffers of %zu bytes",
                       comm->size, s->bytes);
    }
    return wf_segment_attach("shared buffers", fd, whole_bytes(comm, s), true,
                             &s->segment);
}

weft_status shm_shared_make(weft_comm *comm, size_t bytes, uint64_t key,
                            shm_shared **out)
{
    /* The others wait for this rank to handle the mail, so its own memory is
     * allocated last. */
    shm_shared made = {
        .segment.fd = -1,
        .bytes = wf_round_up(bytes > 0 ? bytes : 1, wf_segment_page()),
        .parts_at = wf_segment_page()};
    shm_shared *s = NULL;
    weft_status st =
        comm->rank == 0 ? lead(comm, key, &made) : follow(comm, key, &made);

    if (st == WEFT_OK) {
        wf_segment_close_fd(&made.segment);
        /* Rank 0 has checked the sum, but only against its own control
         * group. */
        st = wf_memory_check("a shared buffer", made.bytes);
    }
    if (st == WEFT_OK) {
        /* A page is allocated on the NUMA node of the rank that touches it
         * first. */
        st = wf_segment_populate(
            &made.segment, made.parts_at + comm->rank * made.bytes, made.bytes);
    }
    if (st == WEFT_OK) {
        s = wf_alloc(sizeof(*s));
        st = s == NULL ? wf_fail_nomem("a shared buffer") : WEFT_OK;
    }
    if (st != WEFT_OK) {
        wf_segment_close(&made.segment);
        return st;
    }
    *s = made;
    *out = s;
    return WEFT_OK;
}

void shm_shared_end(shm_shared *s)
{
    wf_segment_close(&s->segment);
    wf_free(s);
}

void shm_shared_give_back(shm_shared *s, uint32_t rank)
{
    shm_shared_head *head = s->segment.base;

    atomic_store(&s->given_back, true);
    /* If the kernel does not support this, the memory stays until all unmap
     * it. */
    (void)madvise(shm_shared_part(s, rank), s->bytes, MADV_REMOVE);
    atomic_fetch_add(&head->given_back, 1);
}

void shm_shared_sweep(shm_shared **list, uint32_t members)
{
    for (shm_shared **at = list; *at != NULL;) {
        shm_shared *s = *at;
        const shm_shared_head *head = s->segment.base;

        if (s->given_back && atomic_load(&head->given_back) >= members) {
            *at = s->next;
            shm_shared_end(s);
        } else {
            at = &s->next;
        }
    }
}
