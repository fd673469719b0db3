/* SPDX-License-Identifier: Apache-2.0 */
/* What only the shared-memory transport has to stand: a peer that writes
 * nonsense into its ring, and a kernel that does not let it read the memory of
 * others. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include "conform.h"
#include "transport/shm/shm.h"
#include "wt_deny.h"

static const conform_kind shm = {
    .name = "shm",
    .transport = &wf_transport_shm,
    .settings = "SHM_RING_BYTES=16K SHM_EAGER=2K SHM_CMA=1"};

/* --- nonsense ------------------------------------------------------------ */

/* To the ring to rank 0. */
static void write_record(wf_port *port, uint64_t commit, uint64_t word,
                         const void *payload, size_t n)
{
    wf_ring_writer *w = &port->peer[0].out;
    unsigned char *record = wf_ring_claim(w, n);

    WT_CHECK(record != NULL);
    wf_copy(record + WF_RING_HEADER, payload, n);
    wf_ring_publish(w, record, commit, word, n);
}

static void punish(conform_villainy *v)
{
    conform_punishes(&shm, v);
}

static void write_unknown_kind(wf_port *port)
{
    write_record(port, (uint64_t)99 << 32, 0, NULL, 0);
}

static void a_record_of_no_kind_ends_its_writer(void **state)
{
    (void)state;
    punish(write_unknown_kind);
}

static void write_endless_record(wf_port *port)
{
    write_record(port, wf_record_commit(WF_RECORD_EAGER, UINT32_MAX), 0, NULL,
                 0);
}

static void a_record_longer_than_the_ring_ends_its_writer(void **state)
{
    (void)state;
    punish(write_endless_record);
}

static void write_empty_offer(wf_port *port)
{
    wf_offer offer = {.n = 0};

    write_record(port, wf_record_commit(WF_RECORD_OFFER, sizeof(offer)), 1,
                 &offer, sizeof(offer));
}

static void an_offer_of_nothing_ends_its_writer(void **state)
{
    (void)state;
    punish(write_empty_offer);
}

static void write_endless_offer(wf_port *port)
{
    wf_offer offer = {.n = UINT64_MAX};

    write_record(port, wf_record_commit(WF_RECORD_OFFER, sizeof(offer)), 1,
                 &offer, sizeof(offer));
}

static void an_offer_of_more_than_memory_ends_its_writer(void **state)
{
    (void)state;
    punish(write_endless_offer);
}

static void write_place_behind_the_arena(wf_port *port)
{
    uint64_t range = port->host->arena->range;
    wf_offer offer = {.n = 1 << 20, .place = range - (1 << 20) + 2};

    write_record(port, wf_record_commit(WF_RECORD_OFFER, sizeof(offer)), 1,
                 &offer, sizeof(offer));
}

static void an_offer_that_ends_behind_its_arena_ends_its_writer(void **state)
{
    (void)state;
    punish(write_place_behind_the_arena);
}

static void write_stray_piece(wf_port *port)
{
    write_record(port, wf_record_commit(WF_RECORD_PIECE, 4), 0, "abc", 4);
}

static void a_piece_nobody_asked_for_ends_its_writer(void **state)
{
    (void)state;
    punish(write_stray_piece);
}

static void write_greedy_answer(wf_port *port)
{
    uint64_t want = UINT64_MAX;

    write_record(port, wf_record_commit(WF_RECORD_SEND, sizeof(want)), 0, &want,
                 sizeof(want));
}

static void asking_for_more_than_was_offered_ends_its_writer(void **state)
{
    (void)state;
    punish(write_greedy_answer);
}

static void write_foreign_token(wf_port *port)
{
    write_record(port, wf_record_commit(WF_RECORD_TAKEN, 0), 1234567, NULL, 0);
}

static void an_answer_to_no_offer_ends_its_writer(void **state)
{
    (void)state;
    punish(write_foreign_token);
}

static void write_short_am(wf_port *port)
{
    write_record(port, wf_record_am_commit(0, 64, 8), 0, "1234567", 8);
}

static void a_header_longer_than_its_message_ends_its_writer(void **state)
{
    (void)state;
    punish(write_short_am);
}

static void write_long_am(wf_port *port)
{
    static const unsigned char part[WF_AM_PAYLOAD_MAX / 4 * 3];

    write_record(port, wf_record_commit(WF_RECORD_AM_PART, sizeof(part)), 0,
                 part, sizeof(part));
    write_record(port, wf_record_am_commit(0, 0, sizeof(part)), 0, part,
                 sizeof(part));
}

static void parts_that_add_up_to_too_much_end_their_writer(void **state)
{
    (void)state;
    punish(write_long_am);
}

