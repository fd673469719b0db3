/* SPDX-License-Identifier: Apache-2.0 */
/* The packets that go over a link between two ranks: what arrives, with which
 * descriptor, and what is left to read when the other side is gone. */
#include "mem/link.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/secret.h"
#include "base/time.h"
#include "wt_cmocka.h"
#include "wt_deny.h"
#include "wt_proc.h"

/* Longer than anything takes; a test never waits for it to pass. */
#define LONG_NS (wf_now_ns() + 60 * WF_SEC)

enum { LINKS = 3, HEADER_BYTES = offsetof(wf_packet, data) };

typedef struct fixture {
    int ours;
    int theirs;
    unsigned fds;
} fixture;

static fixture the_fixture;

static void close_ours(fixture *f)
{
    close(f->ours);
    f->ours = -1;
}

/* Two ends of one link, made as ranks make it. */
static void open_ends(fixture *f)
{
    uint64_t name[2];
    int listener = -1;

    assert_int_equal(wf_random(name, sizeof(name)), WEFT_OK);
    assert_int_equal(wf_link_listen(name, &listener), WEFT_OK);
    assert_int_equal(wf_link_connect(name, &f->ours), WEFT_OK);
    assert_int_equal(wf_link_accept(listener, LONG_NS, &f->theirs), WEFT_OK);
    close(listener);
}

static int link_up(void **state)
{
    fixture *f = &the_fixture;

    f->fds = wt_count_fds();
    open_ends(f);
    *state = f;
    return 0;
}

/* Whatever a test received, it closed, or nobody did. */
static int link_down(void **state)
{
    fixture *f = *state;

    close(f->theirs);
    if (f->ours >= 0) {
        close_ours(f);
    }
    if (wt_count_fds() != f->fds) {
        fprintf(stderr, "descriptors are left\n");
        wt_print_fds();
        return -1;
    }
    return 0;
}

static wf_packet packet_of(uint32_t kind, const char *text)
{
    wf_packet p = {.kind = kind,
                   .from = 1,
                   .to = 2,
                   .bytes = (uint32_t)strlen(text),
                   .key = 3};

    memcpy(p.data, text, p.bytes);
    return p;
}

static void say(fixture *f, uint32_t kind, const char *text, int fd)
{
    wf_packet p = packet_of(kind, text);

    assert_int_equal(wf_link_send(f->ours, &p, fd, LONG_NS), WEFT_OK);
}

/* Send anything at all, with `count` descriptors. */
static void send_raw(fixture *f, const void *data, size_t n, const int *fds,
                     size_t count)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(8 * sizeof(int))];
    } control = {0};
    struct iovec io = {(void *)(uintptr_t)data, n};
    struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1};

    if (count > 0) {
        struct cmsghdr *c = &control.align;

        m.msg_control = control.bytes;
        m.msg_controllen = CMSG_SPACE(count * sizeof(int));
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(c), fds, count * sizeof(int));
    }
    assert_int_equal(sendmsg(f->ours, &m, MSG_NOSIGNAL), n);
}

static void a_packet_is_as_long_as_it_says(void **state)
{
    wf_packet *p = calloc(1, sizeof(*p));

    (void)state;
    assert_non_null(p);
    for (uint32_t bytes = 0; bytes <= WF_PACKET_DATA; bytes++) {
        size_t whole = HEADER_BYTES + bytes;

        p->bytes = bytes;
        assert_int_equal(wf_packet_check(p, whole), WEFT_OK);
        assert_int_equal(wf_packet_check(p, whole - 1), WEFT_ERR_PROTOCOL);
        assert_int_equal(wf_packet_check(p, whole + 1), WEFT_ERR_PROTOCOL);
    }
    p->bytes = WF_PACKET_DATA + 1;
    assert_int_equal(wf_packet_check(p, sizeof(*p) + 1), WEFT_ERR_PROTOCOL);
    p->bytes = UINT32_MAX;
    assert_int_equal(wf_packet_check(p, HEADER_BYTES - 1), WEFT_ERR_PROTOCOL);
    assert_int_equal(wf_packet_check(p, (size_t)HEADER_BYTES + UINT32_MAX),
                     WEFT_ERR_PROTOCOL);
    free(p);
}

