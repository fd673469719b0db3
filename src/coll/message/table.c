/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/message/table.h"

#include <stdio.h>
#include <string.h>

#include "base/status.h"

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define ANY WF_ANY_BYTES

/* Operation, largest number of bytes, least number of ranks, only powers of
 * two? The first row that fits is used. The last of each operation always
 * fits. */
static const wf_choice table[] = {
    {WF_CALL_BROADCAST, 32 * KIB, 2, false, WF_BY_BINOMIAL, "few rounds"},
    {WF_CALL_BROADCAST, ANY, 4, false, WF_BY_DOUBLE_TREE,
     "all ranks send and receive all the time"},
    {WF_CALL_BROADCAST, ANY, 2, false, WF_BY_BINOMIAL,
     "so few ranks leave no choice"},

    {WF_CALL_REDUCE, 32 * KIB, 2, false, WF_BY_BINOMIAL, "few rounds"},
    {WF_CALL_REDUCE, ANY, 4, false, WF_BY_DOUBLE_TREE,
     "all ranks receive and fold all the time"},
    {WF_CALL_REDUCE, ANY, 2, false, WF_BY_BINOMIAL,
     "so few ranks leave no choice"},

    {WF_CALL_ALLREDUCE, 16 * KIB, 2, false, WF_BY_DOUBLING, "few rounds"},
    {WF_CALL_ALLREDUCE, 512 * KIB, 2, false, WF_BY_HALVING,
     "each byte is folded once, in few rounds"},
    {WF_CALL_ALLREDUCE, 32 * MIB, 8, true, WF_BY_HALVING,
     "as few bytes as by a ring, in fewer rounds"},
    {WF_CALL_ALLREDUCE, 64 * MIB, 64, false, WF_BY_DOUBLE_TREE,
     "the rounds of a ring would be many"},
    {WF_CALL_ALLREDUCE, ANY, 2, false, WF_BY_RING,
     "each byte is folded once, between neighbours, in chunks"},

    {WF_CALL_SCAN, ANY, 2, false, WF_BY_DOUBLING, "few rounds"},
    {WF_CALL_EXSCAN, ANY, 2, false, WF_BY_DOUBLING, "few rounds"},

    {WF_CALL_REDUCE_SCATTER, 4 * KIB, 2, true, WF_BY_HALVING, "few rounds"},
    {WF_CALL_REDUCE_SCATTER, 64 * KIB, 2, false, WF_BY_PAIRWISE,
     "nothing waits for another rank's fold"},
    {WF_CALL_REDUCE_SCATTER, ANY, 2, false, WF_BY_RING,
     "only neighbours talk, in chunks"},
    {WF_CALL_REDUCE_SCATTERV, 64 * KIB, 2, false, WF_BY_PAIRWISE,
     "nothing waits for another rank's fold"},
    {WF_CALL_REDUCE_SCATTERV, ANY, 2, false, WF_BY_RING,
     "only neighbours talk, in chunks"},

    {WF_CALL_ALLGATHER, 8 * KIB, 2, true, WF_BY_DOUBLING, "few rounds"},
    {WF_CALL_ALLGATHER, 8 * KIB, 2, false, WF_BY_BRUCK,
     "few rounds with any number of ranks"},
    {WF_CALL_ALLGATHER, ANY, 2, false, WF_BY_RING,
     "only neighbours talk, in chunks"},
    {WF_CALL_ALLGATHERV, ANY, 2, false, WF_BY_RING,
     "only neighbours talk, in chunks"},

    {WF_CALL_GATHER, 2 * KIB, 8, false, WF_BY_BINOMIAL,
     "the root gets few messages"},
    {WF_CALL_GATHER, ANY, 2, false, WF_BY_LINEAR, "no byte moves twice"},
    {WF_CALL_GATHERV, ANY, 2, false, WF_BY_LINEAR,
     "only root and rank know a length"},

    {WF_CALL_SCATTER, 2 * KIB, 8, false, WF_BY_BINOMIAL,
     "the root sends few messages"},
    {WF_CALL_SCATTER, ANY, 2, false, WF_BY_LINEAR, "no byte moves twice"},
    {WF_CALL_SCATTERV, ANY, 2, false, WF_BY_LINEAR,
     "only root and rank know a length"},

    {WF_CALL_ALLTOALL, 512, 8, false, WF_BY_BRUCK, "few rounds"},
    {WF_CALL_ALLTOALL, ANY, 2, false, WF_BY_PAIRWISE, "no byte moves twice"},
    {WF_CALL_ALLTOALLV, ANY, 2, false, WF_BY_PAIRWISE,
     "only two ranks know a length"},
};

