/* SPDX-License-Identifier: Apache-2.0 */
/* Who owns which rows and where they lie, against a model that deals one row
 * after the other. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "region/partition.h"
#include "wt.h"
#include "wt_cmocka.h"

enum { ROWS_MAX = 4096, RANKS_MAX = 16 };

/* What the model knows of a row. */
typedef struct place {
    uint32_t owner;
    uint64_t local; /* in the owner's storage */
} place;

/* Rows that were dealt, those that are cut off included. */
typedef struct model {
    place row[ROWS_MAX];
    uint64_t dealt;
    uint64_t rows;
    uint64_t begin[64]; /* of each stretch */
    unsigned stretches;
} model;

static uint64_t held_before(const model *m, uint32_t owner)
{
    uint64_t n = 0;

    for (uint64_t i = 0; i < m->dealt; i++) {
        n += m->row[i].owner == owner;
    }
    return n;
}

static void model_deal(model *m, const wf_partition *p, uint64_t rows,
                       const uint64_t *given)
{
    uint64_t have[RANKS_MAX];
    uint64_t share = (rows + p->ranks - 1) / p->ranks;
    uint32_t owner = 0;
    uint64_t of_owner = 0;

    if (rows == 0) {
        return;
    }
    for (uint32_t r = 0; r < p->ranks; r++) {
        have[r] = held_before(m, r);
    }
    m->begin[m->stretches++] = m->dealt;
    for (uint64_t i = 0; i < rows; i++) {
        if (p->kind == WEFT_PARTITION_ROUND_ROBIN) {
            owner = (uint32_t)(i / p->run % p->ranks);
        } else {
            while (of_owner == (given != NULL ? given[owner] : share)) {
                owner++;
                of_owner = 0;
            }
            of_owner++;
        }
        m->row[m->dealt++] = (place){owner, have[owner]++};
    }
    m->rows = m->dealt;
}

static void model_resize(model *m, const wf_partition *p, uint64_t rows)
{
    while (m->stretches > 0 && m->begin[m->stretches - 1] >= rows) {
        m->dealt = m->begin[--m->stretches];
    }
    if (rows > m->dealt) {
        model_deal(m, p, rows - m->dealt, NULL);
    }
    m->rows = rows;
}

static void check_rows(const model *m, const wf_partition *p)
{
    wf_row_span in_order = {0};
    wf_row_span jumping = {0};

    for (uint64_t i = 0; i < m->rows; i++) {
        uint64_t j = i * 7919 % m->rows;
        uint32_t owner = 99;
        uint32_t again = 99;

        assert_int_equal(wf_partition_owner_next(p, i, &in_order),
                         m->row[i].owner);
        assert_int_equal(wf_partition_owner_next(p, j, &jumping),
                         m->row[j].owner);
        assert_int_equal(wf_partition_owner(p, i), m->row[i].owner);
        assert_int_equal(wf_partition_local(p, i, &owner), m->row[i].local);
        assert_int_equal(owner, m->row[i].owner);
        assert_int_equal(wf_partition_row_at(p, owner, m->row[i].local), i);
        (void)wf_partition_offset(p, i, &again);
        assert_int_equal(again, owner);
    }
}

/* No two rows overlap, and all lie before the end. */
static void check_bytes(const model *m, const wf_partition *p)
{
    uint64_t bytes = wf_partition_bytes(p);
    unsigned char *used = calloc(bytes + 1, 1);
    uint32_t owner;

    assert_non_null(used);
    for (uint64_t i = 0; i < m->rows; i++) {
        uint64_t at = wf_partition_offset(p, i, &owner);

        assert_true(at + p->pitch <= bytes);
        for (uint64_t b = 0; b < p->pitch; b++) {
            assert_int_equal(used[at + b]++, 0);
        }
        if (!p->aligned && p->kind != WEFT_PARTITION_ROUND_ROBIN) {
            assert_int_equal(at, i * p->pitch);
        }
    }
    free(used);
}

/* All ranges of a rank, one after the other, are its storage. */
static void check_ranges(const model *m, const wf_partition *p)
{
    for (uint32_t r = 0; r < p->ranks; r++) {
        uint32_t n = wf_partition_ranges(p, r);
        uint64_t local = 0;
        wf_range range;

        assert_true(n >= 1);
        assert_false(wf_partition_range(p, r, n, &range));
        for (uint32_t k = 0; k < n; k++) {
            uint32_t owner;

            assert_true(wf_partition_range(p, r, k, &range));
            assert_true(range.rows > 0 || n == 1);
            for (uint64_t i = 0; i < range.rows; i++, local++) {
                uint64_t row = wf_partition_row_at(p, r, local);

                assert_true(row < m->rows);
                assert_int_equal(m->row[row].owner, r);
                assert_int_equal(wf_partition_offset(p, row, &owner),
                                 range.at + i * p->pitch);
                if (i == 0) {
                    assert_int_equal(row, range.row);
                }
            }
        }
        assert_int_equal(local, wf_partition_rows_of(p, r));
    }
}

