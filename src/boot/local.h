/* SPDX-License-Identifier: Apache-2.0 */
/* The address at which the ranks of a host find rank 0. */
#ifndef WF_BOOT_LOCAL_H
#define WF_BOOT_LOCAL_H

#include "boot/name.h"

/* The address of rank 0 of job `name` of this user. */
void wf_boot_local_name(const char *name, wf_boot_name *out);

#endif
