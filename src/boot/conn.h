/* SPDX-License-Identifier: Apache-2.0 */
/* One end of a stream socket that carries the messages of boot/wire.h, with its
 * input and output buffers. Nothing here blocks: the owner polls the socket and
 * then calls. */
#ifndef WF_BOOT_CONN_H
#define WF_BOOT_CONN_H

#include <stdbool.h>
#include <sys/types.h>

#include "boot/wire.h"

/* The bytes from `at` on are live. */
typedef struct wf_bytes {
    unsigned char *data;
    size_t at;
    size_t end;
    size_t room;
} wf_bytes;

typedef struct wf_conn {
    int fd;     /* -1: not connected */
    bool mute;  /* the peer stopped reading; what it sent is still valid */
    bool ended; /* end of file: nothing more to read */
    wf_bytes in;
    wf_bytes out;
} wf_conn;

/* Take over `fd`, which is or becomes non-blocking. */
void wf_conn_init(wf_conn *conn, int fd);
void wf_conn_fini(wf_conn *conn);

/* Append a message to the output buffer. WEFT_ERR_NOMEM appends nothing. */
weft_status wf_conn_push(wf_conn *conn, const wf_wire_msg *msg);

static inline bool wf_conn_has_output(const wf_conn *conn)
{
    return conn->out.at < conn->out.end;
}

/* Write as much as the socket takes. If the peer has closed it, the output is
 * dropped, and reading will find the end of file. */
void wf_conn_flush(wf_conn *conn);

/* Reserve input buffer, so that only a long message needs more memory. */
weft_status wf_conn_prepare(wf_conn *conn);

/* Read what the socket has, once. WEFT_ERR_NOMEM reads nothing. */
weft_status wf_conn_fill(wf_conn *conn);

/* Take the next whole message off what was read, if there is one. It stays
 * valid until wf_conn_fill. Malformed bytes end the connection. */
bool wf_conn_next(wf_conn *conn, wf_wire_msg *out);

/* Close the connection and discard all input. */
void wf_conn_end(wf_conn *conn);

/* The peer's process and user (SO_PEERCRED). */
weft_status wf_conn_peer(int fd, pid_t *pid, uid_t *uid);

#endif
