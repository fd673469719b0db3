/* SPDX-License-Identifier: Apache-2.0 */
#include "agg/pays.h"

double wf_agg_pays_ratio(const wf_agg_site *site)
{
    double hosts = site->hosts;
    /* The most that any host has, if they are as even as can be. */
    double each = (site->ranks + site->hosts - 1) / site->hosts;
    double without = 2 * (hosts - 1) / hosts;
    double with = each;

    if (site->hosts < 2) {
        return 1;
    }
    if (site->switch_rate > 0) {
        double shared = site->ranks * site->host_rate / site->switch_rate;

        with = shared > with ? shared : with;
    }
    return with / without;
}