/* In memory of that size only. */
static void a_packet_shorter_than_its_header_is_not_read(void **state)
{
    (void)state;
    for (size_t n = 0; n < HEADER_BYTES; n++) {
        void *part = malloc(n > 0 ? n : 1);

        assert_non_null(part);
        memset(part, 0, n);
        assert_int_equal(wf_packet_check(part, n), WEFT_ERR_PROTOCOL);
        free(part);
    }
}

static void packets_arrive_whole_and_in_order(void **state)
{
    fixture *f = *state;
    wf_packet p;
    int fd = -7;

    say(f, WF_PACKET_MAIL, "first", -1);
    say(f, WF_PACKET_READY, "", -1);
    assert_int_equal(wf_link_recv(f->theirs, &p, &fd, LONG_NS), WEFT_OK);
    assert_int_equal(fd, -1);
    assert_int_equal(p.kind, WF_PACKET_MAIL);
    assert_int_equal(p.from, 1);
    assert_int_equal(p.to, 2);
    assert_int_equal(p.key, 3);
    assert_int_equal(p.bytes, 5);
    assert_memory_equal(p.data, "first", 5);
    assert_int_equal(wf_link_recv(f->theirs, &p, NULL, LONG_NS), WEFT_OK);
    assert_int_equal(p.kind, WF_PACKET_READY);
    assert_int_equal(p.bytes, 0);
    assert_int_equal(wf_link_recv(f->theirs, &p, NULL, 0), WEFT_ERR_TIMEOUT);
}

static void a_descriptor_travels_with_its_packet(void **state)
{
    fixture *f = *state;
    struct stat sent;
    struct stat came;
    wf_packet p;
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

    assert_int_equal(fstat(fd, &sent), 0);
    say(f, WF_PACKET_BOARD, "with", fd);
    close(fd);
    say(f, WF_PACKET_MAIL, "without", -1);
    assert_int_equal(wf_link_recv(f->theirs, &p, &fd, LONG_NS), WEFT_OK);
    assert_int_equal(fstat(fd, &came), 0);
    assert_int_equal(came.st_rdev, sent.st_rdev);
    assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    close(fd);
    assert_int_equal(wf_link_recv(f->theirs, &p, &fd, LONG_NS), WEFT_OK);
    assert_int_equal(fd, -1);
}

static void a_descriptor_that_there_is_no_room_for_is_told_of(void **state)
{
    fixture *f = *state;
    unsigned long before;
    weft_status st;
    wf_packet p;
    int fd = -7;

    say(f, WF_PACKET_BOARD, "with", 0);
    before = wt_limit_fds(0);
    st = wf_link_recv(f->theirs, &p, &fd, LONG_NS);
    wt_restore_fds(before);
    assert_int_equal(st, WEFT_OK);
    assert_int_equal(fd, WF_FD_LOST);
}

static void a_descriptor_that_nobody_asked_for_is_closed(void **state)
{
    fixture *f = *state;
    wf_packet p;

    say(f, WF_PACKET_MAIL, "", f->ours);
    assert_int_equal(wf_link_recv(f->theirs, &p, NULL, LONG_NS), WEFT_OK);
}

static void of_several_descriptors_only_the_first_is_kept(void **state)
{
    fixture *f = *state;
    wf_packet p = packet_of(WF_PACKET_MAIL, "");
    const int fds[] = {0, 1, 2, 0, 1, 2, 0, 1};

    for (size_t count = 2; count <= sizeof(fds) / sizeof(fds[0]); count++) {
        int fd = -1;

        send_raw(f, &p, HEADER_BYTES, fds, count);
        assert_int_equal(wf_link_recv(f->theirs, &p, &fd, LONG_NS), WEFT_OK);
        assert_true(fd >= 0);
        close(fd);
    }
}

static void the_descriptor_of_a_malformed_packet_is_closed(void **state)
{
    fixture *f = *state;
    wf_packet p = packet_of(WF_PACKET_MAIL, "");
    int fd = -7;

    p.bytes = 1;
    send_raw(f, &p, HEADER_BYTES, &f->ours, 1);
    assert_int_equal(wf_link_recv(f->theirs, &p, &fd, LONG_NS),
                     WEFT_ERR_PROTOCOL);
    assert_int_equal(fd, -1);
    send_raw(f, "short", 5, &f->ours, 1);
    assert_int_equal(wf_link_recv(f->theirs, &p, &fd, LONG_NS),
                     WEFT_ERR_PROTOCOL);
    assert_int_equal(fd, -1);
}

