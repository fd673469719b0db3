/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/ucx/wire.h"

#include <string.h>

#include "transport/transport.h"

bool ucx_wire_read(const void *data, size_t n, ucx_head *out)
{
    if (n != sizeof(*out)) {
        return false;
    }
    memcpy(out, data, n);
    return true;
}

static bool check_am(const ucx_head *head)
{
    size_t header = ucx_am_header(head);

    return ucx_am_id(head) < WF_AM_IDS && header <= WF_AM_HEADER_MAX &&
           head->n >= header && head->n - header <= UCX_AM_PAYLOAD;
}

bool ucx_wire_check(const ucx_head *head, size_t payload)
{
    bool whole = head->n == payload;

    switch (head->kind) {
    case UCX_EAGER:
        return whole;
    case UCX_AM:
        return whole && check_am(head);
    case UCX_OFFER:
        return payload == 0 && head->n > 0 && head->n <= PTRDIFF_MAX;
    case UCX_WANT:
        return payload == 0 && head->n <= PTRDIFF_MAX;
    case UCX_DATA:
        return whole && head->n > 0 && head->n <= PTRDIFF_MAX &&
               head->word <= PTRDIFF_MAX - head->n;
    case UCX_WITHDRAWN:
    case UCX_ASK:
    case UCX_CUT:
    case UCX_TAKEN:
        return payload == 0;
    default:
        return false;
    }
}

uint64_t ucx_wire_proof(const wf_secret *secret, uint64_t job, uint32_t from,
                        uint32_t to, uint64_t nonce_from, uint64_t nonce_to)
{
    const uint64_t what[5] = {UCX_MAGIC, job, (uint64_t)from << 32 | to,
                              nonce_from, nonce_to};

    return wf_keyed_hash(secret, what, sizeof(what));
}

bool ucx_wire_address(const void *data, size_t n, ucx_address *out)
{
    if (n <= sizeof(*out)) {
        return false;
    }
    memcpy(out, data, sizeof(*out));
    return out->magic == UCX_MAGIC && out->version == UCX_VERSION;
}
