/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of one worker on one key are done in program order: one that names
 * a key which an earlier one has not got an answer for waits for that. And
 * waiting for rounds. */
#include <inttypes.h>
#include <time.h>

#include "base/alloc.h"
#include "base/time.h"
#include "region/rows/rows.h"
#include "store/hosts/hosts.h"
#include "store/keymap.h"

/* --- program order -------------------------------------------------------- */

/* So many pairs of keys are compared one by one. */
#define FEW_PAIRS 4096u
/* Bits of a filter for each key of a call: of other keys one in so many has to
 * be looked for. */
#define FILTER_BITS 64u

/* The keys of a call. If there are many, a bit for the hash of each, and, for
 * keys whose bit is set, `map`. */
typedef struct call_keys {
    const weft_ids *ids;
    uint64_t *filter;
    unsigned shift; /* of a hash to the number of a bit */
    wf_keymap map;
    bool mapped;
} call_keys;

static inline uint64_t filter_bit(const call_keys *keys, uint64_t key)
{
    return key * 0x9e3779b97f4a7c15ull >> keys->shift;
}

static void named_filter(call_keys *keys)
{
    uint64_t words = 1;
    unsigned shift = 64 - 6;

    while (words * 64 < keys->ids->n * FILTER_BITS) {
        words *= 2;
        shift--;
    }
    keys->shift = shift;
    keys->filter = wf_zalloc(words * sizeof(*keys->filter));
    for (uint64_t i = 0; keys->filter != NULL && i < keys->ids->n; i++) {
        uint64_t bit = filter_bit(keys, (uint64_t)wf_id_at(keys->ids, i));

        keys->filter[bit / 64] |= 1ull << bit % 64;
    }
}

static void named_map(call_keys *keys)
{
    if (!keys->mapped && wf_keymap_init(&keys->map, keys->ids->n) == WEFT_OK) {
        for (uint64_t i = 0; i < keys->ids->n; i++) {
            wf_keymap_add(&keys->map, wf_id_at(keys->ids, i), 0);
        }
        keys->mapped = true;
    }
}

static bool named_find(call_keys *keys, uint64_t key)
{
    if (keys->filter != NULL) {
        named_map(keys);
    }
    if (keys->mapped) {
        return wf_keymap_find(&keys->map, (int64_t)key) != NULL;
    }
    for (uint64_t i = 0; i < keys->ids->n; i++) {
        if ((uint64_t)wf_id_at(keys->ids, i) == key) {
            return true;
        }
    }
    return false;
}

static inline bool named_has(call_keys *keys, uint64_t key)
{
    if (keys->filter != NULL) {
        uint64_t bit = filter_bit(keys, key);

        if ((keys->filter[bit / 64] >> bit % 64 & 1) == 0) {
            return false;
        }
    }
    return named_find(keys, key);
}

static bool conflicts(const wf_remote *r, call_keys *keys)
{
    if (r->left * keys->ids->n > FEW_PAIRS && keys->filter == NULL) {
        named_filter(keys);
    }
    for (uint64_t i = 0; i < r->n; i++) {
        if (!r->answered[i] && named_has(keys, r->key[i])) {
            return true;
        }
    }
    return false;
}

/* An earlier operation of the worker that names one of these keys, retained. */
static weft_request *find_conflict(weft_worker *worker, call_keys *keys)
{
    wf_store_hosts *h = worker->store->remote;
    weft_request *found = NULL;

    pthread_mutex_lock(&h->world->drive);
    for (wf_remote *r = worker->remotes; r != NULL && found == NULL;
         r = r->next) {
        if (conflicts(r, keys)) {
            found = r->request;
            atomic_fetch_add(&found->users, 1);
        }
    }
    pthread_mutex_unlock(&h->world->drive);
    return found;
}

weft_status wf_remote_wait_conflicts(weft_worker *worker, const weft_ids *keys)
{
    call_keys named = {.ids = keys};
    weft_request *earlier;

    while (atomic_load(&worker->under_way) > 0 &&
           (earlier = find_conflict(worker, &named)) != NULL) {
        /* Its own failure is told to whoever waits for it. */
        (void)wf_remote_wait(worker->store, earlier);
        weft_request_release(earlier);
    }
    if (named.mapped) {
        wf_keymap_fini(&named.map);
    }
    wf_free(named.filter);
    return WEFT_OK;
}

/* --- intents and rounds --------------------------------------------------- */

weft_status wf_remote_intent(weft_worker *worker, const weft_ids *keys,
                             int64_t start, int64_t end)
{
    wf_store_hosts *h = worker->store->remote;
    weft_status st;

    pthread_mutex_lock(&h->world->drive);
    wf_hosts_look(h);
    st = wf_intent_tell(h, wf_worker_index(worker), start, end, keys);
    pthread_mutex_unlock(&h->world->drive);
    return st;
}

/* What was lost since the worker was last told, or before it was made and no
 * other one was. */
static weft_status tell_lost(weft_worker *worker)
{
    wf_store_hosts *h = worker->store->remote;
    uint64_t lost = atomic_load(&h->book.head->lost);
    uint64_t since = lost - worker->lost_seen;
    uint64_t told = atomic_load(&worker->store->lost_told);
    char who[160];

    worker->lost_seen = lost;
    while (told < lost && !atomic_compare_exchange_weak(
                              &worker->store->lost_told, &told, lost)) {
    }
    if (since == 0) {
        return WEFT_OK;
    }
    wf_hosts_name(h, atomic_load(&h->book.head->lost_with) - 1, who,
                  sizeof(who));
    return wf_fail(WEFT_ERR_PEER,
                   "differences of %" PRIu64 " keys may be lost: %s", since,
                   who);
}

/* Ask for a round that goes through all keys and begins after this; it is over
 * when as many are as are returned. The next one may have looked for wishes
 * before; and while this rank does not run others may go by without having seen
 * ours, so that it is wished for again. */
static uint64_t wish_for_round(wf_book_head *head)
{
    uint64_t wanted = atomic_load(&head->wanted);
    uint64_t target;

    do {
        target = atomic_load(&head->begun) + 2;
        while (wanted < target &&
               !atomic_compare_exchange_weak(&head->wanted, &wanted, target)) {
        }
    } while (atomic_load(&head->begun) + 2 > target);
    return target;
}

weft_status wf_remote_sync(weft_worker *worker)
{
    wf_store_hosts *h = worker->store->remote;
    wf_book_head *head = h->book.head;
    uint64_t target = wish_for_round(head);
    uint64_t deadline =
        wf_now_ns() + atomic_load(&worker->store->comm->timeout_ns);
    const struct timespec pause = {.tv_nsec = 50000};

    while (atomic_load(&head->over) < target) {
        pthread_mutex_lock(&h->world->drive);
        wf_hosts_look(h);
        wf_rounds_wake(h);
        pthread_mutex_unlock(&h->world->drive);
        wf_world_drive(h->world);
        nanosleep(&pause, NULL);
        if (wf_now_ns() > deadline) {
            return wf_fail(WEFT_ERR_TIMEOUT,
                           "wait_sync: two rounds of this host were not over "
                           "before the timeout of the store");
        }
    }
    return tell_lost(worker);
}