/* Does the part of a rank, in any stretch, have bytes in this granule? */
static bool has_bytes(const wf_partition *p, uint32_t rank, uint64_t granule)
{
    for (uint32_t i = 0; i < p->count; i++) {
        const wf_stretch *s = &p->stretch[i];
        uint64_t from = s->at[rank];
        uint64_t until =
            from + (s->first[rank + 1] - s->first[rank]) * p->pitch;

        if (from < until && from < (granule + 1) * p->granule &&
            until > granule * p->granule) {
            return true;
        }
    }
    return false;
}

static unsigned backers(const wf_partition *p, const uint32_t *domain,
                        uint32_t of, uint64_t granule, uint32_t *backer)
{
    unsigned n = 0;

    for (uint32_t r = 0; r < p->ranks; r++) {
        for (uint32_t i = 0; i < p->count && domain[r] == of; i++) {
            wf_extent e = wf_partition_extent(p, domain, r, i);

            assert_int_equal(e.at % p->granule, 0);
            assert_int_equal(e.bytes % p->granule, 0);
            if (granule * p->granule >= e.at &&
                granule * p->granule < e.at + e.bytes) {
                *backer = r;
                n++;
            }
        }
    }
    return n;
}

/* A granule in which a domain has bytes is backed once there, by a rank that
 * has bytes in it; others are not. */
static void check_extents(const wf_partition *p, const uint32_t *domain)
{
    uint64_t granules = wf_partition_bytes(p) / p->granule + 2;

    for (uint64_t g = 0; g < granules; g++) {
        for (uint32_t d = 0; d < p->ranks; d++) {
            bool wanted = false;
            uint32_t who = 0;

            for (uint32_t r = 0; r < p->ranks; r++) {
                wanted |= domain[r] == d && has_bytes(p, r, g);
            }
            assert_int_equal(backers(p, domain, d, g, &who), wanted);
            assert_true(!wanted || has_bytes(p, who, g));
        }
    }
}

static void check_all(const model *m, const wf_partition *p)
{
    const uint32_t one[RANKS_MAX] = {0};
    uint32_t two[RANKS_MAX];
    uint32_t alone[RANKS_MAX];

    for (uint32_t r = 0; r < RANKS_MAX; r++) {
        two[r] = r / 2 % 2;
        alone[r] = r;
    }
    assert_int_equal(p->rows, m->rows);
    check_rows(m, p);
    check_bytes(m, p);
    check_ranges(m, p);
    check_extents(p, one);
    check_extents(p, two);
    check_extents(p, alone);
}

static void one_case(weft_partition kind, uint32_t ranks, uint64_t rows,
                     uint64_t run, uint64_t pitch, bool aligned)
{
    model *m = calloc(1, sizeof(*m));
    wf_partition p;

    assert_non_null(m);
    wf_partition_init(&p, kind, ranks, run, pitch, 64, aligned);
    assert_int_equal(wf_partition_add(&p, rows, NULL), WEFT_OK);
    model_deal(m, &p, rows, NULL);
    check_all(m, &p);
    if (!aligned && kind == WEFT_PARTITION_EQUAL) {
        assert_true(wf_partition_is_flat(&p));
    }
    wf_partition_fini(&p);
    free(m);
}

static const uint32_t ranks_of[] = {1, 2, 3, 5, 7, 16};

static void every_row_has_one_owner_and_one_place(void **state)
{
    static const uint64_t pitches[] = {1, 12, 64, 100};

    (void)state;
    for (unsigned i = 0; i < sizeof(ranks_of) / sizeof(*ranks_of); i++) {
        uint32_t w = ranks_of[i];
        const uint64_t rows[] = {0, 1, w - 1, w, w + 1, 101};

        for (unsigned k = 0; k < 6 * 4 * 2; k++) {
            uint64_t n = rows[k % 6];
            uint64_t pitch = pitches[k / 6 % 4];
            bool aligned = k / 24 == 1;

            one_case(WEFT_PARTITION_EQUAL, w, n, 0, pitch, aligned);
            one_case(WEFT_PARTITION_ROUND_ROBIN, w, n, 1, pitch, aligned);
            one_case(WEFT_PARTITION_ROUND_ROBIN, w, n, 3, pitch, aligned);
            one_case(WEFT_PARTITION_ROUND_ROBIN, w, n, 1000, pitch, aligned);
        }
    }
}

static void given_rows_go_to_their_ranks_also_none_to_some(void **state)
{
    static const uint64_t splits[][5] = {{0, 0, 7, 0, 5},
                                         {12, 0, 0, 0, 0},
                                         {0, 0, 0, 0, 12},
                                         {1, 2, 3, 4, 2},
                                         {0, 6, 0, 6, 0}};

    (void)state;
    for (unsigned i = 0; i < 5 * 2; i++) {
        model *m = calloc(1, sizeof(*m));
        wf_partition p;

        assert_non_null(m);
        wf_partition_init(&p, WEFT_PARTITION_GIVEN, 5, 0, 20, 64, i / 5 == 1);
        assert_int_equal(wf_partition_add(&p, 12, splits[i % 5]), WEFT_OK);
        model_deal(m, &p, 12, splits[i % 5]);
        check_all(m, &p);
        for (uint32_t r = 0; r < 5; r++) {
            assert_int_equal(wf_partition_rows_of(&p, r), splits[i % 5][r]);
        }
        wf_partition_fini(&p);
        free(m);
    }
}

