/* SPDX-License-Identifier: Apache-2.0 */
/* Requests: one operation under way each. */
#ifndef WEFT_REQUEST_H
#define WEFT_REQUEST_H

#include <weft/status.h>

WEFT_BEGIN_DECLS

typedef struct weft_request weft_request;

/**
 * Is it over? Never blocks, and drives progress. Sets `*done`; once it is 1,
 * returns the status the operation ended with. Asking is not waiting: a receive
 * that is only tested has no deadline, however long that goes on (its sender's
 * death ends it all the same); all other operations have theirs.
 */
WEFT_API weft_status weft_request_test(weft_request *request, int *done);

/**
 * Wait until the operation is over and return its status. `seconds` bounds
 * this wait: when it passes first, the result is WEFT_ERR_TIMEOUT, the
 * operation goes on, and the request can be waited for again. 0 or less means:
 * as long as the operation itself may take (its communicator's timeout).
 * Any thread may wait; several may wait for one request.
 */
WEFT_API weft_status weft_request_wait(weft_request *request, double seconds);

/**
 * Have `fn` called once when the operation is over: at once, on this thread,
 * if it already is; else on the thread that completes it, without any lock of
 * the library held. At most one callback per request, set at most once. It
 * may start operations, but not destroy communicators or worlds. A blocking
 * collective in it fails with WEFT_ERR_INVALID while one of the same
 * communicator is under way.
 */
typedef void weft_request_fn(weft_request *request, weft_status status,
                             void *ctx);
WEFT_API weft_status weft_request_on_done(weft_request *request,
                                          weft_request_fn *fn, void *ctx);

/**
 * Let go of the request. An operation that is not over goes on, and its
 * buffers stay borrowed until it is. Takes NULL.
 */
WEFT_API void weft_request_release(weft_request *request);

WEFT_END_DECLS

#endif
