/* SPDX-License-Identifier: Apache-2.0 */
/* Making the rows of a host: which lengths there are, where their slots lie,
 * and the regions for all that. */
#include <errno.h>

#include "base/alloc.h"
#include "base/num.h"
#include "base/status.h"
#include "base/time.h"
#include "store/robust.h"
#include "store/table.h"

#define LINE 64u
#define SLOTS_MAX (UINT32_MAX / 2)

/* --- classes -------------------------------------------------------------- */

/* The class of a length, or where it belongs among `n`. */
static uint32_t class_find(const wf_class *classes, uint32_t n, uint64_t length)
{
    uint32_t low = 0;

    while (low < n) {
        uint32_t middle = low + (n - low) / 2;

        if (classes[middle].length < length) {
            low = middle + 1;
        } else {
            n = middle;
        }
    }
    return low;
}

/* Count a key of this length. */
static weft_status class_count(wf_slots *slots, uint32_t *room, uint64_t length)
{
    uint32_t i = class_find(slots->classes, slots->count, length);

    if (i < slots->count && slots->classes[i].length == length) {
        slots->classes[i].keys++;
        return WEFT_OK;
    }
    if (slots->count == *room) {
        uint32_t more = *room == 0 ? 8 : *room * 2;
        wf_class *grown =
            wf_realloc(slots->classes, more * sizeof(slots->classes[0]));

        if (grown == NULL) {
            return wf_fail_nomem("%u lengths of rows", more);
        }
        slots->classes = grown;
        *room = more;
    }
    memmove(&slots->classes[i + 1], &slots->classes[i],
            (slots->count - i) * sizeof(slots->classes[0]));
    slots->classes[i] = (wf_class){.length = length, .keys = 1};
    slots->count++;
    return WEFT_OK;
}

static weft_status classes_find(wf_slots *slots, const wf_slots_options *o)
{
    uint32_t room = 0;
    weft_status st = WEFT_OK;

    if (o->lengths == NULL || o->keys == 0) {
        st = class_count(slots, &room, o->length);
        if (st == WEFT_OK) {
            slots->classes[0].keys = o->keys;
        }
        return st;
    }
    for (uint64_t key = 0; st == WEFT_OK && key < o->keys; key++) {
        st = class_count(slots, &room, (uint64_t)o->lengths[key]);
    }
    return st;
}

/* What a row of this class has, and where. */
static void class_lay(const wf_slots *slots, wf_class *class)
{
    class->bytes = class->length * slots->element;
    for (int i = 0; slots->optimizes && i < WEFT_UPDATE_STATES; i++) {
        const struct wf_state_need *need = &slots->stepper.optimizer->state[i];

        if (need->name != NULL) {
            class->state[i] = wf_round_up(class->bytes, sizeof(float));
            class->bytes = class->state[i] +
                           sizeof(float) * (need->narrow ? 1 : class->length);
        }
    }
    class->pitch = wf_round_up(WF_WORD_BYTES + class->bytes, WF_WORD_BYTES);
}

/* Slots for so many keys of a class. */
static uint64_t slots_for(const wf_slots *slots, const wf_class *class,
                          uint64_t keys)
{
    return slots->direct ? keys
                         : slots->room(slots->room_ctx, class->length, keys);
}

/* Slots that there may be of the only class: when a store becomes smaller rows
 * of other hosts may stay in all that it had, and when it becomes bigger again
 * keys that begin here need more. */
static uint64_t slots_most(const wf_slots *slots, uint64_t keys)
{
    uint64_t n = slots_for(slots, &slots->classes[0], keys);

    return slots->direct ? n : wf_least(2 * n, SLOTS_MAX);
}

/* Slots of each class, one class after the other. */
static weft_status classes_lay(wf_slots *slots)
{
    uint64_t total = 0;
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < slots->count; i++) {
        wf_class *class = &slots->classes[i];
        uint64_t n = slots_for(slots, class, class->keys);

        class_lay(slots, class);
        if (n > SLOTS_MAX - total) {
            return wf_fail(WEFT_ERR_INVALID,
                           "a host holds at most %u rows, and these would be "
                           "%llu of length %llu alone",
                           SLOTS_MAX, (unsigned long long)n,
                           (unsigned long long)class->length);
        }
        class->first = (uint32_t)total;
        class->slots = class->usable = (uint32_t)n;
        class->begin = bytes;
        total += n;
        bytes += n * class->pitch;
    }
    slots->slots = (uint32_t)total;
    return WEFT_OK;
}

