/* SPDX-License-Identifier: Apache-2.0 */
/* A sample, and the scheme LOCAL, which draws when samples are used. */
#ifndef WF_STORE_SAMPLE_LOCAL_H
#define WF_STORE_SAMPLE_LOCAL_H

#include "store/keymap.h"
#include "store/sample.h"

struct wf_sample {
    int64_t id;
    uint64_t n;
    uint64_t used;
    uint64_t last; /* of them, by the last wf_sample_next */
    int64_t *keys; /* LOCAL: those that were used, if they are distinct */
    /* LOCAL, if distinct: each key that was used, and from where to look on
     * for one that was not. */
    wf_keymap taken;
};

/* Draw `n` keys, and step from each, upwards and around the end of the range,
 * to one that is on this host and, if distinct, not used. WEFT_ERR_INVALID if
 * there is none. It looks at each key of the range a few times at most. */
weft_status wf_sample_local(wf_samples *samples, wf_sample *sample,
                            const wf_sample_env *env, uint64_t n,
                            int64_t *keys);

/* Forget the keys that were used, but for the first `used`. */
void wf_sample_local_undo(wf_sample *sample);

#endif
