/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/shm/record.h"

#include "transport/shm/ring.h"
#include "transport/transport.h"

/* Is this payload length valid for the kind? */
static bool record_length_ok(const wf_record *r)
{
    switch (r->kind) {
    case WF_RECORD_SKIP:
    case WF_RECORD_TAKEN:
    case WF_RECORD_WITHDRAWN:
        return r->bytes == 0;
    case WF_RECORD_EAGER:
        return true;
    case WF_RECORD_OFFER:
        return r->bytes == sizeof(wf_offer);
    case WF_RECORD_SEND:
        return r->bytes == sizeof(uint64_t);
    case WF_RECORD_PIECE:
        return r->bytes > 0;
    case WF_RECORD_AM:
    case WF_RECORD_AM_PART:
        return r->bytes <= WF_AM_HEADER_MAX + WF_AM_PAYLOAD_MAX;
    case WF_RECORD_KINDS:
        break;
    }
    return false;
}

static bool record_am_ok(const wf_record *r)
{
    if (r->kind != WF_RECORD_AM) {
        return r->am_id == 0 && r->am_header_bytes == 0;
    }
    return r->am_id < WF_AM_IDS && r->am_header_bytes <= WF_AM_HEADER_MAX;
}

bool wf_record_parse(uint64_t commit, uint32_t index, uint32_t lines,
                     wf_record *out)
{
    wf_record r = {
        .kind = (wf_record_kind)(commit >> 32 & 0xff),
        .bytes = (uint32_t)commit,
        .am_id = (uint32_t)(commit >> 40 & 0xff),
        .am_header_bytes = (uint32_t)(commit >> 48 & 0xff),
    };

    if (commit >> 56 != 0 || r.kind == 0 || r.kind >= WF_RECORD_KINDS ||
        index >= lines || r.bytes > wf_ring_payload_max(lines) ||
        !record_length_ok(&r) || !record_am_ok(&r)) {
        return false;
    }
    r.lines =
        r.kind == WF_RECORD_SKIP ? lines - index : wf_ring_lines_for(r.bytes);
    if (r.lines > lines - index) {
        return false;
    }
    *out = r;
    return true;
}
