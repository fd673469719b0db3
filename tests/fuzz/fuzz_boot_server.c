/* SPDX-License-Identifier: Apache-2.0 */
/* Rank 0's table, when ranks and strangers come, speak and go in any order.
 *
 * The first byte is the number of ranks. Then each step is a byte that says
 * what is done and by which connection, and what that needs. Whatever they do,
 * rank 0 answers in whole messages, says nothing but answers, gives a value to
 * none but a rank, and gives the value that was set first. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <weft/log.h>

#include "boot/server.h"
#include "boot/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { CLIENTS = 5, KEYS = 4, STEPS_MAX = 64, ROOM = 1 << 12 };

typedef struct client {
    int fd;     /* -1: not connected */
    bool hello; /* has said HELLO, and whatever it said is answered */
    unsigned char in[ROOM];
    size_t n;
} client;

typedef struct input {
    const uint8_t *at;
    const uint8_t *end;
} input;

static client clients[CLIENTS]; /* 0 is rank 0's own */
static struct sockaddr_un address;
static socklen_t address_n;

static void must(int holds)
{
    if (!holds) {
        abort();
    }
}

static unsigned next(input *in)
{
    return in->at < in->end ? *in->at++ : 0;
}

static int listen_anywhere(void)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    address = (struct sockaddr_un){.sun_family = AF_UNIX};
    must(fd >= 0);
    must(bind(fd, (struct sockaddr *)&address, sizeof(sa_family_t)) == 0);
    address_n = sizeof(address);
    must(getsockname(fd, (struct sockaddr *)&address, &address_n) == 0);
    must(listen(fd, CLIENTS) == 0);
    return fd;
}

/* Nobody listens any more once all ranks have come. */
static void come(client *c)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    must(fd >= 0);
    if (c->fd >= 0 ||
        connect(fd, (struct sockaddr *)&address, address_n) != 0) {
        close(fd);
        return;
    }
    c->fd = fd;
    c->n = 0;
    c->hello = false;
}

static void leave(client *c)
{
    if (c->fd >= 0) {
        close(c->fd);
        c->fd = -1;
    }
}

static void say(const client *c, const void *bytes, size_t n)
{
    if (c->fd >= 0) {
        (void)!send(c->fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
}

static void say_junk(const client *c, input *in)
{
    size_t n = next(in) % 64;

    n = n < (size_t)(in->end - in->at) ? n : (size_t)(in->end - in->at);
    say(c, in->at, n);
    in->at += n;
}

/* The value of a key is told by the key: what is set second has another. */
static void say_message(client *c, input *in)
{
    unsigned char bytes[64 + sizeof(wf_wire_hello)];
    wf_wire_msg msg = {.kind = (wf_wire_kind)(1 + next(in) % 6),
                       .id = next(in)};
    wf_wire_hello hello = {next(in) % 6, 2 + next(in) % 4};
    char key = (char)('a' + hello.rank % KEYS);

    if (msg.kind == WF_WIRE_HELLO) {
        msg.value = &hello;
        msg.n = sizeof(hello);
        c->hello = true;
    } else if (msg.kind == WF_WIRE_SET || msg.kind == WF_WIRE_GET) {
        msg.key[0] = key;
        msg.value = &key;
        msg.n = msg.kind == WF_WIRE_SET;
    }
    wf_wire_write(&msg, bytes);
    say(c, bytes, wf_wire_size(&msg));
}

static void check_answer(const client *c, const wf_wire_msg *msg)
{
    must(msg->kind == WF_WIRE_ACK || msg->kind == WF_WIRE_VALUE);
    must(msg->kind == WF_WIRE_ACK || c == &clients[0] || c->hello);
    if (msg->status != WEFT_OK) {
        must(msg->n > 0); /* it says why */
    } else if (msg->kind == WF_WIRE_ACK) {
        must(msg->n == 0);
    }
}

/* Read all answers that are there; they come in whole messages, or end. */
static void hear(client *c)
{
    wf_wire_msg msg;
    size_t used = 0;
    size_t at = 0;
    ssize_t got;

    if (c->fd < 0) {
        return;
    }
    got = recv(c->fd, c->in + c->n, ROOM - c->n, MSG_DONTWAIT);
    c->n += got > 0 ? (size_t)got : 0;
    for (;;) {
        wf_wire_found found = wf_wire_parse(c->in + at, c->n - at, &msg, &used);

        must(found != WF_WIRE_BAD);
        if (found == WF_WIRE_PART) {
            break;
        }
        check_answer(c, &msg);
        at += used;
    }
    memmove(c->in, c->in + at, c->n - at);
    c->n -= at;
}

static void step(wf_boot_server *server, input *in)
{
    unsigned what = next(in);
    client *c = &clients[what / 8 % CLIENTS];

    switch (what % 8) {
    case 0:
        come(c);
        break;
    case 1:
        leave(c);
        break;
    case 2:
        say_junk(c, in);
        break;
    case 3:
        hear(c);
        break;
    case 4:
        (void)wf_boot_server_turn(server, 0);
        break;
    default:
        say_message(c, in);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    input in = {data, data + n};
    wf_boot_server *server = NULL;
    int own[2];

    weft_log_set_level(WEFT_LOG_ERROR);
    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0,
                    own) == 0);
    for (unsigned i = 0; i < CLIENTS; i++) {
        clients[i].fd = -1;
        clients[i].n = 0;
        clients[i].hello = false;
    }
    clients[0].fd = own[0];
    must(wf_boot_server_open("fuzz", 2 + next(&in) % 4, listen_anywhere(),
                             own[1], &server) == WEFT_OK);
    for (unsigned i = 0; i < STEPS_MAX && in.at < in.end; i++) {
        step(server, &in);
    }
    for (unsigned i = 0; i < CLIENTS; i++) {
        (void)wf_boot_server_turn(server, 0);
        hear(&clients[i]);
        leave(&clients[i]);
    }
    (void)wf_boot_server_turn(server, 0);
    wf_boot_server_free(server);
    return 0;
}
