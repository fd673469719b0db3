/* SPDX-License-Identifier: Apache-2.0 */
/* Errors are values: every call that can fail returns a weft_status. */
#ifndef WEFT_STATUS_H
#define WEFT_STATUS_H

#include <weft/api.h>

WEFT_BEGIN_DECLS

/* X(name, number, text). Numbers never change. The enum, the texts and the
 * Python exceptions all come from this one table. */
#define WEFT_STATUS_TABLE(X)                                                   \
    X(OK, 0, "success")                                                        \
    X(ERR_INVALID, -1, "an argument is not valid")                             \
    X(ERR_NOMEM, -2, "out of memory")                                          \
    X(ERR_SYSTEM, -3, "a system call failed")                                  \
    X(ERR_TIMEOUT, -4, "the deadline passed")                                  \
    X(ERR_PEER, -5, "a peer died or left the job")                             \
    X(ERR_MISMATCH, -6, "ranks called different operations")                   \
    X(ERR_UNSUPPORTED, -7, "not supported here")                               \
    X(ERR_CLOSED, -8, "the object is closed")                                  \
    X(ERR_PROTOCOL, -9, "a peer sent something malformed")                     \
    X(ERR_DENIED, -10, "not permitted")                                        \
    X(ERR_TRUNCATED, -11, "the message is longer than the buffer")             \
    X(ERR_ABORTED, -12, "the communicator was aborted")

typedef enum weft_status {
#define WEFT_STATUS_ENUM(name, number, text) WEFT_##name = (number),
    WEFT_STATUS_TABLE(WEFT_STATUS_ENUM)
#undef WEFT_STATUS_ENUM
} weft_status;

/** A short general text for a status; a static string, never NULL. */
WEFT_API const char *weft_status_text(weft_status status);

/** The name of a status, as "WEFT_ERR_PEER"; a static string, never NULL. */
WEFT_API const char *weft_status_name(weft_status status);

/**
 * What exactly went wrong in the last call that failed on this thread: which
 * argument, which rank, what to do. Valid until the next failure on this
 * thread; empty if nothing failed yet.
 */
WEFT_API const char *weft_error_detail(void);

WEFT_END_DECLS

#endif
