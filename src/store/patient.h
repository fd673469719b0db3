/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for messages between hosts. One that is lost leaves a key without an
 * owner, or somebody waiting for an answer; so a lack of memory that passes
 * only makes a rank slow. */
#ifndef WF_STORE_PATIENT_H
#define WF_STORE_PATIENT_H

#include <stdbool.h>
#include <stddef.h>

/* As wf_realloc, but waits about a second for memory before it gives up. */
void *wf_patient_realloc(void *old, size_t bytes);

/* For other things that need memory: sleep, and true, as long as it makes sense
 * to try once more. `tries` is 0 at first. */
bool wf_patient_again(unsigned *tries);

#endif
