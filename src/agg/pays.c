/* SPDX-License-Identifier: Apache-2.0 */
#include "agg/pays.h"

/* What a host's busier direction carries without a switch. */
static double without(double hosts, wf_call_kind kind)
{
    double share = (hosts - 1) / hosts;

    return kind == WF_CALL_ALLREDUCE ? 2 * share : share;
}

double wf_agg_pays_ratio(const wf_agg_site *site, wf_call_kind kind)
{
    double with = 1;

    if (site->hosts < 2 ||
        (kind != WF_CALL_ALLREDUCE && kind != WF_CALL_REDUCE_SCATTER)) {
        return 1;
    }
    if (site->switch_rate > 0) {
        double shared = site->hosts * site->host_rate / site->switch_rate;

        with = shared > with ? shared : with;
    }
    return with / without(site->hosts, kind);
}
