/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/mpi/wire.h"

#include <string.h>

#include "transport/transport.h"

bool mp_wire_is_frame(const void *data, size_t n, uint64_t job)
{
    return n >= sizeof(mp_head) && ((const mp_head *)data)->job == job;
}

bool mp_wire_is_chunk(const void *data, size_t n, uint64_t job)
{
    return n >= sizeof(mp_chunk_head) &&
           ((const mp_chunk_head *)data)->job == job;
}

/* As many as cost a credit, and as many between them that cost none. */
bool mp_wire_is_near(const mp_head *head, uint32_t seq)
{
    return head->seq - seq <= 2 * MP_CREDITS;
}

static bool check_am(const mp_head *head, size_t body)
{
    size_t header = mp_am_header(head);

    return mp_am_id(head) < WF_AM_IDS && header <= WF_AM_HEADER_MAX &&
           head->n <= WF_AM_PAYLOAD_MAX &&
           body == mp_am_payload(header) + head->n;
}

bool mp_wire_check(const mp_head *head, size_t body, uint32_t credits)
{
    if (credits > MP_CREDITS || head->credits > MP_CREDITS - credits) {
        return false;
    }
    switch (head->kind) {
    case MP_EAGER:
        return head->n == body;
    case MP_OFFER:
    case MP_WANT:
        return head->n <= PTRDIFF_MAX && body == 0;
    case MP_AM:
        return check_am(head, body);
    case MP_CREDIT:
    case MP_ASK:
    case MP_BYE:
        return head->token <= UINT32_MAX && body == 0;
    default:
        return false;
    }
}

bool mp_wire_check_chunk(const mp_chunk_head *head, size_t body, uint64_t token,
                         size_t left)
{
    size_t due = left < MP_CHUNK_BYTES ? left : MP_CHUNK_BYTES;

    return head->token == token && (body == due || body == 0);
}

bool mp_wire_check_boot(const void *data, size_t n)
{
    const mp_boot_head *h = data;

    return n >= sizeof(*h) && h->n == n - sizeof(*h) &&
           memchr(h->key, '\0', sizeof(h->key)) != NULL &&
           h->verb >= MP_BOOT_SET && h->verb <= MP_BOOT_DONE;
}