/* --- parts ---------------------------------------------------------------- */

static uint64_t bytes_most(const wf_slots *slots)
{
    uint64_t most = 0;

    for (uint32_t i = 0; i < slots->count; i++) {
        most = slots->classes[i].bytes > most ? slots->classes[i].bytes : most;
    }
    return most;
}

/* Rows of a part that has slots for `keys` keys, of one length each. */
static uint64_t part_rows(const wf_slots *slots, int part, uint64_t keys,
                          uint64_t n)
{
    switch (part) {
    case WF_PART_SHARED:
        return 1;
    case WF_PART_UNDO:
        return (uint64_t)slots->ranks * WF_WRITERS;
    case WF_PART_DIRECTORY:
    case WF_PART_CLASSES:
        return keys;
    case WF_PART_BITS:
        return (n + 63) / 64;
    case WF_PART_ABOVE:
        return (n + 64 * 64 - 1) / (64 * 64);
    default: /* WF_PART_ROWS */
        return n;
    }
}

static uint64_t part_pitch(const wf_slots *slots, int part)
{
    switch (part) {
    case WF_PART_ROWS:
        return slots->classes[0].pitch;
    case WF_PART_SHARED:
        return wf_shared_bytes(slots);
    case WF_PART_UNDO:
        return slots->undo_pitch;
    case WF_PART_BITS:
    case WF_PART_ABOVE:
        return sizeof(wf_bits);
    default:
        return sizeof(uint32_t);
    }
}

/* Rows of bytes for each part. `max`: what resizing may reach. */
static void part_shape(const wf_slots *slots, int part, uint64_t shape[2],
                       uint64_t *max)
{
    const wf_class *last = &slots->classes[slots->count - 1];

    shape[0] = part_rows(slots, part, slots->keys, slots->slots);
    shape[1] = part_pitch(slots, part);
    *max = 0;
    if (slots->count > 1 && part == WF_PART_ROWS) {
        shape[0] = (last->begin + last->slots * last->pitch) / WF_WORD_BYTES;
        shape[1] = WF_WORD_BYTES;
    } else if (slots->count == 1) {
        *max = part_rows(slots, part, slots->max_keys,
                         slots_most(slots, slots->max_keys));
    }
}

static bool part_needed(const wf_slots *slots, int part)
{
    return part < WF_PART_DIRECTORY ||
           (!slots->direct && (part != WF_PART_CLASSES || slots->count > 1));
}

static weft_status part_make(wf_slots *slots, weft_comm *host, int part,
                             weft_status bad)
{
    uint64_t shape[2] = {0, 0};
    wf_region_plan plan = {
        .dims = 2, .shape = shape, .type = WEFT_U8, .inside = true};

    if (bad == WEFT_OK) {
        part_shape(slots, part, shape, &plan.options.max_rows);
    }
    plan.options.reach = WEFT_REACH_MAPPED;
    return wf_region_form(host, &plan, bad, &slots->part[part]);
}

/* Every failure of one rank alone has to have happened before the first part,
 * whose making tells it to all. */
static weft_status parts_make(wf_slots *slots, weft_comm *host, weft_status st)
{
    st = part_make(slots, host, WF_PART_ROWS, st);
    for (int part = WF_PART_ROWS + 1; st == WEFT_OK && part < WF_PARTS;
         part++) {
        if (part_needed(slots, part)) {
            st = part_make(slots, host, part, WEFT_OK);
        }
    }
    return st;
}

static void *part_base(const wf_slots *slots, int part)
{
    return slots->part[part] == NULL ? NULL
                                     : weft_region_base(slots->part[part]);
}

static void class_find_rows(const wf_slots *slots, wf_class *class, char *rows)
{
    size_t bytes = class->length * slots->element;
    unsigned size = wf_row_class(bytes);

    class->base = rows + class->begin;
    class->pick = (wf_pick){
        .table = class->base,
        .pitch = class->pitch,
        .rows = class->slots,
        .bytes = bytes,
        .ahead = wf_rows_ahead(bytes + WF_WORD_BYTES),
        .asked = wf_rows_asked(bytes) + WF_WORD_BYTES,
    };
    class->read_i32 = slots->kernels->read_i32[size];
    class->read_i64 = slots->kernels->read_i64[size];
    class->read_one = slots->kernels->read_one[size];
}

