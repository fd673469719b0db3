/* SPDX-License-Identifier: Apache-2.0 */
/* Control messages from ranks of other nodes. Whatever they say, nothing is
 * touched that it is not about: the states of ranks of this node are as they
 * were, those of others only go from here to gone, and what is not understood
 * is counted.
 *
 * The input is a byte that says which rank this is, and then the messages: what
 * kind, from whom, which of the header's words are right, how long header and
 * payload are, and their bytes. */
#include <string.h>

#include "comm/control.h"
#include "comm/ids.h"
#include "comm/mail.h"
#include "mem/mailbox.h"
#include "stage.h"

enum { MESSAGES = 64, COMM = 12 };

/* Bits of a byte of choices. */
enum { RIGHT_JOB = 1, RIGHT_TO = 2, RIGHT_LENGTH = 4, KNOWN_KEY = 8 };

static wf_am_fn *const handlers[] = {wf_plane_mail_came, wf_beat_came};

/* A header, as right as the choices say, in `room` bytes. */
static size_t make_header(const stage *s, script *in, unsigned char *out)
{
    wf_plane_head head;
    uint8_t choices = script_u8(in);
    size_t n = choices & RIGHT_LENGTH ? sizeof(head)
                                      : script_u8(in) % WF_AM_HEADER_MAX;

    memset(out, 0, WF_AM_HEADER_MAX);
    script_bytes(in, &head, sizeof(head));
    if (choices & RIGHT_JOB) {
        head.job = s->host.job;
    }
    if (choices & RIGHT_TO) {
        head.to = s->host.rank;
    }
    head.kind %= 6;
    if (choices & KNOWN_KEY) {
        head.key &= WF_MAIL_IDS | WF_MAIL_ASK | WF_MAIL_CLOSED;
        head.key |= WF_MAIL_CALL | COMM;
    }
    memcpy(out, &head, sizeof(head));
    return n;
}

static void send_one(stage *s, script *in)
{
    alignas(16) unsigned char header[WF_AM_HEADER_MAX];
    alignas(16) static unsigned char payload[WF_AM_PAYLOAD_MAX];
    uint8_t what = script_u8(in);
    uint8_t from = script_u8(in);
    size_t n = make_header(s, in, header);
    size_t bytes = script_u16(in) % (WF_AM_PAYLOAD_MAX + 1);

    memset(payload, 0, bytes);
    script_bytes(in, payload, bytes);
    pthread_mutex_lock(&s->world.drive);
    handlers[what % 2](&s->world, from % 8 == 7 ? from : from % STAGE_RANKS,
                       header, n, payload, bytes);
    wf_plane_tick(&s->world);
    pthread_mutex_unlock(&s->world.drive);
}

static void check(const stage *s)
{
    for (uint32_t r = 0; r < STAGE_RANKS; r++) {
        uint32_t state = atomic_load(&s->board->rank[r].state);

        must(state == WF_BOARD_HERE || state == WF_BOARD_LEFT ||
             state == WF_BOARD_DEAD);
        must(r != s->host.rank || state == WF_BOARD_HERE);
    }
    must(s->world.plane->gossip.gone < STAGE_RANKS);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    script in = {data, n};
    uint32_t members[STAGE_RANKS] = {0, 1, 2};
    weft_comm *comm = NULL;
    stage s;

    stage_init(&s, STAGE_RANKS, script_u8(&in) % STAGE_RANKS, true, NULL);
    s.host.job = 0x1234;
    must(wf_mailbox_create(&s.host, &s.host.mailbox) == WEFT_OK);
    wf_mail_listen(&s.world);
    must(wf_comm_alloc(&s.world, members, STAGE_RANKS, &comm) == WEFT_OK);
    comm->id = COMM;
    wf_comm_list(comm);
    for (unsigned i = 0; i < MESSAGES && in.left > 0; i++) {
        send_one(&s, &in);
        check(&s);
    }
    wf_comm_unlist(comm);
    wf_comm_free(comm);
    stage_fini(&s);
    wf_mailbox_destroy(s.host.mailbox);
    return 0;
}
