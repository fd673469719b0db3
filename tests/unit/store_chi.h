/* SPDX-License-Identifier: Apache-2.0 */
/* Pearson's chi-square test, for tests with fixed seeds: what passes once
 * always does. */
#ifndef STORE_CHI_H
#define STORE_CHI_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

/* Could `total` draws with the probabilities of `share` (which need not sum up
 * to 1) have given these counts? A right distribution fails once in about
 * 10000 seeds. A count where the share is 0 is wrong. The limit is Wilson and
 * Hilferty's. */
static inline bool chi_fits(const uint64_t *counts, const double *share,
                            unsigned n, uint64_t total)
{
    double sum = 0;
    double chi = 0;
    double df = -1;
    double root;

    for (unsigned i = 0; i < n; i++) {
        sum += share[i];
    }
    for (unsigned i = 0; i < n; i++) {
        double expected = (double)total * share[i] / sum;
        double off = (double)counts[i] - expected;

        if (share[i] == 0 && counts[i] > 0) {
            return false;
        }
        if (share[i] > 0) {
            chi += off * off / expected;
            df++;
        }
    }
    if (df < 1) {
        return true;
    }
    root = 1 - 2 / (9 * df) + 3.72 * sqrt(2 / (9 * df));
    return chi <= df * root * root * root;
}

#endif
