/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the store's protocol that are arithmetic, and histories that are
 * too long for tests/explore, which walks through what it does with
 * messages. */
#include "store/protocol.h"

#include <string.h>

#include "wt_cmocka.h"

static void epochs_are_compared_as_serial_numbers(void **state)
{
    (void)state;
    assert_true(wf_epoch_later(1, 0));
    assert_false(wf_epoch_later(0, 1));
    assert_false(wf_epoch_later(7, 7));
    assert_true(wf_epoch_later(0, 65535));
    assert_true(wf_epoch_later(3, 65530));
    assert_false(wf_epoch_later(65530, 3));
    assert_true(wf_epoch_later(32767, 0));
    assert_false(wf_epoch_later(32768, 0));
}

static void a_set_of_hosts_has_what_was_added(void **state)
{
    wf_hosts set = {{0}};

    (void)state;
    assert_false(wf_hosts_other(&set, WF_HOSTS_MAX));
    for (uint32_t h = 0; h < WF_HOSTS_MAX; h += 51) {
        wf_hosts_add(&set, h);
        assert_true(wf_hosts_has(&set, h));
        assert_false(wf_hosts_other(&set, h));
        assert_true(wf_hosts_other(&set, WF_HOSTS_MAX));
        assert_true(wf_hosts_other(&set, (h + 1) % WF_HOSTS_MAX));
        wf_hosts_remove(&set, h);
        assert_false(wf_hosts_has(&set, h));
    }
}

static void an_untouched_key_is_its_directory_word(void **state)
{
    wf_key_state k;
    wf_key_state loaded;

    (void)state;
    for (uint32_t host = 0; host < 3; host++) {
        wf_key_init(&k, 12, host, 1, 77);
        assert_true(wf_key_plain(&k));
        wf_key_load(&loaded, 12, wf_key_word(&k, host), 0, host);
        assert_memory_equal(&k, &loaded, sizeof(k));
        assert_int_equal(k.role, host == 1 ? WF_OWNER : WF_ABSENT);
    }
}

static void the_word_of_an_absent_key_keeps_owner_and_epoch(void **state)
{
    wf_key_state k;
    wf_key_state loaded;

    (void)state;
    wf_key_init(&k, 5, 2, 0, WF_NO_SLOT);
    k.owner = 255;
    k.epoch = 65535;
    assert_int_equal(wf_key_word(&k, 2) & WF_WORD_HERE, 0);
    assert_int_equal(wf_word_owner(wf_key_word(&k, 2)), 255);
    assert_int_equal(wf_word_epoch(wf_key_word(&k, 2)), 65535);
    wf_key_load(&loaded, 5, wf_key_word(&k, 2), 9, 2);
    assert_memory_equal(&k, &loaded, sizeof(k));
}

static void
a_key_that_moved_in_is_its_word_and_the_epoch_of_its_slot(void **state)
{
    wf_key_state k;
    wf_key_state loaded;

    (void)state;
    wf_key_init(&k, 5, 2, 2, 77);
    k.epoch = 65535;
    assert_true(wf_key_plain(&k));
    wf_key_load(&loaded, 5, wf_key_word(&k, 2), 65535, 2);
    assert_memory_equal(&k, &loaded, sizeof(k));
}

static void a_key_that_was_asked_for_is_sought_at_the_own_server(void **state)
{
    wf_key_state k;
    wf_message m;

    (void)state;
    wf_key_init(&k, 5, 2, 0, WF_NO_SLOT);
    k.flags = WF_KEY_ASKED;
    assert_int_equal(wf_word_owner(wf_key_word(&k, 2)), 2);
    assert_false(wf_key_plain(&k));
    assert_int_equal(wf_protocol_op(&m, 5, WF_OP_PULL, 2, wf_key_word(&k, 2)),
                     2);
    assert_int_equal(m.flags, 0);
}

static void a_copy_that_is_closed_is_not_here(void **state)
{
    wf_key_state k;

    (void)state;
    wf_key_init(&k, 5, 2, 0, WF_NO_SLOT);
    k.role = WF_COPY;
    k.slot = 9;
    assert_int_equal(wf_key_word(&k, 2), WF_WORD_HERE | 9);
    assert_false(wf_key_plain(&k));
    k.flags = WF_KEY_CLOSING;
    assert_int_equal(wf_word_owner(wf_key_word(&k, 2)), 2);
    assert_int_equal(wf_key_word(&k, 2) & WF_WORD_HERE, 0);
}

static void keys_with_more_to_say_need_a_record(void **state)
{
    wf_key_state k;

    (void)state;
    wf_key_init(&k, 5, 1, 1, 3);
    wf_hosts_add(&k.wants, 2);
    assert_false(wf_key_plain(&k));
    wf_key_init(&k, 5, 1, 1, 3);
    k.flags = WF_KEY_UNSETTLED; /* it has come, and may be taken back */
    assert_false(wf_key_plain(&k));
    wf_key_init(&k, 5, 1, 1, 3);
    k.flags = WF_KEY_WANTED;
    assert_false(wf_key_plain(&k));
    wf_key_init(&k, 5, 1, 0, WF_NO_SLOT);
    k.kept = 4;
    assert_false(wf_key_plain(&k));
}