static void parts_find(wf_slots *slots)
{
    char *rows = part_base(slots, WF_PART_ROWS);

    slots->world = slots->part[WF_PART_ROWS]->world;
    slots->member = slots->part[WF_PART_ROWS]->member;
    slots->shared = part_base(slots, WF_PART_SHARED);
    slots->undo = part_base(slots, WF_PART_UNDO);
    slots->directory = part_base(slots, WF_PART_DIRECTORY);
    slots->bits = part_base(slots, WF_PART_BITS);
    slots->above = part_base(slots, WF_PART_ABOVE);
    slots->class_of = part_base(slots, WF_PART_CLASSES);
    for (uint32_t i = 0; i < slots->count; i++) {
        class_find_rows(slots, &slots->classes[i], rows);
    }
}

/* Rows that were saved before are not put back. */
static void undo_clear(wf_slots *slots)
{
    for (uint32_t i = 0; i < WF_WRITERS; i++) {
        wf_undo *undo = wf_undo_of(slots, wf_writer_bits(slots, i));

        atomic_store(&undo->token, WF_UNDO_NONE);
    }
}

/* What the first rank writes for all. */
static weft_status parts_fill(wf_slots *slots, const wf_slots_options *o)
{
    uint32_t *class_of = part_base(slots, WF_PART_CLASSES);

    for (uint64_t key = 0; class_of != NULL && key < o->keys; key++) {
        class_of[key] =
            class_find(slots->classes, slots->count, (uint64_t)o->lengths[key]);
    }
    errno = wf_robust_init(&slots->shared->repair);
    return errno == 0 ? WEFT_OK : wf_fail_errno("lock for repairs of rows");
}

/* --- the whole ------------------------------------------------------------ */

static weft_status check(const wf_slots *slots, const wf_slots_options *o)
{
    if (slots->ranks > WF_WRITERS_ALL / WF_WRITERS) {
        return wf_fail(WEFT_ERR_INVALID,
                       "%u ranks on one host are more than the %u that can "
                       "write to rows of a store",
                       slots->ranks, WF_WRITERS_ALL / WF_WRITERS);
    }
    if (slots->max_keys > UINT32_MAX - 1) {
        return wf_fail(WEFT_ERR_INVALID,
                       "%llu keys are more than the %u that a store can have",
                       (unsigned long long)slots->max_keys, UINT32_MAX - 1);
    }
    if (o->direct && (o->lengths != NULL || slots->max_keys > SLOTS_MAX)) {
        return wf_fail(WEFT_ERR_INVALID,
                       "rows that differ in length, or more than %u, need a "
                       "directory",
                       SLOTS_MAX);
    }
    return WEFT_OK;
}

static weft_status prepare(wf_slots *slots, weft_comm *host,
                           const wf_slots_options *o)
{
    weft_status st;

    slots->rank = weft_comm_rank(host);
    slots->ranks = weft_comm_size(host);
    slots->type = o->type;
    slots->element = wf_dtype_bytes(o->type);
    slots->keys = o->keys;
    slots->max_keys = o->max_keys > o->keys ? o->max_keys : o->keys;
    slots->direct = o->direct;
    slots->room = o->room;
    slots->room_ctx = o->ctx;
    slots->timeout_ns = o->timeout > 0 ? (uint64_t)(o->timeout * 1e9)
                                       : atomic_load(&host->timeout_ns);
    slots->kernels = wf_row_kernels_of(wf_cpu_level_used());
    slots->sum = slots->kernels->sum[o->type];
    if (o->optimizer != NULL) {
        weft_update rule = *o->optimizer;

        slots->optimizes = true;
        rule.kind = rule.kind == WEFT_ADAM ? WEFT_LAZY_ADAM : rule.kind;
        wf_stepper_init(&slots->stepper, &rule, o->type);
    }
    st = check(slots, o);
    if (st == WEFT_OK) {
        st = classes_find(slots, o);
    }
    if (st == WEFT_OK) {
        st = classes_lay(slots);
    }
    if (st == WEFT_OK) {
        slots->undo_pitch =
            wf_round_up(sizeof(wf_undo) + bytes_most(slots), LINE);
    }
    return st;
}