/* The reader of a full ring says that it has read what was never written. */
static void lie_body(conform *c)
{
    static const char buf[64];
    static _Thread_local wf_msg msgs[1000];

    conform_meet(c);
    if (c->rank == 1) {
        atomic_store(&c->port->in[0].ring->head, (uint64_t)1 << 50);
        wt_word_set(1, 1);
    } else {
        wt_word_await(1, 1);
        for (unsigned i = 0; i < 1000; i++) {
            msgs[i].done = true;
            if (c->t->send(c->port, 1, 0, buf, sizeof(buf), &msgs[i]) !=
                WEFT_OK) {
                break;
            }
        }
        conform_wait(c, msgs, 1000);
        WT_STATUS(c->t->send(c->port, 1, 0, buf, 1, &msgs[0]),
                  WEFT_ERR_PROTOCOL);
    }
    /* Rank 1 must not mend its head by reading. */
    wt_word_add(2, 1);
    wt_word_await(2, 2);
}

static void a_reader_that_lies_about_its_head_is_found_out(void **state)
{
    (void)state;
    conform_ranks(&shm, 2, lie_body);
}

/* --- the memory of others ------------------------------------------------ */

static void large_messages(conform *c, unsigned count)
{
    size_t n = (size_t)700 << 10;
    unsigned char *buf = conform_bytes(n);
    wf_msg msg;

    for (unsigned i = 0; i < count; i++) {
        if (conform_sends(c)) {
            conform_fill(buf, n, i);
            conform_send(c, c->receiver, i, buf, n, &msg);
        } else {
            conform_recv(c, c->sender, i, buf, n, &msg);
        }
        conform_wait_ok(c, &msg, 1);
        if (conform_receives(c)) {
            conform_check(buf, n, i);
        }
    }
    free(buf);
}

static void denied_later_body(conform *c)
{
    bool readable = c->port->peer[1 - c->rank].readable;

    large_messages(c, 1);
    if (conform_receives(c)) {
        wt_deny_syscall(SYS_process_vm_readv, EPERM);
    }
    large_messages(c, 3);
    if (conform_receives(c) && readable) {
        WT_CHECK(!c->port->peer[0].readable);
    }
}

static void reading_that_is_denied_later_gives_way_to_the_ring(void **state)
{
    (void)state;
    conform_ranks(&shm, 2, denied_later_body);
}

/* The kernel has no such call from the beginning. */
static void denied_rank_body(conform *c)
{
    weft_status st;
    wf_port *second = NULL;

    wt_deny_syscall(SYS_process_vm_readv, ENOSYS);
    st = conform_open(c, &c->settings, &second);
    WT_CHECK(st == WEFT_OK);
    WT_CHECK(!second->peer[1 - c->rank].readable);
    conform_meet(c);
    c->t->close(c->port);
    c->port = second;
    large_messages(c, 2);
}

static void a_kernel_that_cannot_read_others_is_noticed(void **state)
{
    (void)state;
    conform_ranks(&shm, 2, denied_rank_body);
}

/* An offer of memory that is not there: the reader asks for a stream. */
static void unreadable_body(conform *c)
{
    uint64_t in[2];
    wf_msg msg;

    weft_log_to(conform_silent, NULL);
    if (c->rank == 1) {
        wf_offer offer = {.n = 1 << 20, .address = 64, .token = 0};

        write_record(c->port, wf_record_commit(WF_RECORD_OFFER, sizeof(offer)),
                     1, &offer, sizeof(offer));
        wt_word_await(1, 1);
    } else {
        conform_recv(c, 1, 1, in, sizeof(in), &msg);
        while (c->port->peer[1].streamed.head == NULL) {
            conform_step(c);
        }
        c->t->gone(c->port, 1);
        conform_wait(c, &msg, 1);
        WT_CHECK(msg.status == WEFT_ERR_PEER);
        wt_word_set(1, 1);
    }
}

static void memory_that_cannot_be_read_is_asked_for(void **state)
{
    (void)state;
    conform_ranks(&shm, 2, unreadable_body);
}

/* The sender drops a message that it has offered, when so much waits in the
 * ring that the receiver does not learn of it at once, and uses the buffer for
 * something else. */
static void withdraw(conform *c, unsigned char *buf, size_t n)
{
    static const char small[64];
    static _Thread_local wf_msg msgs[1000];
    wf_msg msg;
    unsigned sent = 0;

    conform_fill(buf, n, 1);
    conform_send(c, c->receiver, 1, buf, n, &msg);
    do {
        conform_send(c, c->receiver, 2, small, sizeof(small), &msgs[sent]);
    } while (msgs[sent++].done);
    c->t->drop(c->port, &msg);
    conform_fill(buf, n, 3);
    wt_word_add(1, 1);
    conform_wait_ok(c, msgs, sent);
}

