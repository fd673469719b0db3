/* SPDX-License-Identifier: Apache-2.0 */
/* The state of rank 0's server, shared by the file that moves bytes (server.c)
 * and the one that implements the rules of boot/server.h (server_rules.c). */
#ifndef WF_BOOT_SERVER_STATE_H
#define WF_BOOT_SERVER_STATE_H

#include <poll.h>
#include <pthread.h>

#include "boot/conn.h"
#include "boot/server.h"
#include "boot/table.h"

#define WF_NO_RANK UINT32_MAX

typedef enum rank_state { RANK_ABSENT, RANK_HERE, RANK_DONE } rank_state;

typedef struct server_client {
    wf_conn conn;
    pid_t pid;
    uint32_t rank; /* WF_NO_RANK until its HELLO is accepted */
    bool refused;
    bool starved; /* there was no memory to serve it */
    bool waits;   /* for `key`, in request `wait_id` */
    uint32_t wait_id;
    char key[WF_BOOT_KEY_MAX + 1];
} server_client;

struct wf_boot_server {
    pthread_t thread;
    char *name;
    uint32_t ranks;
    int listener; /* -1 once all ranks are here */
    wf_boot_table table;
    unsigned char *state; /* rank_state of each rank */
    uint32_t absent;
    uint32_t here; /* and not done */

    server_client *clients;
    struct pollfd *polls; /* the listener, then one for each client */
    size_t count;
    size_t room;

    bool warned_refused; /* warned once: another user could fill the log */

    bool closing;       /* rank 0 has closed its connection */
    bool closing_early; /* without having said DONE */
    uint64_t leave_by;

    bool starved;  /* a rank could not be served for lack of memory */
    uint32_t dead; /* the first rank that died, or WF_NO_RANK */
    pid_t dead_pid;
    uint64_t tell_at;
};

/* Handle a message of a connection; rules 1 and 2. */
void wf_server_take(wf_boot_server *s, server_client *c,
                    const wf_wire_msg *msg);

/* Assign `rank` to this connection. */
void wf_server_join(wf_boot_server *s, server_client *c, uint32_t rank);
/* The connection of a rank has ended; rules 3 and 5. */
void wf_server_rank_gone(wf_boot_server *s, const server_client *c);
/* Once the grace period is over, fail the GETs that wait; rule 3. */
void wf_server_tell_of_failure(wf_boot_server *s);

/* Rule 4. */
void wf_server_stop_listening(wf_boot_server *s);

#endif
