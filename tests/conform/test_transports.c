/* SPDX-License-Identifier: Apache-2.0 */
/* The conformance suite for every transport there is, plain and behind the
 * double that shakes it. */
#include "base/library.h"
#include "conform.h"

#include <stdio.h>
#include <stdlib.h>

#include "double.h"
#include "socket/socket.h"

/* Small limits, so that a few hundred messages go round many times. */
#define SMALL "SHM_RING_BYTES=16K SHM_EAGER=2K "
#define TINY "SHM_RING_BYTES=4K SHM_EAGER=512 "
#define READS "SHM_CMA=1"
#define STREAMS "SHM_CMA=0"

/* The one that lies in a library. */
static const wf_transport *load(void)
{
    const void *found = NULL;

    if (wf_library_find(NULL, wt_transport_library.library, WF_TRANSPORT_SYMBOL,
                        &found) != WEFT_OK) {
        fprintf(stderr, "%s\n", weft_error_detail());
        exit(1);
    }
    return found;
}

int main(void)
{
    const conform_kind kinds[] = {
        {.name = "self", .transport = &wf_transport_self, .to_itself = true},
        {.name = "shm", .transport = &wf_transport_shm},
        {.name = "shm that reads the sender's memory",
         .transport = &wf_transport_shm,
         .settings = READS},
        {.name = "shm that never does",
         .transport = &wf_transport_shm,
         .settings = SMALL STREAMS},
        {.name = "shm with the smallest rings",
         .transport = &wf_transport_shm,
         .settings = TINY STREAMS},
        {.name = "shm with waits that sleep",
         .transport = &wf_transport_shm,
         .settings = SMALL READS,
         .sleeps = true},
        {.name = "shm with waits that sleep and the smallest rings",
         .transport = &wf_transport_shm,
         .settings = TINY STREAMS,
         .sleeps = true,
         .slow = true},
        {.name = "sockets",
         .transport = &wt_transport_socket,
         .cut = wt_socket_cut},
        {.name = "sockets with waits that sleep, in a library",
         .transport = load(),
         .settings = "SHM_EAGER=512",
         .sleeps = true,
         .cut = wt_socket_cut},
        {.name = "self, shaken",
         .transport = &wf_double_self,
         .to_itself = true,
         .slow = true},
        {.name = "shm, shaken",
         .transport = &wf_double_shm,
         .settings = SMALL READS,
         .slow = true},
        {.name = "shm with the smallest rings, shaken",
         .transport = &wf_double_shm,
         .settings = TINY STREAMS,
         .slow = true},
    };
    int failed = 0;

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        failed += conform_run(&kinds[i]);
    }
    return failed;
}
