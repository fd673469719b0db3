/* SPDX-License-Identifier: Apache-2.0 */
/* cmocka with what it wants included before it. */
#ifndef WT_CMOCKA_H
#define WT_CMOCKA_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
