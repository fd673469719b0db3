/* SPDX-License-Identifier: Apache-2.0 */
#include "store/patient.h"

#include <time.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/time.h"

#define PAUSE_NS WF_MS
#define TRIES 1000u

bool wf_patient_again(unsigned *tries)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};

    if (*tries == 0) {
        wf_log(WEFT_LOG_WARN, "no memory for a store's messages; waiting");
    }
    if (++*tries > TRIES) {
        return false;
    }
    nanosleep(&pause, NULL);
    return true;
}

void *wf_patient_realloc(void *old, size_t bytes)
{
    unsigned tries = 0;
    void *more = wf_realloc(old, bytes);

    while (more == NULL && wf_patient_again(&tries)) {
        more = wf_realloc(old, bytes);
    }
    return more;
}