static void operations_go_to_the_owner_that_the_word_names(void **state)
{
    wf_message m;

    (void)state;
    assert_int_equal(wf_protocol_op(&m, 8, WF_OP_PUSH, 1, 3u << 16 | 42), 3);
    assert_int_equal(m.kind, WF_MSG_OP);
    assert_int_equal(m.op, WF_OP_PUSH);
    assert_int_equal(m.key, 8);
    assert_int_equal(m.epoch, 42);
    assert_int_equal(m.flags, WF_MSG_MARKED);
    assert_int_equal(m.origin, 1);
    assert_int_equal(wf_protocol_op(&m, 8, WF_OP_LOCALIZE, 1, 3u << 16), 1);
    assert_int_equal(wf_protocol_op(&m, 8, WF_OP_SET, 1, WF_WORD_HERE | 2), 1);
}

static void an_answer_teaches_only_what_is_later(void **state)
{
    uint32_t word = 3u << 16 | 42;

    (void)state;
    assert_int_equal(wf_word_learn(word, 0, 4, 43), 4u << 16 | 43);
    assert_int_equal(wf_word_learn(word, 0, 4, 41), word);
    /* The word by which the operation went is older than its answer, also if it
     * is so old that its epoch has wrapped. */
    assert_int_equal(wf_word_learn(word, word, 4, 41), 4u << 16 | 41);
}

/* --- a host that asks ----------------------------------------------------- */

/* What was sent last, and where. */
typedef struct sent {
    wf_message m;
    uint32_t to;
    unsigned count;
} sent;

static uint32_t home_is_0(void *ctx, uint64_t key)
{
    (void)ctx;
    (void)key;
    return 0;
}

static void note_sent(void *ctx, uint32_t to, const wf_message *m)
{
    sent *last = ctx;

    last->m = *m;
    last->to = to;
    last->count++;
}

static void save_nowhere(void *ctx, const wf_key_state *k)
{
    (void)ctx;
    (void)k;
}

static uint32_t count_serials(void *ctx)
{
    return 10 + ((sent *)ctx)->count;
}

static bool differs_never(void *ctx, const wf_key_state *k)
{
    (void)ctx;
    (void)k;
    return false;
}

static bool pack_nothing(void *ctx, wf_message *sync)
{
    (void)ctx;
    (void)sync;
    return false;
}

static void unpack_nothing(void *ctx, const wf_key_state *k, weft_status status)
{
    (void)ctx;
    (void)k;
    (void)status;
}

static unsigned none_is_parked(void *ctx, uint64_t key)
{
    (void)ctx;
    (void)key;
    return 0;
}

static void happens(void *ctx, const wf_key_state *k, wf_happened what)
{
    (void)ctx;
    (void)k;
    (void)what;
}

static void release_nothing(void *ctx, uint64_t key, uint32_t slot)
{
    (void)ctx;
    (void)key;
    (void)slot;
}

/* Host 0 of three, which is the home of all keys; or `host`. */
static wf_protocol_env asker(sent *last, uint32_t host)
{
    return (wf_protocol_env){.ctx = last,
                             .host = host,
                             .hosts = 3,
                             .home = home_is_0,
                             .send = note_sent,
                             .save = save_nowhere,
                             .serial = count_serials,
                             .differs = differs_never,
                             .pack = pack_nothing,
                             .unpack = unpack_nothing,
                             .parked = none_is_parked,
                             .release = release_nothing,
                             .happened = happens};
}

static void
a_copy_whose_owner_gave_the_key_away_asks_the_next_when_it_dies(void **state)
{
    sent last = {.count = 0};
    wf_protocol_env env = asker(&last, 0);
    wf_message news = {.key = 5,
                       .kind = WF_MSG_NEWS,
                       .from = 2,
                       .origin = 2,
                       .owner = 2,
                       .epoch = 4};
    wf_key_state k;

    (void)state;
    wf_key_init(&k, 5, 0, 0, 9);
    k.role = WF_COPY;
    k.owner = 1;
    k.epoch = 3;
    k.flags = WF_KEY_ASKED;
    k.serial = 7;
    wf_protocol_receive(&env, &k, &news);
    assert_int_equal(k.owner, 2);
    wf_hosts_add(&env.gone, 1);
    wf_protocol_host_died(&env, &k, 1);
    assert_int_equal(last.count, 1);
    assert_int_equal(last.to, 2);
    assert_int_equal(last.m.kind, WF_MSG_SYNC);
    assert_int_equal(last.m.serial, k.serial);
    assert_int_not_equal(k.serial, 7);
}

