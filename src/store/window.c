/* SPDX-License-Identifier: Apache-2.0 */
#include "store/window.h"

#include <math.h>

#define FIRST_ESTIMATE 10.0
#define SMOOTHING 0.1
#define QUANTILE 0.9999
#define NORMAL_QUANTILE 3.7190164854556804 /* of 0.9999 */
#define NORMAL_FROM 1e6
#define PI 3.14159265358979323846
#define NEXT_LOOK 1.0 /* until the next chance to act */

void wf_window_init(wf_window *window, int64_t clock)
{
    *window = (wf_window){.estimate = FIRST_ESTIMATE, .clock = clock};
}

int64_t wf_window_look(wf_window *window, int64_t clock, double action)
{
    /* As doubles: a clock may have been set to the end of time. */
    double ticks = (double)clock - (double)window->clock;
    int64_t quantile;

    window->clock = clock;
    if (ticks > 0) {
        window->estimate += SMOOTHING * (ticks - window->estimate);
    }
    quantile = wf_window_quantile((NEXT_LOOK + action) *
                                  fmax(window->estimate, ticks));
    return quantile > 1 ? quantile : 1;
}

double wf_window_learn(double action, double looks)
{
    return fmax(1, fmax(looks, action + SMOOTHING * (looks - action)));
}

/* By Stirling's series; lgamma is not safe to use from several threads. */
static double log_factorial(double n)
{
    double sum = 0;

    if (n < 32) {
        for (int i = 2; i <= (int)n; i++) {
            sum += log((double)i);
        }
        return sum;
    }
    return n * log(n) - n + 0.5 * log(2 * PI * n) + 1 / (12 * n) -
           1 / (360 * n * n * n);
}

/* Terms far below the mean are too small for a double, so summing begins where
 * they begin to matter: ten standard deviations below it. */
int64_t wf_window_quantile(double mean)
{
    double first = floor(mean - 10 * sqrt(mean));
    double n = first > 0 ? first : 0;
    double term;
    double sum;

    if (!(mean > 0)) {
        return 0;
    }
    if (mean > NORMAL_FROM) {
        double top = ceil(mean + NORMAL_QUANTILE * sqrt(mean));
        return top < 9e18 ? (int64_t)top : INT64_MAX;
    }
    term = exp(n * log(mean) - mean - log_factorial(n));
    sum = term;
    while (sum < QUANTILE) {
        n++;
        term *= mean / n;
        sum += term;
        if (n > mean && term < 1e-18) {
            break; /* rounding keeps the sum below the quantile */
        }
    }
    return (int64_t)n;
}
