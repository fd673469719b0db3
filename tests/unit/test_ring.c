/* SPDX-License-Identifier: Apache-2.0 */
/* One ring and the check of its records, with both ends in one thread but for
 * one test. */
#include "transport/shm/ring.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "transport/shm/record.h"
#include "transport/transport.h"
#include "wt.h"
#include "wt_cmocka.h"

enum { LINES = 64 };

typedef struct fixture {
    wf_ring ring;
    alignas(64) unsigned char data[LINES * WF_RING_LINE];
    wf_ring_reader in;
    wf_ring_writer out;
    wf_board_rank writer;
} fixture;

static fixture the_fixture;

static void fixture_init(fixture *f)
{
    memset(f, 0, sizeof(*f));
    wf_ring_init(&f->ring, LINES, 1, 2);
    wf_ring_read(&f->ring, f->data, LINES, &f->in);
    wf_ring_write(&f->ring, f->data, LINES, &f->out);
}

static int set_up(void **state)
{
    fixture_init(&the_fixture);
    *state = &the_fixture;
    return 0;
}

/* Write one record whose payload is `n` times the byte `fill`. */
static bool put(fixture *f, size_t n, unsigned fill)
{
    unsigned char *record = wf_ring_claim(&f->out, n);

    if (record == NULL) {
        return false;
    }
    memset(record + WF_RING_HEADER, (int)fill, n);
    wf_ring_publish(&f->out, record, wf_record_commit(WF_RECORD_EAGER, n), fill,
                    n);
    return true;
}

/* Take the next record, passing over one that only skips. */
static bool get(fixture *f, wf_record *r, unsigned *fill)
{
    uint64_t commit;

    while ((commit = wf_ring_poll(&f->in)) != 0) {
        const unsigned char *at = f->in.at;

        assert_true(wf_record_parse(commit, wf_ring_index(&f->in), LINES, r));
        *fill = at[8];
        for (uint32_t i = 0; i < r->bytes; i++) {
            assert_int_equal(at[WF_RING_HEADER + i], *fill);
        }
        wf_ring_consume(&f->in, r->lines);
        if (r->kind != WF_RECORD_SKIP) {
            return true;
        }
    }
    return false;
}

static void records_of_all_sizes_pass_through_many_rounds(void **state)
{
    fixture *f = *state;
    size_t most = wf_ring_payload_max(LINES);
    wf_record r;
    unsigned fill;

    for (unsigned i = 0; i < 3 * most; i++) {
        size_t n = i * 37 % (most + 1);

        assert_true(put(f, n, i % 255 + 1));
        assert_true(get(f, &r, &fill));
        assert_int_equal(r.bytes, n);
        assert_int_equal(fill, i % 255 + 1);
        wf_ring_tell(&f->in, &f->writer);
    }
    assert_false(get(f, &r, &fill));
}

static void a_full_ring_refuses_until_the_reader_tells(void **state)
{
    fixture *f = *state;
    wf_record r;
    unsigned fill;
    unsigned count = 0;

    while (put(f, 40, 1)) {
        count++;
    }
    assert_int_equal(count, LINES);
    assert_true(get(f, &r, &fill));
    assert_false(put(f, 40, 1));
    wf_ring_block(&f->out, true);
    assert_true(wf_ring_tell(&f->in, &f->writer));
    assert_true(put(f, 40, 1));
    wf_ring_block(&f->out, false);
    assert_true(get(f, &r, &fill));
    assert_false(wf_ring_tell(&f->in, &f->writer));
}

static void the_longest_record_fits_wherever_the_tail_stands(void **state)
{
    fixture *f = *state;
    size_t most = wf_ring_payload_max(LINES);
    wf_record r;
    unsigned fill;

    for (unsigned start = 0; start < LINES; start++) {
        assert_true(put(f, 1, 5));
        assert_true(get(f, &r, &fill));
        wf_ring_tell(&f->in, &f->writer);
        assert_true(put(f, most, 6));
        assert_true(get(f, &r, &fill));
        wf_ring_tell(&f->in, &f->writer);
        assert_int_equal(r.bytes, most);
    }
}

enum { RINGS = 512, ROUNDS = WT_TSAN ? 100 : WT_ASAN ? 1000 : 4000 };

/* Full rings, of each of which one record was read and not told of; the two
 * threads go through all of them side by side. */
static fixture *full_rings;
static _Atomic unsigned at_reader;
static _Atomic unsigned at_writer;
static bool rings[RINGS];
static bool has_room[RINGS];

static void meet(_Atomic unsigned *own, _Atomic unsigned *other)
{
    unsigned round = atomic_fetch_add(own, 1) + 1;

    while (atomic_load(other) < round) {
        sched_yield();
    }
}

static void *tell_all(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < ROUNDS; i++) {
        meet(&at_reader, &at_writer);
        for (unsigned k = 0; k < RINGS; k++) {
            fixture *f = &full_rings[k];

            rings[k] = wf_ring_tell(&f->in, &f->writer);
        }
        meet(&at_reader, &at_writer);
    }
    return NULL;
}

