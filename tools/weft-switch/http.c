/* SPDX-License-Identifier: Apache-2.0 */
/* As much of HTTP as a browser and Prometheus need to read three pages: GET,
 * one answer, and the connection is closed. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "server.h"

static const char *const not_found = "there is /, /metrics and /jobs.json\n";

/* An answer with its head; false without memory. */
static bool set_answer(sw_conn *conn, const char *status, const char *type,
                       const char *body, size_t bytes)
{
    char head[400];
    int n = snprintf(head, sizeof(head),
                     "HTTP/1.1 %s\r\nContent-Type: %s\r\n"
                     "Content-Length: %zu\r\nCache-Control: no-store\r\n"
                     "X-Content-Type-Options: nosniff\r\n"
                     "Connection: close\r\n\r\n",
                     status, type, bytes);

    conn->answer = malloc((size_t)n + bytes);
    if (conn->answer == NULL) {
        return false;
    }
    memcpy(conn->answer, head, (size_t)n);
    memcpy(conn->answer + n, body, bytes);
    conn->answer_bytes = (size_t)n + bytes;
    return true;
}

static bool answer_text(sw_conn *conn, const char *type, char *text,
                        size_t bytes)
{
    bool good = text != NULL && set_answer(conn, "200 OK", type, text, bytes);

    free(text);
    return good;
}

static bool is_path(const char *request, const char *path)
{
    size_t n = strlen(path);

    return strncmp(request, "GET ", 4) == 0 &&
           strncmp(request + 4, path, n) == 0 &&
           (request[4 + n] == ' ' || request[4 + n] == '?');
}

static bool choose(sw_server *s, sw_conn *conn)
{
    size_t bytes = 0;
    char *text;

    if (is_path(conn->request, "/")) {
        return set_answer(conn, "200 OK", "text/html; charset=utf-8", sw_page,
                          sw_page_bytes);
    }
    if (is_path(conn->request, "/metrics")) {
        text = sw_metrics(s, &bytes);
        return answer_text(conn, "text/plain; version=0.0.4", text, bytes);
    }
    if (is_path(conn->request, "/jobs.json")) {
        text = sw_jobs_json(s, &bytes);
        return answer_text(conn, "application/json", text, bytes);
    }
    return set_answer(conn, "404 Not Found", "text/plain", not_found,
                      strlen(not_found));
}

bool sw_http_read(sw_server *s, sw_conn *conn)
{
    ssize_t n = recv(conn->fd, conn->request + conn->got,
                     sizeof(conn->request) - 1 - conn->got, 0);

    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return true;
    }
    if (n <= 0) {
        return false;
    }
    conn->got += (size_t)n;
    conn->request[conn->got] = 0;
    if (strstr(conn->request, "\r\n\r\n") != NULL) {
        return choose(s, conn);
    }
    return conn->got < sizeof(conn->request) - 1;
}

bool sw_http_write(sw_conn *conn)
{
    ssize_t n = send(conn->fd, conn->answer + conn->answer_sent,
                     conn->answer_bytes - conn->answer_sent, MSG_NOSIGNAL);

    if (n < 0) {
        return errno == EAGAIN || errno == EINTR;
    }
    conn->answer_sent += (size_t)n;
    return conn->answer_sent < conn->answer_bytes;
}
