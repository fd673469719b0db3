/* SPDX-License-Identifier: Apache-2.0 */
/* Mapping shared memory, with a twist for the thread sanitizer: when ranks run
 * as threads of one process (WF_SHARE_MAPS), a file is mapped at one address
 * only, so that the sanitizer sees that two ranks touch the same word. */
#ifndef WF_MEM_SHARE_MAPS_H
#define WF_MEM_SHARE_MAPS_H

#include <stddef.h>

/* As mmap(NULL, bytes, prot, MAP_SHARED, fd, 0). */
void *wf_map_shared(int fd, size_t bytes, int prot);
void wf_unmap_shared(void *base, size_t bytes);

#endif
