/* SPDX-License-Identifier: Apache-2.0 */
/* What the library is put together from, see weft.c. Tests take it and change a
 * part; nothing in src includes this header but weft.c. */
#ifndef WF_WEFT_H
#define WF_WEFT_H

#include "comm/world.h"

extern const wf_parts wf_weft_parts;

#endif