static void resize_case(weft_partition kind, uint32_t ranks, bool aligned,
                        unsigned seed)
{
    model *m = calloc(1, sizeof(*m));
    wf_partition p;

    assert_non_null(m);
    srand(seed);
    wf_partition_init(&p, kind, ranks, 2, 20, 64, aligned);
    for (unsigned step = 0; step < 12; step++) {
        uint64_t rows = (uint64_t)(rand() % 60);
        wf_partition next;

        assert_int_equal(wf_partition_resized(&p, rows, &next), WEFT_OK);
        check_rows(m, &p); /* the old one is as it was */
        wf_partition_fini(&p);
        p = next;
        model_resize(m, &p, rows);
        check_all(m, &p);
    }
    wf_partition_fini(&p);
    free(m);
}

static void rows_keep_their_owners_however_often_it_is_resized(void **state)
{
    unsigned seeds = wt_full() ? 40 : 4;

    (void)state;
    for (unsigned i = 0; i < sizeof(ranks_of) / sizeof(*ranks_of); i++) {
        for (unsigned seed = 1; seed <= seeds; seed++) {
            resize_case(WEFT_PARTITION_EQUAL, ranks_of[i], false, seed);
            resize_case(WEFT_PARTITION_EQUAL, ranks_of[i], true, seed);
            resize_case(WEFT_PARTITION_ROUND_ROBIN, ranks_of[i], false, seed);
            resize_case(WEFT_PARTITION_ROUND_ROBIN, ranks_of[i], true, seed);
        }
    }
}

static void what_one_rank_has_grown_is_still_one_range(void **state)
{
    wf_partition p;
    wf_range range;

    (void)state;
    wf_partition_init(&p, WEFT_PARTITION_EQUAL, 1, 0, 20, 64, false);
    for (uint64_t rows = 1; rows < 40; rows += 3) {
        assert_int_equal(wf_partition_resize(&p, rows), WEFT_OK);
        assert_int_equal(wf_partition_ranges(&p, 0), 1);
        assert_true(wf_partition_range(&p, 0, 0, &range));
        assert_int_equal(range.rows, rows);
        assert_int_equal(range.at, 0);
    }
    wf_partition_fini(&p);
}

static void a_page_on_a_border_belongs_to_the_lower_rank(void **state)
{
    const uint32_t domain[3] = {0};
    wf_partition p;

    (void)state;
    /* 10 rows of 40 bytes each: parts end at 400, 800, 1200; 64 divides none */
    wf_partition_init(&p, WEFT_PARTITION_EQUAL, 3, 0, 40, 64, false);
    assert_int_equal(wf_partition_add(&p, 30, NULL), WEFT_OK);
    assert_int_equal(wf_partition_extent(&p, domain, 0, 0).at, 0);
    assert_int_equal(wf_partition_extent(&p, domain, 0, 0).bytes, 448);
    assert_int_equal(wf_partition_extent(&p, domain, 1, 0).at, 448);
    assert_int_equal(wf_partition_extent(&p, domain, 1, 0).bytes, 384);
    assert_int_equal(wf_partition_backed(&p, domain, 2), 384);
    wf_partition_fini(&p);
}

static void a_partition_survives_any_failed_allocation(void **state)
{
    weft_status st;
    unsigned nth = 0;

    (void)state;
    do {
        wf_partition p;
        wf_partition more = {0};

        wf_partition_init(&p, WEFT_PARTITION_EQUAL, 3, 0, 8, 64, false);
        wf_alloc_fail_nth(++nth);
        st = wf_partition_add(&p, 10, NULL);
        if (st == WEFT_OK) {
            st = wf_partition_resized(&p, 20, &more);
        }
        wf_alloc_fail_nth(0);
        assert_true(st == WEFT_OK || st == WEFT_ERR_NOMEM);
        assert_true(p.rows == 10 || p.rows == 0);
        wf_partition_fini(&p);
        wf_partition_fini(&more);
    } while (st != WEFT_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_has_one_owner_and_one_place),
        cmocka_unit_test(given_rows_go_to_their_ranks_also_none_to_some),
        cmocka_unit_test(rows_keep_their_owners_however_often_it_is_resized),
        cmocka_unit_test(what_one_rank_has_grown_is_still_one_range),
        cmocka_unit_test(a_page_on_a_border_belongs_to_the_lower_rank),
        cmocka_unit_test(a_partition_survives_any_failed_allocation),
    };

    return cmocka_run_group_tests_name("region_partition", tests, NULL, NULL);
}
