/* SPDX-License-Identifier: Apache-2.0 */
/* The explorer of tests/agg compiles slots and windows with mistakes that can
 * be switched on, to show that it finds them. In the library there are none. */
#ifndef WF_AGG_MISTAKES_H
#define WF_AGG_MISTAKES_H

#ifdef WF_AGG_MISTAKES
typedef enum wf_agg_mistake {
    WF_AGG_NO_MISTAKE = 0,
    WF_AGG_LATE_COUNTS,
    WF_AGG_COUNTS_TWICE,
    WF_AGG_COMPLETE_EARLY,
    WF_AGG_SEEN_STAYS,
    WF_AGG_CLEARS_EARLY,
    WF_AGG_NO_ANSWER,
    WF_AGG_OTHER_ANSWER,
    WF_AGG_ANY_EPOCH,
    WF_AGG_ANY_CALL,
    WF_AGG_FORGETS_MISMATCH,
    WF_AGG_SENDS_AHEAD,
    WF_AGG_RESULT_BY_SLOT,
    WF_AGG_HELD_IS_OVER,
    WF_AGG_HELD_NOT_RESENT,
    WF_AGG_NEVER_EXPIRES,
    WF_AGG_SETTLE_MISTAKES, /* those of settle.c follow */
    WF_AGG_NEVER_ANSWERS,
    WF_AGG_GOES_ON,
    WF_AGG_REDOES_ALONE,
    WF_AGG_OWN_FIRST,
    WF_AGG_MISTAKES_END
} wf_agg_mistake;
extern int wf_agg_mistake_made;
#define WF_AGG_MISTAKE(which) (wf_agg_mistake_made == (which))
#else
#define WF_AGG_MISTAKE(which) false
#endif

#endif
