/* SPDX-License-Identifier: Apache-2.0 */
/* What goes between the ranks and the thread that has the bootstrap table. */
#ifndef WF_TRANSPORT_MPI_BOOT_H
#define WF_TRANSPORT_MPI_BOOT_H

#include "boot/boot.h"
#include "transport/mpi/net.h"
#include "transport/mpi/wire.h"

/* Tags. An answer is followed by the value. */
enum { MP_BOOT_ASK = 1, MP_BOOT_ANSWER = 2, MP_BOOT_VALUE = 3 };

typedef struct mp_boot_answer {
    uint64_t id;
    uint64_t n;
} mp_boot_answer;

typedef struct mp_boot_server mp_boot_server;

/* boot_server.c: serve until all `ranks` are done. */
weft_status mp_boot_server_start(MPI_Comm comm, int ranks,
                                 mp_boot_server **out);
/* Wait for that, until then at most; false if some were not. Takes NULL. */
bool mp_boot_server_end(mp_boot_server *server, uint64_t until);

#endif
