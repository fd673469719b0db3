/* SPDX-License-Identifier: Apache-2.0 */
/* weft.Message: what is known of a message that was received or seen. */
#ifndef WFP_MESSAGE_H
#define WFP_MESSAGE_H

#include "core.h"

/* A Message with its length in elements of `item` bytes; NULL with an exception
 * set if it does not end between two. */
PyObject *wfp_message_new(const weft_message_info *info, size_t item);

#endif
