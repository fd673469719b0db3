/* SPDX-License-Identifier: Apache-2.0 */
#include "mem/join_share.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/status.h"
#include "base/time.h"
#include "mem/link.h"

#define NAME "the table of the job"
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL)

/* Rule 2. */
#define GIVE_NS WF_SEC
/* Who connects proves at once that it is a mate. */
#define PROOF_NS (100 * WF_MS)

void wf_join_find_mates(const wf_join_table *t, uint32_t rank, uint32_t end,
                        wf_join_mates *out)
{
    uint32_t first = t->head->first;
    const wf_join_node *own = &t->node[t->member[rank - first].node];

    *out = (wf_join_mates){.reader = rank, .secret = t->head->secret};
    for (uint32_t r = end; r-- > first;) {
        const wf_join_member *m = &t->member[r - first];

        if (wf_join_same_host(&t->node[m->node], own)) {
            out->reader = r;
            memcpy(out->socket, m->socket, sizeof(out->socket));
            out->others++;
        }
    }
    out->others--; /* the reader itself */
}

static void name_of(const uint64_t socket[2], uint64_t name[2])
{
    name[0] = socket[0];
    name[1] = ~socket[1];
}

weft_status wf_join_share_listen(const uint64_t socket[2], int *out)
{
    uint64_t name[2];

    name_of(socket, name);
    return wf_link_listen(name, out);
}

void wf_join_share_end(int listener)
{
    wf_failure before = wf_failure_of(WEFT_OK);
    int mate = -1;

    if (listener < 0) {
        return;
    }
    shutdown(listener, SHUT_RDWR);
    while (wf_link_accept(listener, 0, &mate) == WEFT_OK) {
        wf_close(mate);
    }
    close(listener);
    wf_failure_again(&before);
}

/* Rule 3: what a mate says first. */
static wf_packet proof_of(const wf_join_mates *m)
{
    wf_packet p = {.kind = WF_PACKET_TABLE, .bytes = sizeof(uint64_t)};
    uint64_t proof = wf_keyed_hash(&m->secret, m->socket, sizeof(m->socket));

    memcpy(p.data, &proof, sizeof(proof));
    return p;
}

static bool is_mate(int link, const wf_join_mates *own)
{
    wf_packet want = proof_of(own);
    wf_packet p;

    return wf_link_recv(link, &p, NULL, wf_now_ns() + PROOF_NS) == WEFT_OK &&
           p.kind == want.kind && p.bytes == want.bytes &&
           memcmp(p.data, want.data, want.bytes) == 0;
}

/* --- the reader ----------------------------------------------------------- */

/* Memory with the table that can no longer be changed; -1: there is none. */
static int sealed_copy(const wf_join_table *t)
{
    int fd = memfd_create("weft-table", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd >= 0 && wf_write_all(fd, t->bytes, t->head->bytes) &&
        fcntl(fd, F_ADD_SEALS, SEALS) == 0) {
        return fd;
    }
    wf_close(fd);
    return -1;
}

void wf_join_share_give(int listener, const wf_join_table *t,
                        const wf_join_mates *own)
{
    uint64_t until = wf_now_ns() + GIVE_NS;
    wf_packet p = {.kind = WF_PACKET_TABLE, .bytes = sizeof(uint64_t)};
    uint32_t others = own->others;
    int memory = others > 0 && listener >= 0 ? sealed_copy(t) : -1;
    int mate = -1;

    memcpy(p.data, &t->head->bytes, sizeof(uint64_t));
    while (memory >= 0 && others > 0 &&
           wf_link_accept(listener, until, &mate) == WEFT_OK) {
        if (mate >= 0 && is_mate(mate, own)) {
            (void)wf_link_send(mate, &p, memory, until);
            others--;
        }
        wf_close(mate);
    }
    wf_close(memory);
}

/* --- the others ----------------------------------------------------------- */

/* Rule 4. */
static bool is_sealed(int fd, size_t bytes)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);

    return seals >= 0 && (seals & SEALS) == SEALS && fstat(fd, &st) == 0 &&
           (uint64_t)st.st_size == bytes && bytes >= sizeof(wf_join_head);
}

static weft_status map_table(int fd, size_t bytes, wf_join_table **out)
{
    wf_join_table *t;
    void *at;

    if (!is_sealed(fd, bytes)) {
        return wf_fail(WEFT_ERR_PROTOCOL, NAME " arrived without its memory");
    }
    t = wf_join_room(0);
    if (t == NULL) {
        return wf_fail_nomem(NAME);
    }
    at = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (at == MAP_FAILED) {
        wf_free(t);
        return wf_fail_errno("mapping " NAME);
    }
    t->bytes = at;
    t->mapped = bytes;
    t->head = at;
    *out = t;
    return WEFT_OK;
}

static weft_status open_packet(const wf_packet *p, int fd, uint32_t ranks,
                               wf_join_table **out)
{
    wf_join_table *t = NULL;
    uint64_t bytes = 0;
    weft_status st;

    if (p->kind != WF_PACKET_TABLE || p->bytes != sizeof(bytes) || fd < 0) {
        return wf_fail(WEFT_ERR_PROTOCOL, NAME " arrived without its memory");
    }
    memcpy(&bytes, p->data, sizeof(bytes));
    st = map_table(fd, bytes, &t);
    if (st == WEFT_OK) {
        st = wf_join_open(t, bytes, 0, 0, ranks, ranks);
    }
    if (st != WEFT_OK) {
        wf_join_free(t);
        return st;
    }
    *out = t;
    return WEFT_OK;
}

weft_status wf_join_share_take(const wf_join_mates *known, uint32_t ranks,
                               const wf_patience *patience, wf_join_table **out)
{
    wf_packet p = proof_of(known);
    uint64_t name[2];
    int link = -1;
    int fd = -1;
    weft_status st;

    name_of(known->socket, name);
    st = wf_link_connect(name, &link);
    if (st != WEFT_OK) {
        return st;
    }
    st = wf_link_send(link, &p, -1, patience->deadline_ns);
    if (st != WEFT_OK) {
        close(link);
        return st;
    }
    do {
        st = wf_link_recv(link, &p, &fd, wf_patience_slice(patience));
    } while (wf_patience_lasts(patience, &st));
    if (st == WEFT_OK) {
        st = open_packet(&p, fd, ranks, out);
        wf_close(fd);
    }
    close(link);
    return st;
}
