/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/conn.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/status.h"

/* Room for input at first; it grows only for a message that is longer. */
enum { INPUT_ROOM = 16 << 10 };

static weft_status bytes_reserve(wf_bytes *b, size_t more)
{
    size_t live = b->end - b->at;
    size_t room = b->room > 0 ? b->room : 256;
    unsigned char *data;

    if (b->at > 0) {
        memmove(b->data, b->data + b->at, live);
        b->at = 0;
        b->end = live;
    }
    if (b->room - live >= more) {
        return WEFT_OK;
    }
    while (room - live < more) {
        room *= 2;
    }
    data = wf_realloc(b->data, room);
    if (data == NULL) {
        return wf_fail_nomem("%zu bytes of boot messages", room);
    }
    b->data = data;
    b->room = room;
    return WEFT_OK;
}

void wf_conn_init(wf_conn *conn, int fd)
{
    memset(conn, 0, sizeof(*conn));
    conn->fd = fd;
}

void wf_conn_fini(wf_conn *conn)
{
    if (conn->fd >= 0) {
        /* A forked child may hold the socket too; the peer has to see the end
         * all the same. */
        shutdown(conn->fd, SHUT_RDWR);
        close(conn->fd);
    }
    wf_free(conn->in.data);
    wf_free(conn->out.data);
    wf_conn_init(conn, -1);
}

weft_status wf_conn_push(wf_conn *conn, const wf_wire_msg *msg)
{
    size_t n = wf_wire_size(msg);
    weft_status st = bytes_reserve(&conn->out, n);

    if (st == WEFT_OK) {
        wf_wire_write(msg, conn->out.data + conn->out.end);
        conn->out.end += n;
    }
    return st;
}

void wf_conn_flush(wf_conn *conn)
{
    wf_bytes *b = &conn->out;

    while (!conn->mute && b->at < b->end) {
        ssize_t n = send(conn->fd, b->data + b->at, b->end - b->at,
                         MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n >= 0) {
            b->at += (size_t)n;
        } else if (errno == EAGAIN) {
            return;
        } else if (errno != EINTR) {
            conn->mute = true;
        }
    }
    b->at = b->end;
}

weft_status wf_conn_prepare(wf_conn *conn)
{
    return bytes_reserve(&conn->in, conn->in.room == 0 ? INPUT_ROOM : 1);
}

weft_status wf_conn_fill(wf_conn *conn)
{
    wf_bytes *b = &conn->in;
    weft_status st = wf_conn_prepare(conn);
    ssize_t n;

    if (st != WEFT_OK) {
        return st;
    }
    n = recv(conn->fd, b->data + b->end, b->room - b->end, MSG_DONTWAIT);
    if (n > 0) {
        b->end += (size_t)n;
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        conn->ended = true;
    }
    return WEFT_OK;
}

bool wf_conn_next(wf_conn *conn, wf_wire_msg *out)
{
    wf_bytes *b = &conn->in;
    size_t used = 0;

    /* An empty buffer has no memory yet. */
    if (b->at == b->end) {
        return false;
    }
    switch (wf_wire_parse(b->data + b->at, b->end - b->at, out, &used)) {
    case WF_WIRE_WHOLE:
        b->at += used;
        return true;
    case WF_WIRE_BAD:
        wf_log(WEFT_LOG_WARN, "boot: a connection sent what is no message of "
                              "ours; it is closed");
        wf_conn_end(conn);
        return false;
    case WF_WIRE_PART:
        break;
    }
    return false;
}

void wf_conn_end(wf_conn *conn)
{
    conn->in.at = conn->in.end;
    conn->out.at = conn->out.end;
    conn->mute = true;
    conn->ended = true;
}

weft_status wf_conn_peer(int fd, pid_t *pid, uid_t *uid)
{
    struct ucred cred;
    socklen_t n = sizeof(cred);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &n) != 0) {
        return wf_fail_errno("SO_PEERCRED of a socket");
    }
    *pid = cred.pid;
    *uid = cred.uid;
    return WEFT_OK;
}