enum { ROWS = sizeof(table) / sizeof(table[0]) };

const wf_choice *wf_message_choose(wf_call_kind kind, uint64_t bytes,
                                   uint32_t ranks)
{
    for (size_t i = 0; i < ROWS; i++) {
        const wf_choice *c = &table[i];

        if (c->kind == kind && bytes <= c->up_to && ranks >= c->ranks_from &&
            (!c->power_of_2 || wf_is_power_of_2(ranks))) {
            return c;
        }
    }
    return NULL;
}

bool wf_algorithm_applies(wf_call_kind kind, wf_algorithm how, uint32_t ranks)
{
    wf_plan plan;

    return wf_plan_make(&plan, kind, how, ranks, 0, 0, 1);
}

/* --- the setting ---------------------------------------------------------- */

static bool is_word(const char *name, const char *text, size_t n)
{
    return strlen(name) == n && memcmp(name, text, n) == 0;
}

static wf_call_kind kind_named(const char *text, size_t n)
{
    for (unsigned k = 0; k < WF_CALL_KINDS; k++) {
        if (wf_message_choose((wf_call_kind)k, 0, 2) != NULL &&
            is_word(wf_call_name((uint8_t)k), text, n)) {
            return (wf_call_kind)k;
        }
    }
    return WF_CALL_NONE;
}

static weft_status no_operation(const char *text, size_t n)
{
    char list[400] = "";

    for (unsigned k = 0; k < WF_CALL_KINDS; k++) {
        if (wf_message_choose((wf_call_kind)k, 0, 2) != NULL) {
            wf_add_word(list, sizeof(list), wf_call_name((uint8_t)k));
        }
    }
    return wf_fail(WEFT_ERR_INVALID,
                   "setting WEFT_ALGORITHM: '%.*s' is not an operation with a "
                   "choice of algorithms (%s)",
                   (int)n, text, list);
}

static weft_status no_algorithm(wf_call_kind kind, const char *text, size_t n)
{
    char list[200] = "";

    for (unsigned a = 0; a < WF_ALGORITHMS; a++) {
        if (wf_algorithm_applies(kind, (wf_algorithm)a, 4)) {
            wf_add_word(list, sizeof(list), wf_algorithm_name((wf_algorithm)a));
        }
    }
    return wf_fail(WEFT_ERR_INVALID,
                   "setting WEFT_ALGORITHM: there is no %s by '%.*s' (%s)",
                   wf_call_name((uint8_t)kind), (int)n, text, list);
}

/* "allreduce=ring" */
static weft_status parse_one(const char *text, size_t n,
                             wf_algorithm forced[WF_CALL_KINDS])
{
    const char *eq = memchr(text, '=', n);
    size_t name = eq != NULL ? (size_t)(eq - text) : n;
    wf_call_kind kind = kind_named(text, name);
    size_t rest = eq != NULL ? n - name - 1 : 0;

    if (eq == NULL) {
        return wf_fail(WEFT_ERR_INVALID,
                       "setting WEFT_ALGORITHM: '%.*s' is not of the form "
                       "allreduce=ring",
                       (int)n, text);
    }
    if (kind == WF_CALL_NONE) {
        return no_operation(text, name);
    }
    for (unsigned a = 0; a < WF_ALGORITHMS; a++) {
        /* All algorithms can run with four ranks. */
        if (is_word(wf_algorithm_name((wf_algorithm)a), eq + 1, rest) &&
            wf_algorithm_applies(kind, (wf_algorithm)a, 4)) {
            forced[kind] = (wf_algorithm)a;
            return WEFT_OK;
        }
    }
    return no_algorithm(kind, eq + 1, rest);
}

weft_status wf_algorithms_parse(const char *text,
                                wf_algorithm forced[WF_CALL_KINDS])
{
    weft_status st = WEFT_OK;

    for (unsigned k = 0; k < WF_CALL_KINDS; k++) {
        forced[k] = WF_ALGORITHMS;
    }
    if (strcmp(text, "auto") == 0) {
        return WEFT_OK;
    }
    while (st == WEFT_OK && *text != '\0') {
        size_t n = strcspn(text, ",");

        st = n > 0 ? parse_one(text, n, forced) : WEFT_OK;
        text += n + (text[n] == ',');
    }
    return st;
}
