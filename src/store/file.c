/* SPDX-License-Identifier: Apache-2.0 */
/* Saving and loading, all ranks together.
 *
 * A saved store is a file of a region (weft/file.h). Its rows are those of the
 * keys, in their order, each with the optimizer's state behind its elements and
 * all as long as the longest; of hashed keys each begins with the key. In front
 * of them is one that says what was saved. Any number of ranks and hosts makes
 * it and reads it, each host the rows that it owns. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/time.h"
#include "region/region.h"
#include "region/rows/rows.h"
#include "store/hosts/hosts.h"
#include "store/table.h"
#include <weft/coll.h>
#include <weft/file.h>

#define MAGIC 0x45524f5453544657ull /* "WFTSTORE" */
#define BATCH 1024u                 /* rows that are moved at a time */

/* The first row of a file. */
typedef struct file_head {
    uint64_t magic;
    uint64_t version;
    uint64_t rows; /* of keys; of hashed keys those that there are */
    uint64_t keys;
    uint64_t length;  /* of every row; 0: they differ */
    uint64_t lengths; /* a checksum, where they differ */
    uint64_t type;
    uint64_t optimizer; /* 1 + its kind; 0: none */
    uint64_t hashed;
    uint64_t row_bytes; /* elements and state of the longest */
} file_head;

/* --- what a file holds ---------------------------------------------------- */

static uint64_t longest_row(const weft_store *store)
{
    uint64_t most = 0;

    for (uint64_t k = 0; k < store->options.keys; k++) {
        uint64_t bytes = wf_slots_bytes(store->slots, k);

        most = bytes > most ? bytes : most;
        if (store->uniform) {
            break;
        }
    }
    return most;
}

static file_head head_of(const weft_store *store)
{
    return (file_head){.magic = MAGIC,
                       .version = 1,
                       .rows = store->options.keys,
                       .keys = store->options.keys,
                       .length = store->options.length,
                       .lengths = store->lengths_sum,
                       .type = store->options.type,
                       .optimizer = store->optimizer_kind,
                       .hashed = store->hash != NULL,
                       .row_bytes = longest_row(store)};
}

/* Bytes from row to row in the file. */
static uint64_t pitch_of(const file_head *head)
{
    uint64_t bytes = head->row_bytes + (head->hashed ? sizeof(int64_t) : 0);

    return bytes > sizeof(*head) ? wf_round_up(bytes, 8) : sizeof(*head);
}

static weft_status differs(const char *path, const char *what, uint64_t in_file,
                           uint64_t here)
{
    return in_file == here ? WEFT_OK
                           : wf_fail(WEFT_ERR_INVALID,
                                     "%s: the store in the file has %s %" PRIu64
                                     ", this one has %" PRIu64,
                                     path, what, in_file, here);
}

static weft_status check_head(const weft_store *store, const char *path,
                              const file_head *f)
{
    file_head here = head_of(store);
    weft_status st = WEFT_OK;

    if (f->magic != MAGIC || f->version != here.version) {
        return wf_fail(WEFT_ERR_INVALID, "%s is not a saved store", path);
    }
    if (f->hashed == 0 || here.hashed == 0) {
        st = differs(path, "a number of keys of", f->keys, here.keys);
    } else if (f->rows > store->options.keys) {
        st = wf_fail(WEFT_ERR_INVALID,
                     "%s: the store in the file has %" PRIu64
                     " keys, and this one has room for %" PRIu64,
                     path, f->rows, store->options.keys);
    }
    if (st == WEFT_OK) {
        st = differs(path, "hashed keys:", f->hashed, here.hashed);
    }
    if (st == WEFT_OK) {
        st = differs(path, "rows of length", f->length, here.length);
    }
    if (st == WEFT_OK) {
        st = differs(path, "lengths with a checksum of", f->lengths,
                     here.lengths);
    }
    if (st == WEFT_OK) {
        st = differs(path, "values of dtype number", f->type, here.type);
    }
    return st == WEFT_OK ? differs(path, "an optimizer (1 + kind, 0: none) of",
                                   f->optimizer, here.optimizer)
                         : st;
}

