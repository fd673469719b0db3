/* SPDX-License-Identifier: Apache-2.0 */
/* A layer that is put into a slot has its memory with worlds and communicators,
 * and its active messages, beside the layers of the library. */
#include <string.h>

#include "comm/comm.h"
#include "comm/serve.h"
#include "weft.h"
#include "wt.h"
#include "wt_cmocka.h"

enum {
    SLOT = WF_LAYERS - 1,
    HELLO = WF_LAYER_MESSAGE(SLOT, 1),
    ATTACHED = 0, /* words */
    DETACHED = 1,
    GREETED = 2
};

/* With a world, and with a communicator. */
typedef struct in_world {
    uint32_t zero;
    uint32_t from;
} in_world;

static size_t layer_area(const weft_comm *comm)
{
    return comm->size * sizeof(uint32_t);
}

static weft_status layer_attach(weft_comm *comm, void *area, void **state)
{
    uint32_t *number = area;

    if (number != NULL) {
        WT_CHECK(number[comm->rank] == 0);
        number[comm->rank] = comm->rank + 1;
    }
    *state = number != NULL ? (void *)number : (void *)comm;
    wt_word_add(ATTACHED, 1);
    return WEFT_OK;
}

static void layer_detach(weft_comm *comm, void *state)
{
    WT_CHECK(state == comm->layer[SLOT]);
    wt_word_add(DETACHED, 1);
}

static void on_hello(void *ctx, uint32_t from, const void *header,
                     size_t header_bytes, const void *payload, size_t n)
{
    weft_world *world = ctx;
    in_world *own = world->layer[SLOT];

    (void)header;
    (void)header_bytes;
    (void)payload;
    (void)n;
    own->from = from + 1;
    wt_word_add(GREETED, 1);
}

static const wf_layer layer = {
    .name = "test",
    .world_bytes = sizeof(in_world),
    .handler = {[HELLO % WF_LAYER_MESSAGES] = on_hello},
    .area = layer_area,
    .attach = layer_attach,
    .detach = layer_detach,
};

static void run(const char *settings, wt_body *body)
{
    static wf_parts parts;

    parts = wf_weft_parts;
    parts.layers[SLOT].layer = &layer;
    wt_parts = &parts;
    wt_run_both(3, settings, body);
    wt_parts = NULL;
}

static void comm_body(weft_world *world)
{
    weft_comm *comm = NULL;
    int64_t one = 1;

    WT_OK(weft_comm_dup(weft_world_comm(world), &comm));
    for (uint32_t r = 0; r < 3; r++) {
        WT_CHECK(((uint32_t *)comm->layer[SLOT])[r] == r + 1);
    }
    WT_OK(weft_allreduce(comm, &one, &one, 1, WEFT_I64, WEFT_SUM));
    WT_CHECK(one == 3);
    wt_meet();
    weft_comm_destroy(comm);
    wt_meet();
    WT_CHECK(atomic_load(wt_word(ATTACHED)) == 6);
    WT_CHECK(atomic_load(wt_word(DETACHED)) == 3);
    wt_meet();
}

static void a_layer_has_zeroed_memory_in_each_communicator(void **state)
{
    (void)state;
    run(NULL, comm_body);
}

static weft_status start_server(weft_world *world)
{
    weft_status st;

    pthread_mutex_lock(&world->drive);
    st = wf_serve(world);
    pthread_mutex_unlock(&world->drive);
    return st;
}

static void message_body(weft_world *world)
{
    in_world *own = world->layer[SLOT];

    WT_CHECK(own->zero == 0 && own->from == 0);
    WT_OK(start_server(world));
    wt_meet();
    if (wt_rank() == 1) {
        const wf_route *to = wf_world_route(world, 0);

        pthread_mutex_lock(&world->drive);
        WT_OK(to->transport->am(to->port, 0, HELLO, NULL, 0, NULL, 0));
        pthread_mutex_unlock(&world->drive);
    }
    wt_word_await(GREETED, 1);
    pthread_mutex_lock(&world->drive);
    WT_CHECK(own->from == (wt_rank() == 0 ? 2u : 0u));
    pthread_mutex_unlock(&world->drive);
    wt_meet();
}

static void a_layer_gets_its_active_messages_with_its_world(void **state)
{
    (void)state;
    run(NULL, message_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_layer_has_zeroed_memory_in_each_communicator),
        cmocka_unit_test(a_layer_gets_its_active_messages_with_its_world),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
