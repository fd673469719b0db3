/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank asked for, in a form that travels: ranks compare it to find
 * mismatched calls, errors print it, the board shows it. */
#ifndef WF_COMM_CALL_H
#define WF_COMM_CALL_H

#include <stdbool.h>
#include <string.h>
#include <weft/types.h>

/* Numbers travel between processes. */
typedef enum wf_call_kind {
    WF_CALL_NONE = 0,
    WF_CALL_BARRIER = 1,
    WF_CALL_BROADCAST = 2,
    WF_CALL_ALLREDUCE = 3,
    WF_CALL_SEND = 4,
    WF_CALL_RECV = 5,
    WF_CALL_CREATE = 6 /* split, dup, subset */
} wf_call_kind;

typedef struct wf_call {
    uint8_t kind;
    uint8_t type;
    uint8_t op;
    uint8_t zero;
    uint32_t root; /* or the peer of a message */
    uint64_t count;
    double factor; /* of a pre-multiplied sum, else 0 */
} wf_call;
_Static_assert(sizeof(wf_call) == 24, "compared and sent as bytes");

static inline bool wf_call_equal(const wf_call *a, const wf_call *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

/* "allreduce of 17 f32, sum"; always terminated. */
void wf_call_text(const wf_call *call, char *text, size_t room);

#endif
