/* SPDX-License-Identifier: Apache-2.0 */
/* Mail between the ranks of a host, and what is made of it: notes, tickets,
 * wishes, descriptors of memory. Whatever the others send, a call ends, with
 * success only if what it made can be used, and neither memory nor descriptors
 * are lost.
 *
 * The input is a byte that chooses the call, a byte of choices, and then the
 * mail: from whom, under which key, with which descriptor, its length and its
 * bytes, and length and bytes of the memory behind the descriptor. All of it
 * lies in the sockets, which the others have closed for writing, before the
 * call begins. */
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/time.h"
#include "comm/ids.h"
#include "comm/mail.h"
#include "mem/link.h"
#include "mem/mailbox.h"
#include "mem/watch.h"
#include "region/region.h"
#include "stage.h"

enum { FOLLOW, LEAD, SPLIT_LED, SPLIT_LEADS, INBOX, BROKEN, CONTROL };
enum { CALLS = 8, APART = 1, MAILS = 48, SALT = 5, KEYS = 6, REGION = 9 };
enum { FD_NONE, FD_SEALED, FD_OPEN, FD_OTHER, FD_KINDS };

#define INBOX_KEY 0x696e626f782d3031ull

typedef struct mail_stage {
    stage s;
    int far[STAGE_RANKS]; /* the other ends of the links */
    uint64_t key[KEYS];   /* that somebody looks for */
    weft_comm *comm;
} mail_stage;

/* --- what the others send ------------------------------------------------ */

/* A descriptor, of memory that begins with what the input has for it. */
static int make_fd(uint8_t kind, script *in)
{
    unsigned char data[4096];
    size_t n;
    static const size_t sizes[] = {4096, 1 << 16, 1 << 20, 1 << 22};
    size_t bytes = sizes[kind / FD_KINDS % 4];
    int fd = -1;

    switch (kind % FD_KINDS) {
    case FD_SEALED:
        must(wf_segment_make_fd("fuzz", bytes, false, &fd) == WEFT_OK);
        break;
    case FD_OPEN:
        fd = memfd_create("fuzz", MFD_CLOEXEC);
        must(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
        break;
    case FD_OTHER:
        return open("/dev/null", O_RDWR | O_CLOEXEC);
    default:
        return -1;
    }
    n = script_u16(in) % sizeof(data);
    script_bytes(in, data, n);
    must(pwrite(fd, data, n, 0) == (ssize_t)n);
    return fd;
}

static void send_mail(const mail_stage *m, script *in)
{
    wf_packet p;
    uint8_t from = script_u8(in);
    uint8_t key = script_u8(in);
    uint8_t kind = script_u8(in);
    size_t n = script_u16(in) % WF_PACKET_DATA;
    uint32_t by = from % STAGE_RANKS;
    int fd;

    p = (wf_packet){.kind = WF_PACKET_MAIL,
                    .from = from / STAGE_RANKS % 4 == 3 ? from : by,
                    .to =
                        from / STAGE_RANKS % 8 == 6 ? from % 5 : m->s.host.rank,
                    .bytes = (uint32_t)n,
                    .key = m->key[key % KEYS]};
    script_bytes(in, p.data, n);
    if (m->far[by] < 0) {
        return;
    }
    if (key == UINT8_MAX) { /* not even a packet */
        (void)send(m->far[by], p.data, n, MSG_DONTWAIT | MSG_NOSIGNAL);
        return;
    }
    fd = make_fd(kind, in);
    (void)wf_link_send(m->far[by], &p, fd, 1);
    if (fd >= 0) {
        close(fd);
    }
}

/* A member that is content, in the first creation led by this rank. */
static void send_consent(mail_stage *m, uint32_t from, uint64_t key)
{
    uint32_t id = wf_ids_number(m->s.host.rank, STAGE_RANKS, 0);
    wf_packet p = {.kind = WF_PACKET_MAIL,
                   .from = from,
                   .to = m->s.host.rank,
                   .bytes = 9, /* WEFT_OK, the id, and no text */
                   .key = key};

    memcpy(p.data + 4, &id, sizeof(id));
    must(wf_link_send(m->far[from], &p, -1, 1) == WEFT_OK);
}

/* --- the stage ----------------------------------------------------------- */

static void links_open(mail_stage *m)
{
    for (uint32_t r = 0; r < STAGE_RANKS; r++) {
        int pair[2] = {-1, -1};

        if (r != m->s.host.rank) {
            must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) ==
                 0);
        }
        m->s.link[r] = pair[0];
        m->far[r] = pair[1];
    }
}

