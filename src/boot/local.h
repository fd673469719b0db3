/* SPDX-License-Identifier: Apache-2.0 */
/* Where the ranks of a host meet. */
#ifndef WF_BOOT_LOCAL_H
#define WF_BOOT_LOCAL_H

#include "boot/name.h"

/* What rank 0 of job `name` of this user listens at. */
void wf_boot_local_name(const char *name, wf_boot_name *out);

#endif
