/* SPDX-License-Identifier: Apache-2.0 */
/* Arena, regions and stores of a shelf as JSON. */
#include <weft/region.h>
#include <weft/types.h>

#include "comm/view.h"

typedef unsigned long long number;

static number load(const _Atomic uint64_t *at)
{
    return atomic_load_explicit(at, memory_order_relaxed);
}

/* Of bytes that are no printable ASCII, or JSON would take for its own, a
 * question mark is left: terminals do things for some of them. */
void wf_view_string(wf_text *t, const char *text, size_t room)
{
    char safe[256];
    size_t n = 0;

    while (n < room && n < sizeof(safe) - 1 && text[n] != '\0') {
        unsigned char c = (unsigned char)text[n];

        safe[n++] =
            c < 0x20 || c > 0x7e || c == '"' || c == '\\' ? '?' : (char)c;
    }
    safe[n] = '\0';
    wf_text_add(t, "\"%s\"", safe);
}

static const char *type_name(uint32_t type)
{
    const char *name = weft_dtype_name((weft_dtype)type);

    return name != NULL ? name : "?";
}

/* --- regions ---------------------------------------------------------------
 */

static const char *kind_name(uint32_t place, uint32_t reach)
{
    if (place == WEFT_CUDA) {
        return "cuda";
    }
    return reach == WEFT_REACH_MAPPED        ? "mapped"
           : reach == WEFT_REACH_DISTRIBUTED ? "distributed"
           : reach == WEFT_REACH_HIERARCHY   ? "hierarchy"
                                             : "?";
}

static void add_region(const wf_shown_region *r, uint64_t id, wf_text *t)
{
    uint32_t dims = __atomic_load_n(&r->dims, __ATOMIC_RELAXED);

    wf_text_add(t, "{\"id\":\"%016llx\",\"kind\":\"%s\",\"type\":\"%s\"",
                (number)id - 1, kind_name(r->place, r->reach),
                type_name(r->type));
    wf_text_add(t, ",\"shape\":[");
    for (uint32_t d = 0; d < dims && d < WF_SHELF_DIMS; d++) {
        wf_text_add(t, "%s%llu", d > 0 ? "," : "", load(&r->shape[d]));
    }
    wf_text_add(t,
                "],\"ranks\":%u,\"bytes\":%llu,\"own_bytes\":%llu"
                ",\"gathers\":%llu,\"scatters\":%llu,\"rows_own\":%llu"
                ",\"rows_node\":%llu,\"rows_remote\":%llu"
                ",\"bytes_remote\":%llu}",
                r->ranks, load(&r->bytes), load(&r->own_bytes),
                load(&r->count.gathers), load(&r->count.scatters),
                load(&r->count.rows_own), load(&r->count.rows_node),
                load(&r->count.rows_remote), load(&r->count.bytes_remote));
}

/* --- stores ----------------------------------------------------------------
 */

static void add_hot(const wf_hot_keys *hot, wf_text *t)
{
    const char *before = "";

    wf_text_add(t, ",\"samples\":%llu,\"hot\":[", load(&hot->samples));
    for (uint32_t i = 0; i < WF_SHELF_HOT; i++) {
        const wf_hot_key *k = &hot->key[i];
        /* A key between two looks at one counter is the counter's: see
         * wf_hot_meet. */
        uint64_t count = atomic_load_explicit(&k->count, memory_order_acquire);
        int64_t key = atomic_load_explicit(&k->key, memory_order_relaxed);

        atomic_thread_fence(memory_order_acquire);
        if (count != 0 && load(&k->count) >= count) {
            wf_text_add(t, "%s[%lld,%llu]", before, (long long)key,
                        (number)count);
            before = ",";
        }
    }
    wf_text_add(t, "]");
}

static void add_store(const wf_shown_store *s, uint64_t id, wf_text *t)
{
    wf_worker_counts keys = wf_shelf_keys(s);

    wf_text_add(t,
                "{\"id\":%llu,\"keys\":%llu,\"length\":%llu,\"type\":\"%s\""
                ",\"hosts\":%u,\"host\":%u,\"owned\":%llu,\"copies\":%llu"
                ",\"pulls\":%llu,\"pushes\":%llu,\"unseen_workers\":%u",
                (number)id - 1, load(&s->keys), (number)s->length,
                type_name(s->type), s->hosts, s->host, load(&s->owned),
                load(&s->copies), (number)keys.pulls, (number)keys.pushes,
                atomic_load(&s->unseen));
    wf_text_add(t,
                ",\"away_pulls\":%llu,\"away_pushes\":%llu"
                ",\"copy_pulls\":%llu,\"copy_pushes\":%llu,\"messages\":%llu"
                ",\"bytes\":%llu,\"rounds\":%llu,\"stale_s\":%.6f",
                load(&s->count.away_pulls), load(&s->count.away_pushes),
                load(&s->count.copy_pulls), load(&s->count.copy_pushes),
                load(&s->count.messages), load(&s->count.bytes),
                load(&s->count.rounds), (double)load(&s->count.stale_ns) / 1e9);
    add_hot(&s->hot, t);
    wf_text_add(t, "}");
}

static void add_arena(const wf_shown_arena *a, wf_text *t)
{
    if (a == NULL || load(&a->room) == 0) {
        wf_text_add(t, ",\"arena\":null");
        return;
    }
    wf_text_add(t,
                ",\"arena\":{\"room\":%llu,\"in_use\":%llu,\"kept\":%llu"
                ",\"blocks\":%llu}",
                load(&a->room), load(&a->in_use), load(&a->kept),
                load(&a->blocks));
}

void wf_view_things(const wf_shelf *shelf, wf_text *t)
{
    const char *before = "";

    add_arena(shelf != NULL ? &shelf->arena : NULL, t);
    wf_text_add(t, ",\"regions\":[");
    for (uint32_t i = 0; shelf != NULL && i < WF_SHELF_REGIONS; i++) {
        const wf_shown_region *r = &shelf->region[i];
        /* Pairs with wf_shelf_show. */
        uint64_t id = atomic_load_explicit(&r->id, memory_order_acquire);

        if (id != 0) {
            wf_text_add(t, "%s", before);
            add_region(r, id, t);
            before = ",";
        }
    }
    wf_text_add(t, "],\"stores\":[");
    before = "";
    for (uint32_t i = 0; shelf != NULL && i < WF_SHELF_STORES; i++) {
        const wf_shown_store *s = &shelf->store[i];
        uint64_t id = atomic_load_explicit(&s->id, memory_order_acquire);

        if (id != 0) {
            wf_text_add(t, "%s", before);
            add_store(s, id, t);
            before = ",";
        }
    }
    wf_text_add(t, "]");
}
