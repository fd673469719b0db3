/* SPDX-License-Identifier: Apache-2.0 */
/* What goes between the ranks and the thread that has the bootstrap table. */
#ifndef WF_TRANSPORT_MPI_BOOT_H
#define WF_TRANSPORT_MPI_BOOT_H

#include "boot/boot.h"
#include "transport/mpi/net.h"

/* Tags. An answer is followed by the value. */
enum { MP_BOOT_ASK = 1, MP_BOOT_ANSWER = 2, MP_BOOT_VALUE = 3 };

typedef enum mp_boot_verb {
    MP_BOOT_SET = 1,
    MP_BOOT_GET,
    MP_BOOT_DONE /* nothing more comes from this rank */
} mp_boot_verb;

typedef struct mp_boot_head {
    uint64_t verb;
    uint64_t id; /* of a question */
    uint64_t n;  /* bytes of the value behind this */
    char key[WF_BOOT_KEY_MAX + 1];
} mp_boot_head;

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
