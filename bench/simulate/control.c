/* SPDX-License-Identifier: Apache-2.0 */
#include "control.h"

#include "comm/comm.h"

void sim_mail(sim *s, uint32_t from, uint32_t to, uint32_t kind, uint64_t bytes,
              uint64_t letters)
{
    sim_message *m = sim_message_new(s, from, to);

    m->kind = kind;
    m->bytes = bytes;
    m->length = bytes;
    m->tag = letters;
    sim_count_sent(s, from, to, bytes);
    s->count[from].sent += letters - 1;
    s->count[to].received += letters;
    s->count[to].received_bytes += bytes;
    sim_work(s, (double)(letters - 1) * s->model.send);
    sim_post(s, m);
}

uint64_t sim_rank_memory(uint32_t ranks)
{
    uint64_t route = sizeof(uint8_t) + sizeof(bool) + sizeof(weft_status);
    uint64_t member = sizeof(uint32_t) + sizeof(wf_board_rank *);

    return (uint64_t)ranks * (sizeof(wf_peer) + route + member);
}

uint64_t sim_board_bytes(uint32_t ranks)
{
    return wf_board_size(ranks, 0);
}

void sim_control_run(sim *s, const char *how, uint32_t ranks, sim_result *out)
{
    sim_run(s);
    *out = (sim_result){.summary = sim_summarize(s->count, ranks),
                        .how = how,
                        .among = "all ranks",
                        .part = 1,
                        .happened = s->happened};
}
