/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the store's protocol that are arithmetic. What it does with
 * messages is walked through by tests/explore. */
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
        assert_true(wf_key_plain(&k, host, 1));
        wf_key_load(&loaded, 12, wf_key_word(&k, host), host);
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
    wf_key_load(&loaded, 5, wf_key_word(&k, 2), 2);
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
    assert_false(wf_key_plain(&k, 2, 0));
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
    assert_false(wf_key_plain(&k, 2, 0));
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
    assert_false(wf_key_plain(&k, 1, 1));
    wf_key_init(&k, 5, 1, 1, 3);
    k.epoch = 2; /* it was away and came back */
    assert_false(wf_key_plain(&k, 1, 1));
    wf_key_init(&k, 5, 1, 0, WF_NO_SLOT);
    k.kept = 4;
    assert_false(wf_key_plain(&k, 1, 0));
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(epochs_are_compared_as_serial_numbers),
        cmocka_unit_test(a_set_of_hosts_has_what_was_added),
        cmocka_unit_test(an_untouched_key_is_its_directory_word),
        cmocka_unit_test(the_word_of_an_absent_key_keeps_owner_and_epoch),
        cmocka_unit_test(a_key_that_was_asked_for_is_sought_at_the_own_server),
        cmocka_unit_test(a_copy_that_is_closed_is_not_here),
        cmocka_unit_test(keys_with_more_to_say_need_a_record),
        cmocka_unit_test(operations_go_to_the_owner_that_the_word_names),
        cmocka_unit_test(an_answer_teaches_only_what_is_later),
    };

    return cmocka_run_group_tests_name("store protocol", tests, NULL, NULL);
}