/* A packet of no bytes looks like the end of the connection. */
static void the_descriptor_of_an_empty_packet_is_closed(void **state)
{
    fixture *f = *state;
    wf_packet p;
    int fd = -1;

    send_raw(f, "", 0, &f->ours, 1);
    assert_int_not_equal(wf_link_recv(f->theirs, &p, &fd, LONG_NS), WEFT_OK);
    assert_int_equal(fd, -1);
}

/* Its beginning would pass for a packet of the greatest length. */
static void a_packet_that_was_cut_off_is_refused(void **state)
{
    fixture *f = *state;
    unsigned char *longer = calloc(1, sizeof(wf_packet) + 100);
    wf_packet p = {.kind = WF_PACKET_MAIL, .bytes = WF_PACKET_DATA};

    assert_non_null(longer);
    memcpy(longer, &p, sizeof(p));
    send_raw(f, longer, sizeof(wf_packet) + 100, NULL, 0);
    free(longer);
    assert_int_equal(wf_link_recv(f->theirs, &p, NULL, LONG_NS),
                     WEFT_ERR_PROTOCOL);
}

static void a_full_link_keeps_what_was_sent(void **state)
{
    fixture *f = *state;
    wf_packet p = packet_of(WF_PACKET_MAIL, "");
    uint64_t sent = 0;
    weft_status st;

    for (;;) {
        p.key = sent;
        st = wf_link_send(f->ours, &p, -1, 0);
        if (st != WEFT_OK) {
            break;
        }
        sent++;
    }
    assert_int_equal(st, WEFT_ERR_TIMEOUT);
    assert_true(sent > 0);
    for (uint64_t i = 0; i < sent; i++) {
        assert_int_equal(wf_link_recv(f->theirs, &p, NULL, 0), WEFT_OK);
        assert_int_equal(p.key, i);
    }
    assert_int_equal(wf_link_send(f->ours, &p, -1, 0), WEFT_OK);
}

static void what_was_sent_before_closing_still_arrives(void **state)
{
    fixture *f = *state;
    wf_packet p;

    say(f, WF_PACKET_GO, "", -1);
    close_ours(f);
    assert_int_equal(wf_link_recv(f->theirs, &p, NULL, LONG_NS), WEFT_OK);
    assert_int_equal(p.kind, WF_PACKET_GO);
    assert_int_equal(wf_link_recv(f->theirs, &p, NULL, LONG_NS),
                     WEFT_ERR_CLOSED);
    assert_int_equal(wf_link_recv(f->theirs, &p, NULL, 0), WEFT_ERR_CLOSED);
}

/* And no signal ends the process. */
static void sending_to_one_that_is_gone_is_an_error(void **state)
{
    fixture *f = *state;
    wf_packet p = packet_of(WF_PACKET_MAIL, "hello?");

    close_ours(f);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(wf_link_send(f->theirs, &p, 0, LONG_NS),
                         WEFT_ERR_CLOSED);
    }
}

/* What we sent and it never read makes the kernel reset the connection. */
static void one_that_left_without_reading_is_gone_too(void **state)
{
    fixture *f = *state;
    wf_packet p = packet_of(WF_PACKET_MAIL, "unread");

    assert_int_equal(wf_link_send(f->theirs, &p, -1, LONG_NS), WEFT_OK);
    close_ours(f);
    assert_int_equal(wf_link_recv(f->theirs, &p, NULL, LONG_NS),
                     WEFT_ERR_CLOSED);
}

static void last_words_are_found_among_other_packets(void **state)
{
    fixture *f = *state;

    say(f, WF_PACKET_MAIL, "not this", f->ours);
    say(f, WF_PACKET_FAILED, "rank 1 ran out of memory", -1);
    close_ours(f);
    assert_true(wf_link_last_words(f->theirs));
    assert_string_equal(weft_error_detail(), "rank 1 ran out of memory");
    assert_false(wf_link_last_words(f->theirs));
}

