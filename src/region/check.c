/* SPDX-License-Identifier: Apache-2.0 */
/* The arguments of a region: sound by themselves, and equal on all ranks. */
#include <stdio.h>
#include <string.h>

#include "base/secret.h"
#include "region/region.h"

/* --- sound ---------------------------------------------------------------- */

static weft_status unsound(const char *what)
{
    return wf_fail(WEFT_ERR_INVALID, "a region: %s", what);
}

static weft_status too_big(void)
{
    return wf_fail(WEFT_ERR_NOMEM,
                   "a region: the shape exceeds the address space");
}

/* `*bytes` times `n`, if that is no more than a region may have. */
static bool multiply(uint64_t *bytes, uint64_t n)
{
    return !__builtin_mul_overflow(*bytes, n, bytes) &&
           *bytes <= WF_REGION_BYTES_MAX;
}

static weft_status check_shape(const wf_region_plan *plan, weft_region *region)
{
    uint64_t bytes = weft_dtype_size(plan->type);

    if (plan->dims < 1 || plan->dims > WEFT_REGION_DIMS_MAX ||
        plan->shape == NULL) {
        return wf_fail(WEFT_ERR_INVALID,
                       "a region: shape is NULL or has %u dimensions; 1 to %d "
                       "are supported",
                       plan->dims, WEFT_REGION_DIMS_MAX);
    }
    if (bytes == 0) {
        return wf_fail(WEFT_ERR_INVALID, "a region: unknown dtype %d",
                       (int)plan->type);
    }
    region->dims = plan->dims;
    region->type = plan->type;
    memcpy(region->shape, plan->shape, plan->dims * sizeof(*plan->shape));
    /* A dimension of 0 makes the others harmless. */
    for (uint32_t i = 1; i < plan->dims; i++) {
        if (plan->shape[i] == 0) {
            bytes = 0;
        }
    }
    for (uint32_t i = 1; i < plan->dims; i++) {
        if (!multiply(&bytes, plan->shape[i])) {
            return too_big();
        }
    }
    region->row_bytes = bytes;
    return WEFT_OK;
}

static weft_status check_pitch(const wf_region_plan *plan, weft_region *region)
{
    uint64_t pitch = plan->options.row_pitch;
    uint64_t rows = plan->shape[0];
    uint64_t bytes;

    region->max_rows =
        plan->options.max_rows > rows ? plan->options.max_rows : rows;
    if (pitch != 0 && (pitch < region->row_bytes ||
                       pitch % weft_dtype_size(plan->type) != 0)) {
        return wf_fail(WEFT_ERR_INVALID,
                       "a region: row_pitch is %llu; it must be at least the "
                       "%llu bytes of a row and a multiple of the size of %s",
                       (unsigned long long)pitch,
                       (unsigned long long)region->row_bytes,
                       weft_dtype_name(plan->type));
    }
    pitch = pitch != 0 ? pitch : region->row_bytes;
    bytes = pitch;
    if (!multiply(&bytes, region->max_rows)) {
        return too_big();
    }
    region->part.pitch = pitch;
    return WEFT_OK;
}

static weft_status check_given(const wf_region_plan *plan, uint32_t ranks)
{
    const uint64_t *given = plan->options.part_rows;
    uint64_t sum = 0;

    if (plan->options.partition != WEFT_PARTITION_GIVEN) {
        return WEFT_OK;
    }
    if (given == NULL) {
        return unsound("part_rows is NULL, but the partition is GIVEN");
    }
    for (uint32_t r = 0; r < ranks; r++) {
        if (__builtin_add_overflow(sum, given[r], &sum)) {
            return unsound("the sum of part_rows is too large");
        }
    }
    return sum == plan->shape[0]
               ? WEFT_OK
               : wf_fail(WEFT_ERR_INVALID,
                         "a region: part_rows has %llu rows in total, but the "
                         "shape has %llu",
                         (unsigned long long)sum,
                         (unsigned long long)plan->shape[0]);
}

static weft_status check_options(const weft_region_options *o)
{
    if ((unsigned)o->place > WEFT_CUDA) {
        return unsound("place is out of range");
    }
    if ((unsigned)o->partition > WEFT_PARTITION_ROUND_ROBIN) {
        return unsound("partition is out of range");
    }
    if ((unsigned)o->reach > WEFT_REACH_HIERARCHY) {
        return unsound("reach is out of range");
    }
    if ((unsigned)o->pages > WEFT_PAGES_HUGE) {
        return unsound("pages is out of range");
    }
    if (o->run > UINT32_MAX) {
        return unsound("run must be less than 2^32");
    }
    return o->numa < 0 ? unsound("numa is negative") : WEFT_OK;
}

/* "a region of 10 x 4 f32" */
static void describe(weft_region *region)
{
    size_t n =
        (size_t)snprintf(region->what, sizeof(region->what), "a region of ");

    for (uint32_t i = 0; i < region->dims && n < sizeof(region->what) - 32;
         i++) {
        n += (size_t)snprintf(region->what + n, sizeof(region->what) - n,
                              "%s%llu", i > 0 ? " x " : "",
                              (unsigned long long)region->shape[i]);
    }
    snprintf(region->what + n, sizeof(region->what) - n, " %s",
             weft_dtype_name(region->type));
}

