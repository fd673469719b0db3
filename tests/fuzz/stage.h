/* SPDX-License-Identifier: Apache-2.0 */
/* What the fuzz targets of the upper layers stand on: one rank of a small job
 * whose other ranks exist on paper only. The board, the list of peers and the
 * world are made up here; messages go to a port that answers from a script,
 * which is part of the input. Nothing of it outlives one input. */
#ifndef WT_FUZZ_STAGE_H
#define WT_FUZZ_STAGE_H

#include "comm/comm.h"

enum { STAGE_RANKS = 3 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* What must hold, whatever the input was. */
void must(int holds);

/* The input, taken from its front; zeroes when it is over. */
typedef struct script {
    const uint8_t *at;
    size_t left;
} script;

uint8_t script_u8(script *s);
uint16_t script_u16(script *s);
/* Fill `to`; the bytes that were left for it. */
size_t script_bytes(script *s, void *to, size_t n);

typedef struct stage {
    weft_world world;
    wf_host host;
    wf_peer peers[STAGE_RANKS];
    uint32_t rank_of[STAGE_RANKS];
    int link[STAGE_RANKS];
    wf_route route;
    uint8_t to[STAGE_RANKS];
    bool reported[STAGE_RANKS];
    weft_status lost[STAGE_RANKS];
    wf_board *board;
} stage;

/* A world of `ranks` ranks, this one being `rank`. All are on one node, unless
 * `apart`: then each has its own. `input` is what the port answers from; it may
 * be NULL. */
void stage_init(stage *s, uint32_t ranks, uint32_t rank, bool apart,
                script *input);
void stage_fini(stage *s);

/* Receives on the port take what this rank sends itself (as if all others did
 * the same), or whatever the script has for them. */
extern const wf_transport stage_transport;

#endif