static void who_says_nothing_has_no_last_words(void **state)
{
    fixture *f = *state;

    /* Neither while it lives and is silent, nor after. */
    assert_false(wf_link_last_words(f->theirs));
    say(f, WF_PACKET_MAIL, "just mail", -1);
    close_ours(f);
    assert_false(wf_link_last_words(f->theirs));
}

static void last_words_of_any_length_are_cut_to_fit(void **state)
{
    fixture *f = *state;
    wf_packet p = {.kind = WF_PACKET_FAILED, .bytes = WF_PACKET_DATA};

    memset(p.data, 'w', sizeof(p.data));
    assert_int_equal(wf_link_send(f->ours, &p, -1, LONG_NS), WEFT_OK);
    assert_true(wf_link_last_words(f->theirs));
    assert_in_range(strlen(weft_error_detail()), 500, WF_PACKET_DATA);
}

/* Each of the links in turn has them, and in the end none. */
static void last_words_are_found_on_any_of_several_links(void **state)
{
    unsigned fds = wt_count_fds();

    (void)state;
    for (size_t speaker = 0; speaker <= LINKS; speaker++) {
        fixture f[LINKS];
        int theirs[LINKS];

        for (size_t i = 0; i < LINKS; i++) {
            open_ends(&f[i]);
            theirs[i] = f[i].theirs;
            say(&f[i], WF_PACKET_MAIL, "not this", -1);
            if (i == speaker) {
                say(&f[i], WF_PACKET_FAILED, "rank 1 ran out of memory", -1);
            }
            close_ours(&f[i]);
        }
        assert_int_equal(wf_links_last_words(theirs, LINKS), speaker < LINKS);
        if (speaker < LINKS) {
            assert_string_equal(weft_error_detail(),
                                "rank 1 ran out of memory");
        }
        for (size_t i = 0; i < LINKS; i++) {
            close(theirs[i]);
        }
    }
    assert_int_equal(wt_count_fds(), fds);
}

static void a_name_that_nobody_listens_on_is_closed(void **state)
{
    unsigned fds = wt_count_fds();
    uint64_t name[2];
    int listener = -1;
    int fd = -7;

    (void)state;
    assert_int_equal(wf_random(name, sizeof(name)), WEFT_OK);
    assert_int_equal(wf_link_connect(name, &fd), WEFT_ERR_CLOSED);
    assert_int_equal(wf_link_listen(name, &listener), WEFT_OK);
    assert_int_equal(wf_link_accept(listener, 0, &fd), WEFT_ERR_TIMEOUT);
    /* Two cannot have one name. */
    assert_int_equal(wf_link_listen(name, &fd), WEFT_ERR_SYSTEM);
    close(listener);
    assert_int_equal(wf_link_connect(name, &fd), WEFT_ERR_CLOSED);
    assert_int_equal(fd, -7);
    assert_int_equal(wt_count_fds(), fds);
}

#define LINKED(test) cmocka_unit_test_setup_teardown(test, link_up, link_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_packet_is_as_long_as_it_says),
        cmocka_unit_test(a_packet_shorter_than_its_header_is_not_read),
        LINKED(packets_arrive_whole_and_in_order),
        LINKED(a_descriptor_travels_with_its_packet),
        LINKED(a_descriptor_that_there_is_no_room_for_is_told_of),
        LINKED(a_descriptor_that_nobody_asked_for_is_closed),
        LINKED(of_several_descriptors_only_the_first_is_kept),
        LINKED(the_descriptor_of_a_malformed_packet_is_closed),
        LINKED(the_descriptor_of_an_empty_packet_is_closed),
        LINKED(a_packet_that_was_cut_off_is_refused),
        LINKED(a_full_link_keeps_what_was_sent),
        LINKED(what_was_sent_before_closing_still_arrives),
        LINKED(sending_to_one_that_is_gone_is_an_error),
        LINKED(one_that_left_without_reading_is_gone_too),
        LINKED(last_words_are_found_among_other_packets),
        LINKED(who_says_nothing_has_no_last_words),
        LINKED(last_words_of_any_length_are_cut_to_fit),
        cmocka_unit_test(last_words_are_found_on_any_of_several_links),
        cmocka_unit_test(a_name_that_nobody_listens_on_is_closed),
    };

    return cmocka_run_group_tests_name("link", tests, NULL, NULL);
}
