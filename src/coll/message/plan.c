/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/message/plan.h"

static const char *const names[WF_ALGORITHMS] = {
#define WF_ALGORITHM_TEXT(name, text) [WF_BY_##name] = #text,
    WF_ALGORITHM_TABLE(WF_ALGORITHM_TEXT)
#undef WF_ALGORITHM_TEXT
};

static wf_plan_maker *const makers[WF_ALGORITHMS] = {
#define WF_ALGORITHM_MAKER(name, text) [WF_BY_##name] = wf_plan_##text,
    WF_ALGORITHM_TABLE(WF_ALGORITHM_MAKER)
#undef WF_ALGORITHM_MAKER
};

const char *wf_algorithm_name(wf_algorithm how)
{
    return (unsigned)how < WF_ALGORITHMS ? names[how] : "?";
}

bool wf_plan_make(wf_plan *plan, wf_call_kind kind, wf_algorithm how,
                  uint32_t size, uint32_t rank, uint32_t root, uint32_t pieces)
{
    *plan = (wf_plan){.size = size,
                      .rank = rank,
                      .root = root,
                      .blocks = pieces,
                      .span = 1,
                      .groups = 1,
                      .width = 1};
    return (unsigned)how < WF_ALGORITHMS && makers[how](plan, kind);
}

void wf_plan_chunks(wf_plan *plan, uint64_t total, uint32_t width)
{
    if (plan->whole || total == 0) {
        return;
    }
    if (!plan->grouped || total <= width) {
        plan->width = (uint32_t)total;
        return;
    }
    plan->width = width;
    plan->groups = (total + width - 1) / width;
}

void wf_plan_at(const wf_plan *plan, uint64_t at, wf_step *out)
{
    uint64_t number = at / plan->width; /* of the step in all groups */
    uint64_t group = number / plan->steps;
    uint32_t in_group = (uint32_t)(at % plan->width);

    *out = (wf_step){.to = WF_NOBODY, .from = WF_NOBODY};
    plan->fill(plan, number % plan->steps, out);
    out->in_group = in_group;
    out->chunk = group * plan->width + in_group;
    if (out->waits != 0 &&
        out->waits <= (plan->apart ? number % plan->steps : number)) {
        uint64_t last = number - out->waits;

        out->needs =
            last * plan->width + (out->flows ? in_group + 1 : plan->width);
    }
}
