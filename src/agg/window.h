/* SPDX-License-Identifier: Apache-2.0 */
/* The rank's side of a pool of slots: which chunk to send when. A pure module:
 * no I/O, no clock (times are passed in, in nanoseconds), no allocation.
 *
 * A window belongs to one pool of one switch and lives for an epoch. Calls
 * follow each other in it; their chunks are numbered on. The rules:
 *
 *   1. Chunk c is sent only when the result of c - slots has come, see slot.h.
 *      At most `slots` chunks are under way, and at most the congestion window.
 *   2. A chunk is over when its result has come for the first time; that is
 *      when it is written. Any later result of it is a duplicate.
 *   3. When neither a new result has come nor the chunk was sent for the length
 *      of the timeout, it is sent again. The timeout follows the measured round
 *      trips: mean + 4 deviations, between bounds. It doubles each time it
 *      expires, until there is a new result. Round trips are measured on chunks
 *      that were sent once, and on answers WAIT. Where there was no result
 * since the call began or the timeout expired last, only the first chunk is
 * sent again: most often another rank is late, and one question is enough.
 *      A timeout that sent several chunks again was wrong if one of them turns
 *      out to be held, or has a second result: then a process waited for a core
 *      and nothing was lost, and the lower bound of the timeout doubles, up to
 *      WF_AGG_WINDOW_CALM times. It comes down again slowly, with each round
 *      of results.
 *   4. A gap: when the results of WF_AGG_WINDOW_GAP chunks have come that were
 * sent after chunk c was last sent, c is sent again at once, without waiting
 *      for the timeout.
 *   5. WAIT says that the switch has the chunk and another rank is late. So the
 *      timeout said nothing about the network, and what rule 6 made of it is
 *      undone.
 *   6. Congestion: chunks that are sent again are counted over a round of one
 *      window of results. If they are more than one in eight, the congestion
 *      window is halved, else it grows by a quarter and one. A timeout of a
 *      chunk that is not held halves it at once. So random loss of a few per
 *      cent, which is not congestion, costs little.
 *   7. When no packet has come for the patience, though the timeout has expired
 *      WF_AGG_WINDOW_ASKS times, the window has given up: the switch is dead or
 *      out of reach. It stays so. A rank that waited for a core itself has not
 *      asked so often.
 *
 * Of the last chunks of a call no gap can tell, so that its end depends on the
 * timeout: the lower bound must not be much above a round trip. */
#ifndef WF_AGG_WINDOW_H
#define WF_AGG_WINDOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WF_AGG_WINDOW_GAP 3u
#define WF_AGG_WINDOW_CALM 16u
#define WF_AGG_WINDOW_ASKS 5u

/* Bounds of the timeout, as ranks have them. */
#define WF_AGG_WINDOW_LEAST_NS 500000u
#define WF_AGG_WINDOW_MOST_NS 50000000u

typedef struct wf_agg_window_config {
    uint32_t slots; /* of the pool: 1 to WF_AGG_SLOTS */
    uint32_t limit; /* chunks under way at most: 1 to slots */
    /* Bounds of the timeout. The patience must be several times the upper one,
     * or 0, which is without end. */
    uint64_t least_ns;
    uint64_t most_ns;
    uint64_t patience_ns;
} wf_agg_window_config;

/* A chunk that is under way, in the entry of its slot. */
typedef struct wf_agg_window_chunk {
    uint64_t sent_ns; /* last */
    uint64_t order;   /* the number of the packet in which it was sent last */
    uint32_t later;   /* results of chunks that were sent after it */
    uint8_t sends;    /* 0: the slot is free; counts up to 255 */
    bool held;        /* the switch has said that it has it */
    bool again;       /* it is to be sent again now */
} wf_agg_window_chunk;

typedef struct wf_agg_window {
    wf_agg_window_config config;
    wf_agg_window_chunk *entry; /* by slot; the caller's memory */
    uint64_t begin;             /* the first chunk of the call */
    uint64_t end;               /* one past its last */
    uint64_t next;              /* the next one that was never sent */
    uint64_t first;             /* all chunks before it are over */
    uint64_t stop;     /* none from here on is sent yet; the caller's to move */
    uint64_t packets;  /* sent in this epoch */
    uint64_t heard_ns; /* when something came last, or the call began */
    uint64_t progress_ns; /* when a new result came last */
    uint64_t check_ns;    /* no timeout expires before */
    uint64_t mean_ns;     /* of round trips; 0: none was measured */
    uint64_t deviation_ns;
    uint64_t
        floor_ns; /* lower bound of the timeout, at least config.least_ns */
    uint32_t under_way;
    uint32_t overdue; /* of these, to be sent again now */
    uint32_t backoff; /* the timeout is doubled so often */
    uint32_t cwnd;    /* congestion window, in chunks */
    uint32_t undo;    /* what it was before a timeout halved it; 0: none did */
    uint32_t round;   /* results in this round, */
    uint32_t lost;    /* and chunks that were sent again in it */
    bool quiet;       /* no result since the call began, or since a timeout */
    bool doubtful;    /* a timeout sent several again; was it wrong? */
    bool given_up;
    /* Statistics. */
    uint64_t resent;
    uint64_t timeouts;
    uint64_t wrong; /* of these, as far as is known */
} wf_agg_window;

typedef enum wf_agg_window_event {
    WF_AGG_WINDOW_NEW,    /* write this result */
    WF_AGG_WINDOW_OLD,    /* it has come before */
    WF_AGG_WINDOW_STRANGE /* of a chunk that was never sent */
} wf_agg_window_event;

/* `entries` is room for config->slots of them. */
void wf_agg_window_init(wf_agg_window *w, const wf_agg_window_config *config,
                        wf_agg_window_chunk *entries);

/* Begin a call of `chunks` chunks; the one before must be over. The first one
 * has the number w->begin. Nothing stops it, see w->stop. */
void wf_agg_window_call(wf_agg_window *w, uint64_t chunks, uint64_t now);

/* Which chunk to send now, and mark it as sent: true, or there is none. A chunk
 * that was sent before goes first; *again tells. */
bool wf_agg_window_send(wf_agg_window *w, uint64_t now, uint64_t *chunk,
                        bool *again);

/* The result of a chunk has come, or a word that it is held. */
wf_agg_window_event wf_agg_window_result(wf_agg_window *w, uint64_t chunk,
                                         uint64_t now);
void wf_agg_window_held(wf_agg_window *w, uint64_t chunk, uint64_t now);

/* When wf_agg_window_send may have something again though nothing comes, or the
 * window gives up; UINT64_MAX: never. */
uint64_t wf_agg_window_due(const wf_agg_window *w);

/* Has it given up? Asked with the time, since that is what makes it so. */
bool wf_agg_window_gives_up(wf_agg_window *w, uint64_t now);

static inline bool wf_agg_window_is_over(const wf_agg_window *w)
{
    return w->first == w->end;
}

/* The timeout as it is now. */
uint64_t wf_agg_window_timeout(const wf_agg_window *w);

#endif
