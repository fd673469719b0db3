/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's control channel to a switch, without blocking: it connects, joins a
 * job, and then only tells whether the job still lives. */
#ifndef WF_AGG_SESSION_H
#define WF_AGG_SESSION_H

#include <weft/status.h>

#include "agg/control.h"
#include "agg/udp.h"

typedef enum wf_agg_session_state {
    WF_AGG_SESSION_CLOSED = 0,
    WF_AGG_SESSION_CONNECTING,
    WF_AGG_SESSION_GREETING, /* the switch's hello has not come */
    WF_AGG_SESSION_JOINING,  /* its answer has not */
    WF_AGG_SESSION_JOINED
} wf_agg_session_state;

typedef struct wf_agg_session {
    int fd;
    wf_agg_session_state state;
    wf_secret key; /* of the switch's file */
    wf_agg_join join;
    wf_agg_hello hello;
    wf_agg_joined joined; /* with JOINED */
    size_t got;           /* bytes of the message that is being read */
} wf_agg_session;

/* Begin. Of `join` all but nonce and proof are filled in. */
weft_status wf_agg_session_open(wf_agg_session *s, const wf_udp_address *to,
                                const wf_secret *key, const wf_agg_join *join);
/* What there is to do, without waiting. A failure closes it: WEFT_ERR_DENIED
 * says why the switch would not have the job; WEFT_ERR_PEER that the switch
 * has gone, or a rank of the job has left. */
weft_status wf_agg_session_step(wf_agg_session *s);
void wf_agg_session_close(wf_agg_session *s);

/* Begin to connect to a switch; `*fd` is -1 after a failure. Then: has it come
 * about? What fails is for the caller to close. */
weft_status wf_agg_connect(const wf_udp_address *to, int *fd);
weft_status wf_agg_connected(int fd, bool *done);

/* Of a control channel's socket, at both ends: a host that is gone is noticed
 * in about ten seconds, and what is written leaves at once. */
void wf_agg_keep_alive(int fd);

#endif