weft_status wf_slots_create(weft_comm *host, const wf_slots_options *options,
                            wf_slots **out)
{
    wf_slots *slots = wf_zalloc(sizeof(*slots));
    wf_slots none = {0};
    weft_status st;

    if (slots == NULL) {
        return part_make(&none, host, WF_PART_ROWS,
                         wf_fail_nomem("the rows of a store"));
    }
    st = parts_make(slots, host, prepare(slots, host, options));
    if (st == WEFT_OK) {
        parts_find(slots);
        undo_clear(slots);
        st = slots->rank == 0 ? parts_fill(slots, options) : WEFT_OK;
        /* Nobody uses what the first rank has not filled in. */
        st = wf_region_verdict(slots->part[WF_PART_ROWS], NULL, st,
                               wf_now_ns() + slots->timeout_ns);
    }
    if (st != WEFT_OK) {
        wf_slots_destroy(slots);
        return st;
    }
    *out = slots;
    return WEFT_OK;
}

void wf_slots_destroy(wf_slots *slots)
{
    if (slots == NULL) {
        return;
    }
    for (int part = 0; part < WF_PARTS; part++) {
        weft_region_destroy(slots->part[part]);
    }
    wf_free(slots->classes);
    wf_free(slots);
}

weft_status wf_slots_here(const wf_slots *slots)
{
    if (!wf_slots_own(slots)) {
        return wf_fail(WEFT_ERR_CLOSED,
                       "this process was forked after the store was made: only "
                       "its parent can use it");
    }
    if (!wf_slots_live(slots)) {
        return wf_fail(WEFT_ERR_CLOSED,
                       "the world that the store belongs to was destroyed");
    }
    return WEFT_OK;
}

/* --- another number of keys ----------------------------------------------- */

/* Bigger parts do no harm if others cannot be had: nobody looks there. */
static weft_status parts_resize(wf_slots *slots, uint64_t keys, uint64_t n)
{
    static const int parts[] = {WF_PART_ROWS, WF_PART_DIRECTORY, WF_PART_BITS,
                                WF_PART_ABOVE};
    size_t n_parts = sizeof(parts) / sizeof(parts[0]);
    weft_status st = WEFT_OK;

    for (size_t i = 0; st == WEFT_OK && i < (slots->direct ? 1 : n_parts);
         i++) {
        st = weft_region_resize(slots->part[parts[i]],
                                part_rows(slots, parts[i], keys, n));
    }
    return st;
}

/* How many slots there are to be. */
static uint64_t slots_then(const wf_slots *slots, uint64_t usable,
                           uint64_t begin)
{
    uint64_t n = slots->classes[0].slots;
    uint64_t taken = slots->direct ? 0 : wf_slots_used(slots) + begin;

    if (slots->direct) {
        return usable;
    }
    n = usable > n ? usable : n;
    return taken > n ? taken : n;
}

weft_status wf_slots_resize(wf_slots *slots, uint64_t keys, uint64_t begin)
{
    wf_class *class = &slots->classes[0];
    uint64_t usable;
    uint64_t n;
    weft_status st;

    if (slots->count > 1 || keys > slots->max_keys) {
        return wf_fail(
            WEFT_ERR_INVALID,
            slots->count > 1 ? "rows that differ in length cannot be resized"
                             : "%llu keys are more than max_keys, %llu",
            (unsigned long long)keys, (unsigned long long)slots->max_keys);
    }
    usable = slots_for(slots, class, keys);
    n = slots_then(slots, usable, begin);
    st = parts_resize(slots, keys, n);
    if (st == WEFT_OK) {
        slots->keys = class->keys = keys;
        slots->slots = class->slots = (uint32_t)n;
        class->usable = (uint32_t)usable;
        class->pick.rows = n;
        undo_clear(slots);
    }
    return st;
}

uint64_t wf_slots_length(const wf_slots *slots, uint64_t key)
{
    return wf_class_of(slots, key)->length;
}

uint64_t wf_slots_bytes(const wf_slots *slots, uint64_t key)
{
    return wf_class_of(slots, key)->bytes;
}