static void receive_withdrawn(conform *c, unsigned char *buf, size_t n,
                              unsigned round)
{
    wf_msg msg;

    conform_recv(c, c->sender, 1, buf, n, &msg);
    wt_word_await(1, round + 1);
    conform_wait(c, &msg, 1);
    WT_CHECK(msg.status == WEFT_ERR_ABORTED);
    c->t->forget(c->port, 2, WF_TAG_EXACT);
}

static void withdrawn_body(conform *c)
{
    size_t n = (size_t)100 << 10;
    unsigned char *own = conform_bytes(n);
    unsigned char *shared = NULL;
    wf_msg msg;

    WT_OK(wf_arena_take(c->host->arena, n, false, (void **)&shared));
    for (unsigned round = 0; round < 4; round++) {
        unsigned char *buf = round % 2 == 0 ? own : shared;

        if (conform_sends(c)) {
            withdraw(c, buf, n);
        } else {
            receive_withdrawn(c, buf, n, round);
        }
        conform_meet(c);
    }
    /* What is sent after that arrives. */
    conform_fill(shared, n, 5);
    if (conform_sends(c)) {
        conform_send(c, c->receiver, 1, shared, n, &msg);
    } else {
        conform_recv(c, c->sender, 1, own, n, &msg);
    }
    conform_wait_ok(c, &msg, 1);
    conform_check(conform_receives(c) ? own : shared, n, 5);
    conform_meet(c);
    weft_arena_free(shared);
    free(own);
}

static void what_was_withdrawn_is_never_taken_for_the_message(void **state)
{
    (void)state;
    conform_ranks(&shm, 2, withdrawn_body);
}

/* --- settings ------------------------------------------------------------ */

static void bad_ring_body(conform *c)
{
    wf_settings s = c->settings;
    wf_port *port = NULL;

    s.ring_bytes = 5000;
    WT_STATUS(conform_open(c, &s, &port), WEFT_ERR_INVALID);
    s.ring_bytes = 2048;
    WT_STATUS(conform_open(c, &s, &port), WEFT_ERR_INVALID);
}

static void a_ring_that_is_no_power_of_two_is_refused(void **state)
{
    (void)state;
    conform_ranks(&shm, 2, bad_ring_body);
}

static const char *own_settings(const conform *c)
{
    return c->rank == 0 ? "SHM_RING_BYTES=4K SHM_EAGER=64K"
                        : "SHM_RING_BYTES=256K SHM_EAGER=1K SHM_CMA=0";
}

/* Rank 0 and rank 1 do not agree on anything. */
static void differing_body(conform *c)
{
    wf_settings s;
    wf_port *port = NULL;
    uint32_t sender = c->sender;

    WT_OK(wf_settings_load(own_settings(c), &s));
    WT_OK(conform_open(c, &s, &port));
    conform_meet(c);
    c->t->close(c->port);
    c->port = port;
    large_messages(c, 2);
    c->sender = c->receiver;
    c->receiver = sender;
    large_messages(c, 2);
}

static void ranks_with_different_settings_understand_each_other(void **state)
{
    (void)state;
    conform_ranks(&shm, 2, differing_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_record_of_no_kind_ends_its_writer),
        cmocka_unit_test(a_record_longer_than_the_ring_ends_its_writer),
        cmocka_unit_test(an_offer_of_nothing_ends_its_writer),
        cmocka_unit_test(an_offer_of_more_than_memory_ends_its_writer),
        cmocka_unit_test(an_offer_that_ends_behind_its_arena_ends_its_writer),
        cmocka_unit_test(a_piece_nobody_asked_for_ends_its_writer),
        cmocka_unit_test(asking_for_more_than_was_offered_ends_its_writer),
        cmocka_unit_test(an_answer_to_no_offer_ends_its_writer),
        cmocka_unit_test(a_header_longer_than_its_message_ends_its_writer),
        cmocka_unit_test(parts_that_add_up_to_too_much_end_their_writer),
        cmocka_unit_test(a_reader_that_lies_about_its_head_is_found_out),
        cmocka_unit_test(reading_that_is_denied_later_gives_way_to_the_ring),
        cmocka_unit_test(a_kernel_that_cannot_read_others_is_noticed),
        cmocka_unit_test(memory_that_cannot_be_read_is_asked_for),
        cmocka_unit_test(what_was_withdrawn_is_never_taken_for_the_message),
        cmocka_unit_test(a_ring_that_is_no_power_of_two_is_refused),
        cmocka_unit_test(ranks_with_different_settings_understand_each_other),
    };

    return cmocka_run_group_tests_name("shm", tests, NULL, NULL);
}
