/* SPDX-License-Identifier: Apache-2.0 */
/* Tags and senders of messages come from other processes. Whatever they are,
 * each message goes to the receive that was posted first among those that it
 * matches, and each receive gets the message that came first: the queues agree
 * with a plain list of all that was posted and all that came.
 *
 * The input is a row of steps, four bytes each: what to do, with which source,
 * tag and mask. */
#include <stdlib.h>
#include <string.h>

#include "stage.h"
#include "transport/match.h"

enum { SOURCES = 3, MOST = 64, STEP = 4 };
enum { POST, ARRIVE, CANCEL, PEEK, TAKE_OF, STEPS };

/* One that was posted or that came; it waits while `waits`. */
typedef struct entry {
    bool waits;
    uint32_t source;
    uint64_t tag;
    uint64_t mask;
    wf_msg msg;
    wf_arrival arrival;
} entry;

typedef struct model {
    wf_match match;
    entry posted[MOST];
    entry arrived[MOST];
    size_t posts;
    size_t arrivals;
} model;

static bool meets(const entry *receive, const entry *message)
{
    return (receive->source == WF_SOURCE_ANY ||
            receive->source == message->source) &&
           ((receive->tag ^ message->tag) & receive->mask) == 0;
}

/* The first message that such a receive would get, or NULL. */
static entry *first_message(model *m, const entry *receive)
{
    for (size_t i = 0; i < m->arrivals; i++) {
        if (m->arrived[i].waits && meets(receive, &m->arrived[i])) {
            return &m->arrived[i];
        }
    }
    return NULL;
}

static entry *first_receive(model *m, const entry *message)
{
    for (size_t i = 0; i < m->posts; i++) {
        if (m->posted[i].waits && meets(&m->posted[i], message)) {
            return &m->posted[i];
        }
    }
    return NULL;
}

/* As transports do: look for a message, else wait. */
static void post(model *m, const entry *like)
{
    entry *e = &m->posted[m->posts++];
    entry *expected = first_message(m, like);
    wf_arrival *found =
        wf_match_find(&m->match, like->source, like->tag, like->mask);

    *e = *like;
    wf_match_fill(&e->msg, e->source, e->tag, e->mask, NULL, 0);
    must(found == (expected != NULL ? &expected->arrival : NULL));
    if (found != NULL) {
        wf_match_drop(found);
        expected->waits = false;
        e->waits = false;
    } else {
        wf_match_post(&m->match, &e->msg);
    }
}

static void arrive(model *m, const entry *like)
{
    entry *e = &m->arrived[m->arrivals++];
    entry *expected = first_receive(m, like);
    wf_msg *found = wf_match_take_posted(&m->match, like->source, like->tag);

    *e = *like;
    must(found == (expected != NULL ? &expected->msg : NULL));
    if (found != NULL) {
        expected->waits = false;
        e->waits = false;
    } else {
        e->arrival = (wf_arrival){.tag = e->tag, .source = e->source};
        wf_match_keep(&m->match, &e->arrival);
    }
}

static void cancel(model *m, size_t which)
{
    entry *e = m->posts > 0 ? &m->posted[which % m->posts] : NULL;

    if (e != NULL) {
        must(wf_match_cancel(&m->match, &e->msg) == e->waits);
        e->waits = false;
    }
}

static void take_of(model *m, uint32_t source)
{
    wf_msg *found = wf_match_next_of(&m->match, source);
    entry *expected = NULL;

    for (size_t i = 0; i < m->posts && expected == NULL; i++) {
        if (m->posted[i].waits && m->posted[i].source == source) {
            expected = &m->posted[i];
        }
    }
    must(found == (expected != NULL ? &expected->msg : NULL));
    if (expected != NULL) {
        expected->waits = false;
    }
}

static void peek(model *m, const entry *like)
{
    entry *expected = first_message(m, like);

    must(wf_match_find(&m->match, like->source, like->tag, like->mask) ==
         (expected != NULL ? &expected->arrival : NULL));
}

static void step(model *m, const uint8_t *byte)
{
    static const uint64_t masks[] = {UINT64_MAX, 0, ~(uint64_t)UINT32_MAX, 1};
    entry like = {.waits = true,
                  .source = byte[1] % SOURCES,
                  .tag = (uint64_t)(byte[2] & 3) << 32 | byte[2] >> 2,
                  .mask = UINT64_MAX};

    if (byte[0] % STEPS != ARRIVE && byte[0] % STEPS != TAKE_OF) {
        like.source = byte[1] % (SOURCES + 1);
        like.source = like.source == SOURCES ? WF_SOURCE_ANY : like.source;
        like.mask = masks[byte[3] % 4];
    }
    switch (byte[0] % STEPS) {
    case POST:
        post(m, &like);
        break;
    case ARRIVE:
        arrive(m, &like);
        break;
    case CANCEL:
        cancel(m, byte[1]);
        break;
    case PEEK:
        peek(m, &like);
        break;
    default:
        take_of(m, like.source);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    model *m = calloc(1, sizeof(*m));

    must(m != NULL && wf_match_init(&m->match, SOURCES) == WEFT_OK);
    for (size_t i = 0; i < MOST && n - i * STEP >= STEP; i++) {
        step(m, data + i * STEP);
    }
    wf_match_fini(&m->match);
    free(m);
    return 0;
}
