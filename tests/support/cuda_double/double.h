/* SPDX-License-Identifier: Apache-2.0 */
/* A double of the CUDA driver, for tests where there is no GPU, or only one.
 *
 * Device memory is a memfd, a descriptor of it is the exported handle, a range
 * of device addresses is a mapping that nobody may touch until it is granted.
 * So processes really pass memory to each other, it really lasts until the last
 * one lets go, and a device address is a host address: what a kernel would do,
 * a test does by hand. Where the driver promises little the double promises
 * nothing: fresh memory is full of junk, only whole handles can be mapped and
 * unmapped, and a copy fails unless the current device was granted access.
 *
 * The memory of a device is that of all processes that run the double with the
 * same tag; it is counted as the kernel sees it (count.c). */
#ifndef WT_CUDA_DOUBLE_H
#define WT_CUDA_DOUBLE_H

#include "mem/device.h"

#define WF_DOUBLE_DEVICES 4
#define WF_DOUBLE_JUNK 0xA5

typedef struct wf_double_options {
    int devices;      /* 0: one */
    uint64_t bytes;   /* memory of each; 0: no limit */
    uint64_t granule; /* 0: 2 MiB */
    uint32_t tag;     /* whose processes share the devices */
    bool no_peers;    /* no device can reach another's memory */
    bool moves_host;  /* registered host memory gets another address */
} wf_double_options;

/* Begin anew in this process and give the table of functions. */
const wf_driver *wf_double_start(const wf_double_options *options);

/* Let the nth call from now on this thread that asks for something fail with
 * `error`, once; 0 switches it off. Returns what was left of the last count.
 * WF_DOUBLE_KILL in place of an error kills the process in that call. */
#define WF_DOUBLE_KILL (-9)
unsigned wf_double_fail_nth(unsigned nth, int error);

/* As when the process exits: every call fails with WF_CU_ENDED. */
void wf_double_end(void);

/* What this process holds. */
typedef struct wf_double_counts {
    unsigned contexts; /* retained */
    unsigned handles;
    unsigned ranges;
    unsigned mappings;
    unsigned registered;
    unsigned torn;    /* times that memory was taken from a running kernel */
    unsigned depth;   /* of this thread's stack of contexts */
    int capture_mode; /* of this thread */
} wf_double_counts;
wf_double_counts wf_double_count(void);

/* From now on a kernel runs on `device`, and uses whatever it may use, until
 * somebody waits for the device. */
void wf_double_launch(int device);
bool wf_double_busy(int device);

/* What `device` may do with the memory at `at`: 0, WF_CU_READ or
 * WF_CU_READWRITE. */
int wf_double_access(const void *at, int device);

/* Bytes of `device` that any process with this tag holds. */
uint64_t wf_double_used(uint32_t tag, int device);

/* The name of device memory as the kernel shows it, and back; -1: it is none
 * of this tag's. */
#define WF_DOUBLE_NAME_MAX 64
void wf_double_name(uint32_t tag, int device, uint64_t bytes, char *out);
int wf_double_name_read(const char *text, uint32_t tag, uint64_t *bytes);

#endif