weft_status wf_region_check(const wf_region_plan *plan, weft_region *region)
{
    weft_status st = check_options(&plan->options);

    if (st == WEFT_OK) {
        st = check_shape(plan, region);
    }
    if (st == WEFT_OK) {
        st = check_pitch(plan, region);
    }
    if (st == WEFT_OK) {
        st = check_given(plan, region->ranks);
    }
    if (st == WEFT_OK) {
        describe(region);
    }
    return st;
}

/* --- equal ---------------------------------------------------------------- */

static const char *const names[WF_REGION_FACTS] = {
    "dims",      "type",         "shape[0]",  "shape[1]", "shape[2]",
    "shape[3]",  "shape[4]",     "shape[5]",  "shape[6]", "shape[7]",
    "partition", "run",          "row_pitch", "max_rows", "pages",
    "place",     "reach",        "aligned",   "storage",  "read_only",
    "part_rows", "element type",
};

/* Not a secret: equal rows give equal numbers, others hardly ever. */
static uint64_t hash_of(const void *data, size_t n)
{
    wf_secret key = {{n, 0}};

    return wf_keyed_hash(&key, data, n);
}

void wf_region_facts_of(const wf_region_plan *plan, const weft_region *region,
                        wf_region_facts *out)
{
    const weft_region_options *o = &plan->options;
    const uint64_t *s = region->shape;
    bool given = o->partition == WEFT_PARTITION_GIVEN;
    wf_cgroups groups;

    *out = (wf_region_facts){
        .value = {region->dims,
                  (uint64_t)region->type,
                  s[0],
                  s[1],
                  s[2],
                  s[3],
                  s[4],
                  s[5],
                  s[6],
                  s[7],
                  (uint64_t)o->partition,
                  o->partition == WEFT_PARTITION_ROUND_ROBIN ? o->run : 0,
                  region->part.pitch,
                  region->max_rows,
                  (uint64_t)o->pages,
                  (uint64_t)o->place,
                  (uint64_t)o->reach,
                  o->aligned != 0,
                  hash_of(region->storage->name, strlen(region->storage->name)),
                  plan->read_only,
                  given ? hash_of(o->part_rows,
                                  region->ranks * sizeof(*o->part_rows))
                        : 0,
                  o->element},
        .granule = region->spec.granule};
    wf_cgroups_read("", 0, &groups);
    wf_cgroups_ids(&groups, &out->groups);
}

/* What most ranks say; of several, what the lowest rank says. */
static uint32_t usual(const wf_region_facts *all, uint32_t ranks, unsigned fact)
{
    uint32_t best = 0;
    uint32_t most = 0;

    for (uint32_t r = 0; r < ranks; r++) {
        uint32_t same = 0;

        for (uint32_t k = 0; k < ranks; k++) {
            same += all[k].value[fact] == all[r].value[fact];
        }
        if (same > most) {
            most = same;
            best = r;
        }
    }
    return best;
}

static void fact_text(unsigned fact, uint64_t value, char *text, size_t room)
{
    if (strcmp(names[fact], "type") == 0) {
        snprintf(text, room, "%s", weft_dtype_name((weft_dtype)value));
    } else {
        snprintf(text, room, "%llu", (unsigned long long)value);
    }
}

/* Is its value a number that says nothing to a reader? */
static bool is_a_stand_in(unsigned fact)
{
    return strcmp(names[fact], "part_rows") == 0 ||
           strcmp(names[fact], "storage") == 0 ||
           strcmp(names[fact], "element type") == 0;
}

static weft_status differs(const wf_region_facts *all, unsigned fact,
                           uint32_t odd, uint32_t usual_rank)
{
    char a[32];
    char b[32];

    if (is_a_stand_in(fact)) {
        return wf_fail(WEFT_ERR_MISMATCH,
                       "creation of a region: rank %u has a different %s than "
                       "rank %u",
                       odd, names[fact], usual_rank);
    }
    fact_text(fact, all[odd].value[fact], a, sizeof(a));
    fact_text(fact, all[usual_rank].value[fact], b, sizeof(b));
    return wf_fail(WEFT_ERR_MISMATCH,
                   "creation of a region: rank %u has %s = %s, rank %u has %s",
                   odd, names[fact], a, usual_rank, b);
}

weft_status wf_region_compare(const wf_region_facts *all, uint32_t ranks)
{
    for (unsigned f = 0; f < WF_REGION_FACTS; f++) {
        uint32_t u = 0;
        bool equal = true;

        for (uint32_t r = 1; r < ranks; r++) {
            equal = equal && all[r].value[f] == all[0].value[f];
        }
        u = equal ? 0 : usual(all, ranks, f);
        for (uint32_t r = 0; r < ranks && !equal; r++) {
            if (all[r].value[f] != all[u].value[f]) {
                return differs(all, f, r, u);
            }
        }
    }
    return WEFT_OK;
}
