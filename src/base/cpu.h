/* SPDX-License-Identifier: Apache-2.0 */
/* Which vector instructions this process may use. */
#ifndef WF_BASE_CPU_H
#define WF_BASE_CPU_H

/* Each level includes the ones before it. */
typedef enum wf_cpu_level {
    WF_CPU_PLAIN,  /* what the compiler may assume of every CPU of this kind */
    WF_CPU_AVX2,   /* AVX2, FMA and F16C */
    WF_CPU_AVX512, /* also AVX-512 F, BW, VL and DQ */
} wf_cpu_level;

/* The highest level that the CPU and the operating system support. */
wf_cpu_level wf_cpu_detect(void);

/* The level to use: wf_cpu_detect(), or less if WEFT_CPU in the environment
 * names a lower one. It is read once in the life of the process, so that all
 * worlds in it compute alike. Any thread may call it. */
wf_cpu_level wf_cpu_level_used(void);

/* The level that WEFT_CPU=`wish` gives on a CPU that supports `best`. It is
 * `best` for NULL, "" and "auto", and, with a warning, for an unknown level and
 * for one above `best`. */
wf_cpu_level wf_cpu_level_wished(const char *wish, wf_cpu_level best);

/* "plain", "avx2" or "avx512"; a static string. */
const char *wf_cpu_level_name(wf_cpu_level level);

#endif