/* --- rows of this rank ---------------------------------------------------- */

/* Rows that are on their way between slots and a region. */
typedef struct mover {
    weft_store *store;
    weft_region *region;
    uint64_t pitch;
    uint64_t skip;        /* bytes before the row: the hashed key */
    const uint64_t *made; /* by host: hashed keys that it has given numbers */
    char *rows;           /* BATCH of them */
    int64_t *ids;         /* rows of the region; -1: not this host's */
    uint64_t n;
} mover;

static bool is_owned(const weft_store *store, uint64_t key, uint32_t *slot)
{
    uint32_t word;
    wf_place place;

    if (store->slots->direct) {
        *slot = (uint32_t)key;
        return true;
    }
    word = wf_directory_get(store->slots, key);
    *slot = word & ~WF_KEY_HERE;
    if ((word & WF_KEY_HERE) == 0) {
        return false;
    }
    place = wf_place_of(store->slots, key, *slot);
    return (atomic_load(wf_place_word(&place)) & WF_SLOT_COPY) == 0;
}

/* The key of a row of the file. Hashed keys have the numbers that hosts gave
 * them, those of one host after those of the other. */
static uint64_t key_of_row(const mover *m, uint64_t row)
{
    uint32_t host = 0;

    if (m->made == NULL) {
        return row;
    }
    while (row >= m->made[host]) {
        row -= m->made[host++];
    }
    return row * m->store->hosts + host;
}

static weft_table table_of(const mover *m)
{
    return (weft_table){
        .region = m->region, .width = m->pitch, .type = WEFT_U8};
}

/* Copy a row between its slot and position i. */
static weft_status move_row(const mover *m, uint64_t key, uint64_t i, bool load)
{
    wf_slots *slots = m->store->slots;
    uint64_t bytes = wf_slots_bytes(slots, key);
    uint32_t slot = 0;
    char *at = m->rows + i * m->pitch;
    void *row;
    weft_status st;

    if (!is_owned(m->store, key, &slot)) {
        m->ids[i] = -1;
        return WEFT_OK;
    }
    st = wf_slot_lock(slots, key, slot, WF_WRITERS - 1, &row);
    if (st != WEFT_OK) {
        return st;
    }
    if (load) {
        memcpy(row, at + m->skip, bytes);
        wf_slot_unlock(slots, slot, WF_WRITERS - 1);
        return WEFT_OK;
    }
    memcpy(at + m->skip, row, bytes);
    wf_slot_unlock_as_it_was(slots, slot, WF_WRITERS - 1);
    if (m->skip > 0) {
        int64_t name = wf_store_name(m->store, key);

        memcpy(at, &name, sizeof(name));
    }
    return WEFT_OK;
}

/* The keys `first` to `first + n` of the file, which are rows from `first` + 1
 * on. */
static weft_status move_batch(mover *m, uint64_t first, uint64_t n, bool load)
{
    weft_table table = table_of(m);
    weft_ids ids = {.at = m->ids, .type = WEFT_I64, .n = n};
    weft_rows rows = {.at = m->rows, .pitch = m->pitch, .type = WEFT_U8};
    weft_status st = WEFT_OK;
    uint32_t slot;

    for (uint64_t i = 0; i < n; i++) {
        m->ids[i] = is_owned(m->store, key_of_row(m, first + i), &slot)
                        ? (int64_t)(first + i + 1)
                        : -1;
    }
    if (load) {
        st = weft_rows_gather(&table, &ids, &rows, NULL);
    } else {
        memset(m->rows, 0, n * m->pitch);
    }
    for (uint64_t i = 0; i < n && st == WEFT_OK; i++) {
        st = move_row(m, key_of_row(m, first + i), i, load);
    }
    return st == WEFT_OK && !load ? weft_rows_scatter(&table, &ids, &rows, NULL)
                                  : st;
}