static void fill_all(void)
{
    wf_record r;
    unsigned fill;

    for (unsigned k = 0; k < RINGS; k++) {
        fixture *f = &full_rings[k];

        wf_ring_block(&f->out, false);
        while (put(f, 40, 1)) {
        }
        assert_true(get(f, &r, &fill));
        f->writer.fence = 1; /* ranks outnumber cores */
    }
}

/* A writer that finds no room says so, and looks once more before it sleeps: it
 * sees the room, or the reader sees that it waits. */
static void no_writer_sleeps_while_there_is_room(void **state)
{
    pthread_t reader;

    (void)state;
    full_rings = aligned_alloc(alignof(fixture), RINGS * sizeof(*full_rings));
    assert_non_null(full_rings);
    for (unsigned k = 0; k < RINGS; k++) {
        fixture_init(&full_rings[k]);
    }
    assert_int_equal(pthread_create(&reader, NULL, tell_all, NULL), 0);
    for (unsigned i = 0; i < ROUNDS; i++) {
        fill_all();
        meet(&at_writer, &at_reader);
        for (unsigned k = 0; k < RINGS; k++) {
            fixture *f = &full_rings[k];

            wf_ring_block(&f->out, true);
            atomic_thread_fence(memory_order_seq_cst); /* wf_board_drowse */
            has_room[k] = wf_ring_claim(&f->out, 40) != NULL;
        }
        meet(&at_writer, &at_reader);
        for (unsigned k = 0; k < RINGS; k++) {
            assert_true(has_room[k] || rings[k]);
        }
    }
    assert_int_equal(pthread_join(reader, NULL), 0);
    free(full_rings);
}

static void a_head_that_makes_no_sense_breaks_the_writer_only(void **state)
{
    fixture *f = *state;

    while (put(f, 40, 1)) {
    }
    assert_false(f->out.broken);
    atomic_store(&f->ring.head, 1u << 20);
    assert_false(put(f, 40, 1));
    assert_true(f->out.broken);
    atomic_store(&f->ring.head, LINES);
    assert_false(put(f, 40, 1));
}

static void a_ring_is_checked_when_it_is_attached(void **state)
{
    fixture *f = *state;
    wf_ring bad = f->ring;

    assert_int_equal(wf_ring_check(&f->ring, LINES, 1, 2), WEFT_OK);
    assert_int_equal(wf_ring_check(&f->ring, 2 * LINES, 1, 2),
                     WEFT_ERR_PROTOCOL);
    assert_int_equal(wf_ring_check(&f->ring, LINES, 2, 1), WEFT_ERR_PROTOCOL);
    bad.magic++;
    assert_int_equal(wf_ring_check(&bad, LINES, 1, 2), WEFT_ERR_PROTOCOL);
    bad = f->ring;
    bad.version++;
    assert_int_equal(wf_ring_check(&bad, LINES, 1, 2), WEFT_ERR_PROTOCOL);
}

static void marks_that_no_peer_writes_are_refused(void **state)
{
    const uint64_t bad[] = {
        (uint64_t)1 << 56 | wf_record_commit(WF_RECORD_EAGER, 0),
        8,
        wf_record_commit(WF_RECORD_KINDS, 0),
        wf_record_commit(WF_RECORD_SKIP, 1),
        wf_record_commit(WF_RECORD_TAKEN, 8),
        wf_record_commit(WF_RECORD_WITHDRAWN, 8),
        wf_record_commit(WF_RECORD_OFFER, sizeof(wf_offer) - 1),
        wf_record_commit(WF_RECORD_SEND, 0),
        wf_record_commit(WF_RECORD_PIECE, 0),
        wf_record_commit(WF_RECORD_EAGER, UINT32_MAX),
        wf_record_commit(WF_RECORD_EAGER, wf_ring_payload_max(LINES) + 1),
        wf_record_am_commit(WF_AM_IDS, 0, 0),
        wf_record_am_commit(0, WF_AM_HEADER_MAX + 1, 100),
        wf_record_commit(WF_RECORD_EAGER, 8) | (uint64_t)1 << 40,
    };
    wf_record r;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_false(wf_record_parse(bad[i], 0, LINES, &r));
    }
    assert_false(wf_record_parse(wf_record_commit(WF_RECORD_EAGER, 49),
                                 LINES - 1, LINES, &r));
    assert_true(wf_record_parse(wf_record_commit(WF_RECORD_EAGER, 48),
                                LINES - 1, LINES, &r));
    assert_false(wf_record_parse(wf_record_commit(WF_RECORD_EAGER, 0), LINES,
                                 LINES, &r));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(records_of_all_sizes_pass_through_many_rounds,
                               set_up),
        cmocka_unit_test_setup(a_full_ring_refuses_until_the_reader_tells,
                               set_up),
        cmocka_unit_test_setup(the_longest_record_fits_wherever_the_tail_stands,
                               set_up),
        cmocka_unit_test(no_writer_sleeps_while_there_is_room),
        cmocka_unit_test_setup(
            a_head_that_makes_no_sense_breaks_the_writer_only, set_up),
        cmocka_unit_test_setup(a_ring_is_checked_when_it_is_attached, set_up),
        cmocka_unit_test(marks_that_no_peer_writes_are_refused),
    };

    return cmocka_run_group_tests_name("ring", tests, NULL, NULL);
}