static void links_close(mail_stage *m)
{
    for (uint32_t r = 0; r < STAGE_RANKS; r++) {
        if (m->far[r] >= 0) {
            close(m->s.link[r]);
            close(m->far[r]);
        }
    }
}

static void all_ranks(const mail_stage *m, uint32_t first, uint32_t *members)
{
    members[0] = first;
    for (uint32_t r = 0, at = 1; r < m->s.host.ranks; r++) {
        if (r != first) {
            members[at++] = r;
        }
    }
}

/* A communicator of all ranks, which this one leads; the others agree. */
static void make_comm(mail_stage *m)
{
    uint32_t members[STAGE_RANKS];
    uint32_t rank = m->s.host.rank;

    all_ranks(m, rank, members);
    for (uint32_t r = 0; r < STAGE_RANKS; r++) {
        if (r != rank) {
            send_consent(m, r,
                         wf_mail_key(members, STAGE_RANKS, 1, WF_MAIL_REPLY));
        }
    }
    must(wf_comm_build(&m->s.world, NULL, members, STAGE_RANKS, 1, 60 * WF_SEC,
                       &m->comm) == WEFT_OK);
}

/* From now on another rank is the first of it. */
static void be_second(weft_comm *comm)
{
    uint32_t rank = comm->member[0];
    wf_board_rank *entry = comm->entry[0];

    comm->member[0] = comm->member[1];
    comm->member[1] = rank;
    comm->entry[0] = comm->entry[1];
    comm->entry[1] = entry;
    comm->rank = 1;
    wf_node_tree_find(comm->world, comm->member, comm->size, &comm->tree);
}

/* The end of a socket tells of the death of a rank of the same node only; of
 * others it is told when all that they sent has been read. */
static void end_far(mail_stage *m, uint32_t rank)
{
    wf_host *host = &m->s.host;

    if (m->far[rank] < 0 || wf_host_same_node(host, rank)) {
        return;
    }
    while (!atomic_load(&host->peer[rank].parted)) {
        usleep(100);
    }
    wf_board_end(host->board, rank, WF_BOARD_DEAD);
    wf_mailbox_gone(host->mailbox, rank, true);
}

/* Neither more mail nor anything else will come from them. */
static void send_all(mail_stage *m, script *in)
{
    for (unsigned i = 0; i < MAILS && in->left > 0; i++) {
        send_mail(m, in);
    }
    for (uint32_t r = 0; r < STAGE_RANKS; r++) {
        if (m->far[r] >= 0) {
            must(shutdown(m->far[r], SHUT_WR) == 0);
        }
    }
    for (uint32_t r = 0; r < STAGE_RANKS; r++) {
        end_far(m, r);
    }
}

static void keys_of(mail_stage *m, const uint32_t *members, uint64_t salt)
{
    for (uint32_t step = 0; step <= WF_MAIL_COLOURS; step++) {
        m->key[step] =
            wf_mail_key(members, STAGE_RANKS, salt, (enum wf_mail_step)step);
    }
}

/* --- the calls ----------------------------------------------------------- */

static void call_build(mail_stage *m, script *in, bool leads)
{
    uint32_t members[STAGE_RANKS];
    uint32_t rank = m->s.host.rank;
    weft_comm *comm = NULL;

    all_ranks(m, leads ? rank : (rank + 1) % STAGE_RANKS, members);
    keys_of(m, members, SALT);
    send_all(m, in);
    if (wf_comm_build(&m->s.world, NULL, members, STAGE_RANKS, SALT,
                      60 * WF_SEC, &comm) == WEFT_OK) {
        must(comm->id % 2 == 0);
        must((comm->shared != NULL) == comm->one_node);
        wf_comm_close(comm);
    }
}

/* The ranks of one colour, each of them once, this one among them. */
static void check_split(const mail_stage *m, const weft_comm *comm)
{
    must(comm->size >= 1 && comm->size <= STAGE_RANKS);
    must(comm->member[comm->rank] == m->s.host.rank);
    for (uint32_t r = 0; r < comm->size; r++) {
        must(comm->member[r] < STAGE_RANKS);
        for (uint32_t before = 0; before < r; before++) {
            must(comm->member[before] != comm->member[r]);
        }
    }
}

static void call_split(mail_stage *m, script *in, bool leads)
{
    weft_comm *part = NULL;

    make_comm(m);
    if (!leads) {
        be_second(m->comm);
    }
    keys_of(m, m->comm->member,
            (uint64_t)m->comm->id << 32 | m->comm->sequence);
    send_all(m, in);
    if (weft_comm_split(m->comm, 1, 0, &part) == WEFT_OK) {
        check_split(m, part);
        wf_comm_close(part);
    }
    wf_comm_close(m->comm);
}