/* It had given the key to host 1, which died before the home heard of it. */
static void
a_host_whose_question_comes_back_knows_that_the_key_is_gone(void **state)
{
    sent last = {.count = 0};
    wf_protocol_env env = asker(&last, 2);
    wf_message back = {.key = 5,
                       .kind = WF_MSG_SYNC,
                       .from = 0,
                       .origin = 2,
                       .epoch = 2,
                       .serial = 7,
                       .hops = 1,
                       .flags = WF_MSG_MARKED | WF_MSG_VIA_HOME | WF_MSG_WANTS};
    wf_key_state k;

    (void)state;
    wf_key_init(&k, 5, 2, 0, WF_NO_SLOT);
    k.slot = 9;
    k.owner = 1;
    k.epoch = 3;
    k.flags = WF_KEY_ASKED | WF_KEY_WANTED;
    k.serial = 7;
    wf_hosts_add(&env.gone, 1);
    wf_protocol_receive(&env, &k, &back);
    assert_int_equal(k.flags & WF_KEY_ASKED, 0);
    assert_int_equal(k.slot, WF_NO_SLOT);
    assert_int_equal(k.role, WF_ABSENT);
    assert_int_equal(last.count, 0);
}

/* --- an owner whose row is written to meanwhile --------------------------- */

/* The owner's row; workers of its host write to it after so many looks at its
 * version, or when a difference is merged. */
typedef struct busy_row {
    sent last; /* the first member: see asker */
    uint32_t version;
    uint32_t quiet;
    bool with_merge;
} busy_row;

static uint32_t version_of_busy(void *ctx, const wf_key_state *k)
{
    busy_row *row = ctx;
    uint32_t version = row->version;

    (void)k;
    if (row->quiet == 0) {
        row->version++;
    } else {
        row->quiet--;
    }
    return version;
}

static void merge_into_busy(void *ctx, const wf_key_state *k,
                            const wf_message *sync)
{
    busy_row *row = ctx;

    (void)k;
    (void)sync;
    row->version += row->with_merge ? 2 : 1;
}

static void put_no_row(void *ctx, const wf_key_state *k, uint32_t slot,
                       wf_message *grant)
{
    (void)ctx;
    (void)k;
    (void)slot;
    (void)grant;
}

/* The answer to the difference of a copy that has version 7. */
static wf_message answer_of(busy_row *row)
{
    wf_protocol_env env = asker(&row->last, 0);
    wf_message sync = {.key = 5,
                       .kind = WF_MSG_SYNC,
                       .from = 1,
                       .origin = 1,
                       .serial = 3,
                       .version = 7,
                       .flags = WF_MSG_MARKED | WF_MSG_WANTS | WF_MSG_HAS_COPY |
                                WF_MSG_DIFFERENCE};
    wf_key_state k;

    env.version = version_of_busy;
    env.merge = merge_into_busy;
    env.put_row = put_no_row;
    wf_key_init(&k, 5, 0, 0, 9);
    wf_hosts_add(&k.wants, 1);
    k.flags = WF_KEY_WANTED;
    k.version = row->version = 7;
    wf_protocol_receive(&env, &k, &sync);
    assert_int_equal(row->last.count, 1);
    assert_int_equal(row->last.m.kind, WF_MSG_GRANT);
    assert_int_equal(row->last.m.grant, WF_GRANT_COPY);
    return row->last.m;
}

static void a_copy_is_told_no_version_that_it_lacks(void **state)
{
    busy_row quiet = {.quiet = 100};
    busy_row merging = {.quiet = 100, .with_merge = true};

    (void)state;
    assert_int_equal(answer_of(&quiet).version, 8);
    assert_int_equal(quiet.last.m.flags & WF_MSG_ROW, 0);
    assert_true((answer_of(&merging).flags & WF_MSG_ROW) != 0);
    for (uint32_t looks = 0; looks < 4; looks++) {
        busy_row row = {.quiet = looks};
        wf_message m = answer_of(&row);

        assert_true((m.flags & WF_MSG_ROW) != 0 || m.version == 8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_is_told_no_version_that_it_lacks),
        cmocka_unit_test(epochs_are_compared_as_serial_numbers),
        cmocka_unit_test(a_set_of_hosts_has_what_was_added),
        cmocka_unit_test(an_untouched_key_is_its_directory_word),
        cmocka_unit_test(the_word_of_an_absent_key_keeps_owner_and_epoch),
        cmocka_unit_test(
            a_key_that_moved_in_is_its_word_and_the_epoch_of_its_slot),
        cmocka_unit_test(a_key_that_was_asked_for_is_sought_at_the_own_server),
        cmocka_unit_test(a_copy_that_is_closed_is_not_here),
        cmocka_unit_test(keys_with_more_to_say_need_a_record),
        cmocka_unit_test(operations_go_to_the_owner_that_the_word_names),
        cmocka_unit_test(an_answer_teaches_only_what_is_later),
        cmocka_unit_test(
            a_copy_whose_owner_gave_the_key_away_asks_the_next_when_it_dies),
        cmocka_unit_test(
            a_host_whose_question_comes_back_knows_that_the_key_is_gone),
    };

    return cmocka_run_group_tests_name("store protocol", tests, NULL, NULL);
}