/* Hashed keys: these rows say which, and the store says what numbers they have.
 */
static weft_status load_hashed(mover *m, uint64_t first, uint64_t n)
{
    weft_table table = table_of(m);
    weft_ids ids = {.at = m->ids, .type = WEFT_I64, .n = n};
    weft_rows rows = {.at = m->rows, .pitch = m->pitch, .type = WEFT_U8};
    wf_dense dense = {.many = NULL};
    weft_status st;

    for (uint64_t i = 0; i < n; i++) {
        m->ids[i] = (int64_t)(first + i + 1);
    }
    st = weft_rows_gather(&table, &ids, &rows, NULL);
    if (st != WEFT_OK) {
        return st;
    }
    for (uint64_t i = 0; i < n; i++) {
        memcpy(&m->ids[i], m->rows + i * m->pitch, sizeof(m->ids[i]));
    }
    st = wf_dense_init(&dense, m->store, "load", &ids, true);
    for (uint64_t i = 0; i < n && st == WEFT_OK; i++) {
        st = move_row(m, (uint64_t)wf_id_at(&dense.ids, i), i, true);
    }
    wf_dense_fini(&dense);
    return st;
}

/* Blocks of keys go round the ranks of the host. */
static weft_status move_all(mover *m, uint64_t rows, bool load)
{
    const weft_comm *host = m->store->host;
    weft_status st = WEFT_OK;

    for (uint64_t at = 0, block = 0; at < rows && st == WEFT_OK;
         at += BATCH, block++) {
        uint64_t n = wf_least(rows - at, BATCH);

        if (block % host->size == host->rank) {
            st = load && m->skip > 0 ? load_hashed(m, at, n)
                                     : move_batch(m, at, n, load);
        }
    }
    return st;
}

/* --- all ranks together --------------------------------------------------- */

/* Everything that was pushed is with the owners, and all copies have it. */
static weft_status settle(weft_store *store)
{
    weft_worker *worker = NULL;
    weft_status st = weft_worker_create(store, &worker);

    st = wf_store_agree(store, st);
    for (int i = 0; i < 2 && st == WEFT_OK; i++) {
        st = wf_store_agree(store, weft_store_wait_sync(worker));
    }
    weft_worker_destroy(worker);
    return st;
}

static void mover_fini(mover *m)
{
    wf_free(m->rows);
    wf_free(m->ids);
    weft_region_destroy(m->region);
}

static weft_status mover_init(mover *m, weft_store *store, uint64_t pitch,
                              uint64_t rows)
{
    uint64_t shape[2] = {rows + 1, pitch};
    weft_status st;

    *m = (mover){.store = store,
                 .pitch = pitch,
                 .skip = store->hash != NULL ? sizeof(int64_t) : 0,
                 .rows = wf_alloc(BATCH * pitch),
                 .ids = wf_alloc(BATCH * sizeof(*m->ids))};
    st = wf_store_agree(store, m->rows == NULL || m->ids == NULL
                                   ? wf_fail_nomem("rows of a store")
                                   : WEFT_OK);
    return st == WEFT_OK ? weft_region_create(store->comm, 2, shape, WEFT_U8,
                                              NULL, &m->region)
                         : st;
}

static weft_status write_head(const mover *m, const file_head *head)
{
    int64_t first = 0;
    weft_table table = table_of(m);
    weft_ids ids = {.at = &first, .type = WEFT_I64, .n = 1};
    weft_rows rows = {.at = m->rows, .pitch = m->pitch, .type = WEFT_U8};

    memset(m->rows, 0, m->pitch);
    memcpy(m->rows, head, sizeof(*head));
    return weft_rows_scatter(&table, &ids, &rows, NULL);
}