static void call_inbox(mail_stage *m, script *in)
{
    uint32_t others[STAGE_RANKS];
    wf_port_setup setup = {
        .host = &m->s.host, .settings = &m->s.world.settings, .rank = others};
    wf_port *port = NULL;

    for (uint32_t r = 0; r < m->s.host.ranks; r++) {
        if (r != m->s.host.rank) {
            others[setup.ranks++] = r;
        }
    }
    m->key[0] = INBOX_KEY;
    send_all(m, in);
    if (wf_transport_shm.open(&setup, &port) == WEFT_OK) {
        wf_transport_shm.close(port);
    }
}

/* All that they sent has been handled when their end has been seen. */
static void call_broken(mail_stage *m, script *in)
{
    unsigned char data[WF_MAIL_MAX];

    make_comm(m);
    wf_mail_listen(&m->s.world);
    m->key[0] = WF_MAIL_CALL | m->comm->id;
    send_all(m, in);
    for (uint32_t r = 0; r < STAGE_RANKS; r++) {
        size_t n = sizeof(data);

        while (m->far[r] >= 0 &&
               wf_host_take(&m->s.host, r, 0, data, &n, NULL,
                            wf_now_ns() + 60 * WF_SEC) != WEFT_ERR_PEER) {
            n = sizeof(data);
        }
    }
    if (atomic_load(&m->comm->failed)) {
        weft_status st = wf_comm_check(m->comm);

        must(st != WEFT_OK && wf_status_parse(st) == st);
    }
    wf_comm_close(m->comm);
}

static void call_control(mail_stage *m, script *in)
{
    uint32_t zeroes[STAGE_RANKS] = {0};
    wf_board_rank *entry[STAGE_RANKS];
    weft_region region = {.id = REGION,
                          .world = &m->s.world,
                          .rank = m->s.host.rank,
                          .ranks = STAGE_RANKS,
                          .member = m->s.rank_of,
                          .node = zeroes,
                          .domain = zeroes,
                          .entry = entry,
                          .control_segment = {.fd = -1}};

    for (uint32_t r = 0; r < STAGE_RANKS; r++) {
        entry[r] = &m->s.board->rank[r];
    }
    make_comm(m);
    m->key[0] = wf_region_mail_key(&region);
    region.mails = 0;
    send_all(m, in);
    if (wf_control_open(&region, m->comm, wf_now_ns() + 60 * WF_SEC) ==
        WEFT_OK) {
        must(region.control->ranks == STAGE_RANKS);
        atomic_store(&region.control->rank[STAGE_RANKS - 1].gone, 1);
    }
    wf_control_close(&region);
    wf_comm_close(m->comm);
}

static void make_call(mail_stage *m, script *in, uint8_t call)
{
    switch (call) {
    case FOLLOW:
    case LEAD:
        call_build(m, in, call == LEAD);
        break;
    case SPLIT_LED:
    case SPLIT_LEADS:
        call_split(m, in, call == SPLIT_LEADS);
        break;
    case INBOX:
        call_inbox(m, in);
        break;
    case BROKEN:
        call_broken(m, in);
        break;
    default:
        call_control(m, in);
        break;
    }
}

static unsigned open_files(void)
{
    DIR *folder = opendir("/proc/self/fd");
    unsigned n = 0;

    must(folder != NULL);
    while (readdir(folder) != NULL) {
        n++;
    }
    closedir(folder);
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    script in = {data, n};
    uint8_t call = script_u8(&in) % CALLS;
    uint8_t choices = script_u8(&in);
    bool builds = call == FOLLOW || call == LEAD;
    unsigned files = open_files();
    mail_stage m = {.comm = NULL};

    stage_init(&m.s, STAGE_RANKS, choices / 2 % STAGE_RANKS,
               !builds || (choices & APART) != 0, NULL);
    links_open(&m);
    must(wf_mailbox_create(&m.s.host, &m.s.host.mailbox) == WEFT_OK);
    must(wf_watch_create(&m.s.host, &m.s.host.watch) == WEFT_OK);
    must(wf_watch_start(m.s.host.watch) == WEFT_OK);
    make_call(&m, &in, call);
    wf_watch_destroy(m.s.host.watch);
    wf_mailbox_destroy(m.s.host.mailbox);
    links_close(&m);
    stage_fini(&m.s);
    must(open_files() == files);
    return 0;
}
