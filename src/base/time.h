/* SPDX-License-Identifier: Apache-2.0 */
/* Clocks, and the pause instruction. */
#ifndef WF_BASE_TIME_H
#define WF_BASE_TIME_H

#include <stdint.h>
#include <time.h>

#define WF_MS 1000000ull
#define WF_SEC 1000000000ull

/* Nanoseconds of the monotonic clock. */
static inline uint64_t wf_now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * WF_SEC + (uint64_t)t.tv_nsec;
}

/* Nanoseconds since the epoch, for people: this clock may be set. */
static inline uint64_t wf_epoch_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * WF_SEC + (uint64_t)t.tv_nsec;
}

/* What is left until `deadline`; 1 if it has passed. */
static inline uint64_t wf_ns_until(uint64_t deadline)
{
    uint64_t now = wf_now_ns();

    return deadline > now ? deadline - now : 1;
}

/* A timeout in seconds, of which more than 30 years are 30, so that no clock
 * overflows; `fallback_ns` if it is NaN or not greater than 0. */
static inline uint64_t wf_timeout_ns(double seconds, uint64_t fallback_ns)
{
    return !(seconds > 0)  ? fallback_ns
           : seconds < 1e9 ? (uint64_t)(seconds * 1e9)
                           : (uint64_t)1e18;
}

/* Milliseconds until `deadline`, rounded up, for poll(); at most 1 h. */
static inline int wf_ms_until(uint64_t deadline)
{
    uint64_t now = wf_now_ns();
    uint64_t ms;

    if (now >= deadline) {
        return 0;
    }
    ms = (deadline - now + WF_MS - 1) / WF_MS;
    return ms > 3600000 ? 3600000 : (int)ms;
}

/* Tell the core that this is a polling loop. */
static inline void wf_cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

#endif
