/* SPDX-License-Identifier: Apache-2.0 */
/* What a job does beside collectives: it forms, makes communicators, tells of
 * deaths, and shows that it lives. Who tells whom is as in the library. */
#ifndef SIM_CONTROL_H
#define SIM_CONTROL_H

#include "replay.h"

/* Which half of the hosts: the first ones, every other one, or any. */
typedef enum sim_cut_off {
    SIM_CUT_BLOCK,
    SIM_CUT_OTHERS,
    SIM_CUT_ANY
} sim_cut_off;

typedef struct sim_control {
    uint32_t colours; /* split: communicators that are made */
    uint32_t dead;    /* news: ranks that died, all at once */
    double every;     /* idle, cut: seconds between heartbeats */
    double timeout;   /* cut: WEFT_HOST_TIMEOUT, in seconds */
    sim_cut_off cut;
    double address; /* join: bytes of a rank's addresses */
    double table;   /* join: seconds that the table's server needs for a key */
} sim_control;

/* comm/build.c: ticket, reply and verdict. */
void sim_create(const sim_model *model, const sim_control *control,
                sim_result *out);
/* comm/group.c: everybody's wish to all, then a communicator for each colour.
 * The comparison of calls that comes first is a barrier. */
void sim_split(const sim_model *model, const sim_control *control,
               sim_result *out);
/* The death of ranks of one host, from its speaker to all others. */
void sim_news(const sim_model *model, const sim_control *control,
              sim_result *out);
/* Heartbeats of one second; `seconds` of the summary are of processor time. */
void sim_idle(const sim_model *model, const sim_control *control,
              sim_result *out);
/* Half of the hosts are cut off; until all others know of all of them. */
void sim_cut(const sim_model *model, const sim_control *control,
             sim_result *out);
/* mem/join.c: through a table that one process serves. */
void sim_join(const sim_model *model, const sim_control *control,
              sim_result *out);

/* Send `bytes` in `letters` messages. */
void sim_mail(sim *s, uint32_t from, uint32_t to, uint32_t kind, uint64_t bytes,
              uint64_t letters);

/* Bytes that a rank of a formed job keeps for all others, and those of the
 * board that it shares with its host. */
uint64_t sim_rank_memory(uint32_t ranks);
uint64_t sim_board_bytes(uint32_t ranks);

/* Run it, and count; the ranks of `s` beyond the first `ranks` do not. */
void sim_control_run(sim *s, const char *how, uint32_t ranks, sim_result *out);

#endif
