/* SPDX-License-Identifier: Apache-2.0 */
/* Detection of vector instructions. This is the one setting that belongs to
 * the process and not to a world, so it is read here and not through the
 * settings of a world. */
#include "base/cpu.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

static const char *const level_names[] = {"plain", "avx2", "avx512"};

static pthread_once_t level_once = PTHREAD_ONCE_INIT;
static wf_cpu_level level_used;

#if defined(__x86_64__)

/* Not all compilers know "f16c" as an argument of __builtin_cpu_supports. Its
 * registers are those of AVX, so the operating system's consent to AVX2 covers
 * it as well. */
static int cpu_has_f16c(void)
{
    unsigned eax;
    unsigned ebx;
    unsigned ecx;
    unsigned edx;

    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C) != 0;
}

wf_cpu_level wf_cpu_detect(void)
{
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
        !cpu_has_f16c()) {
        return WF_CPU_PLAIN;
    }
    if (!__builtin_cpu_supports("avx512f") ||
        !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512vl") ||
        !__builtin_cpu_supports("avx512dq")) {
        return WF_CPU_AVX2;
    }
    return WF_CPU_AVX512;
}

#else

wf_cpu_level wf_cpu_detect(void)
{
    return WF_CPU_PLAIN;
}

#endif

wf_cpu_level wf_cpu_level_wished(const char *wish, wf_cpu_level best)
{
    if (wish == NULL || *wish == '\0' || strcmp(wish, "auto") == 0) {
        return best;
    }
    for (int i = WF_CPU_PLAIN; i <= WF_CPU_AVX512; i++) {
        if (strcmp(wish, level_names[i]) != 0) {
            continue;
        }
        if (i > (int)best) {
            wf_log(WEFT_LOG_WARN, "WEFT_CPU=%s: this CPU has only %s", wish,
                   level_names[best]);
            return best;
        }
        return (wf_cpu_level)i;
    }
    wf_log(WEFT_LOG_WARN,
           "WEFT_CPU=%s is none of auto, plain, avx2, avx512; using %s", wish,
           level_names[best]);
    return best;
}

static void level_read(void)
{
    level_used = wf_cpu_level_wished(getenv("WEFT_CPU"), wf_cpu_detect());
}

wf_cpu_level wf_cpu_level_used(void)
{
    pthread_once(&level_once, level_read);
    return level_used;
}

const char *wf_cpu_level_name(wf_cpu_level level)
{
    return level_names[level];
}