static weft_status check_path(weft_store *store, const char *path)
{
    weft_status st = wf_store_check(store);

    return st == WEFT_OK && (path == NULL || *path == '\0')
               ? wf_fail(WEFT_ERR_INVALID, "path is empty")
               : st;
}

/* Hashed keys are as many as all hosts have given numbers. */
static weft_status count_rows(weft_store *store, file_head *head,
                              uint64_t **made)
{
    *head = head_of(store);
    *made = NULL;
    return store->hash == NULL ? WEFT_OK
                               : wf_store_made(store, made, &head->rows);
}

weft_status weft_store_save(weft_store *store, const char *path)
{
    weft_status st;
    file_head head;
    uint64_t *made = NULL;
    mover m = {0};

    if (store == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "store is NULL");
    }
    st = wf_store_agree(store, check_path(store, path));
    if (st == WEFT_OK) {
        st = settle(store);
    }
    if (st == WEFT_OK) {
        st = count_rows(store, &head, &made);
    }
    if (st == WEFT_OK) {
        st = mover_init(&m, store, pitch_of(&head), head.rows);
        m.made = made;
    }
    if (st == WEFT_OK) {
        st = move_all(&m, head.rows, false);
        if (st == WEFT_OK && store->comm->rank == 0) {
            st = write_head(&m, &head);
        }
        st = wf_store_agree(store, st);
    }
    if (st == WEFT_OK) {
        st = weft_region_save(m.region, store->comm, path, NULL);
    }
    mover_fini(&m);
    wf_free(made);
    return st;
}

/* What the first rank reads of the file, to all. */
static weft_status read_shape(weft_store *store, const char *path,
                              uint64_t shape[2])
{
    weft_file_info info = {0};
    weft_status st = check_path(store, path);

    if (st == WEFT_OK && store->comm->rank == 0) {
        st = weft_file_describe(path, &info);
        if (st == WEFT_OK &&
            (info.dims != 2 || info.type != WEFT_U8 || info.shape[0] == 0 ||
             info.shape[1] < sizeof(file_head))) {
            st = wf_fail(WEFT_ERR_INVALID, "%s is not a saved store", path);
        }
    }
    st = wf_store_agree(store, st);
    shape[0] = info.shape[0];
    shape[1] = info.shape[1];
    return st == WEFT_OK ? weft_broadcast(store->comm, shape, 2, WEFT_I64, 0)
                         : st;
}

static weft_status read_head(const mover *m, file_head *head)
{
    int64_t first = 0;
    weft_table table = table_of(m);
    weft_ids ids = {.at = &first, .type = WEFT_I64, .n = 1};
    weft_rows rows = {.at = m->rows, .pitch = m->pitch, .type = WEFT_U8};
    weft_status st = weft_rows_gather(&table, &ids, &rows, NULL);

    memcpy(head, m->rows, sizeof(*head));
    return st;
}

weft_status weft_store_load(weft_store *store, const char *path)
{
    uint64_t shape[2];
    weft_status st;
    file_head head;
    mover m = {0};

    if (store == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "store is NULL");
    }
    st = read_shape(store, path, shape);
    if (st == WEFT_OK) {
        st = mover_init(&m, store, shape[1], shape[0] - 1);
    }
    if (st == WEFT_OK) {
        st = weft_region_load(m.region, store->comm, path, NULL);
    }
    if (st == WEFT_OK) {
        st = read_head(&m, &head);
        if (st == WEFT_OK) {
            st = check_head(store, path, &head);
        }
        if (st == WEFT_OK &&
            (head.rows != shape[0] - 1 || pitch_of(&head) != shape[1])) {
            st = wf_fail(WEFT_ERR_INVALID, "%s is not a saved store", path);
        }
        st = wf_store_agree(store, st);
    }
    if (st == WEFT_OK) {
        st = settle(store);
    }
    if (st == WEFT_OK) {
        st = wf_store_agree(store, move_all(&m, head.rows, true));
    }
    mover_fini(&m);
    return st == WEFT_OK ? settle(store) : st;
}
