/* SPDX-License-Identifier: Apache-2.0 */
#include "store/hosts/book.h"

#include <string.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "base/num.h"
#include "comm/mail.h"
#include "region/region.h"
#include "store/hosts/active.h"

/* Memory is allocated for so many bytes of records at a time. */
#define STEP (256ull << 10)

static uint64_t clocks_at(void)
{
    return wf_round_up(sizeof(wf_book_head), 64);
}

static uint64_t records_at(uint32_t ranks)
{
    return wf_round_up(clocks_at() +
                           (uint64_t)ranks * WF_BOOK_WORKERS * sizeof(int64_t),
                       4096);
}

weft_status wf_book_make(wf_book *book, weft_comm *host, uint64_t keys)
{
    uint64_t records = records_at(host->size);
    int fd = -1;
    weft_status st;

    *book = (wf_book){.segment = {.fd = -1},
                      .records = (uint32_t)keys,
                      .populated = records,
                      .begin = records,
                      .bytes = wf_round_up(records + keys * sizeof(wf_record),
                                           wf_segment_page())};
    if (host->rank != 0) {
        return WEFT_OK;
    }
    st = wf_segment_make_fd("a store", book->bytes, false, &fd);
    if (st == WEFT_OK) {
        st =
            wf_segment_attach("a store", fd, book->bytes, true, &book->segment);
    }
    return st == WEFT_OK ? wf_segment_populate(&book->segment, 0, records) : st;
}

/* The first rank of the host sends it to the others. */
static weft_status share(wf_book *book, weft_comm *host)
{
    wf_mail_group group = wf_mail_group_of(host);
    uint64_t key =
        wf_mail_key(host->member, host->size, host->id, WF_MAIL_TICKET);
    weft_status st = WEFT_OK;
    char nothing;
    size_t n = 0;
    int fd = -1;

    if (host->rank != 0) {
        st = wf_mail_take(&group, 0, key, &nothing, &n, &fd);
        return st == WEFT_OK ? wf_segment_attach("a store", fd, book->bytes,
                                                 true, &book->segment)
                             : st;
    }
    for (uint32_t r = 1; r < host->size && st == WEFT_OK; r++) {
        st = wf_mail_post(&group, r, key, NULL, 0, book->segment.fd);
    }
    return st;
}

weft_status wf_book_open(wf_book *book, weft_comm *host)
{
    weft_status st = share(book, host);
    char *base = book->segment.base;

    if (st != WEFT_OK) {
        return st;
    }
    book->head = book->segment.base;
    book->clock = (_Atomic int64_t *)(void *)(base + clocks_at());
    book->record = (wf_record *)(void *)(base + records_at(host->size));
    for (uint32_t w = 0; w < WF_BOOK_WORKERS; w++) {
        atomic_store(wf_book_clock(book, host->rank, w), 0);
    }
    return WEFT_OK;
}

void wf_book_close(wf_book *book)
{
    wf_segment_close(&book->segment);
    wf_free(book->free);
    *book = (wf_book){.segment = {.fd = -1}};
}

/* --- records, for the server ---------------------------------------------- */

static bool populate(wf_book *book, uint32_t record)
{
    uint64_t end = (uint64_t)((char *)&book->record[record + 1] -
                              (char *)book->segment.base);

    while (book->populated < end) {
        uint64_t n = wf_least(STEP, book->segment.bytes - book->populated);

        if (wf_segment_populate(&book->segment, book->populated, n) !=
            WEFT_OK) {
            return false;
        }
        book->populated += n;
    }
    return true;
}

uint32_t wf_book_take(wf_book *book)
{
    uint32_t made = atomic_load(&book->head->made);

    if (book->frees > 0) {
        return book->free[--book->frees];
    }
    if (made == book->records || !populate(book, made)) {
        return WF_NO_RECORD;
    }
    atomic_store(&book->head->made, made + 1);
    return made;
}

static bool has_room(wf_book *book)
{
    uint32_t room = book->room > 0 ? 2 * book->room : 1024;
    uint32_t *more;

    if (book->frees < book->room) {
        return true;
    }
    more = wf_realloc(book->free, room * sizeof(*more));
    if (more != NULL) {
        book->free = more;
        book->room = room;
    }
    return more != NULL;
}

void wf_book_give(wf_book *book, uint32_t record)
{
    /* One store, so that nobody finds it half written. */
    __atomic_store_n(&book->record[record].used, 0, __ATOMIC_RELEASE);
    if (has_room(book)) { /* else it is found again by the next server */
        book->free[book->frees++] = record;
    }
}

void wf_book_trim(wf_book *book)
{
    uint32_t made = atomic_load(&book->head->made);
    char *base = book->segment.base;

    if (made == 0 || book->frees != made) {
        return;
    }
    /* Whoever takes over finds none, or unused ones. */
    atomic_store(&book->head->made, 0);
    wf_free(book->free);
    book->free = NULL;
    book->frees = book->room = 0;
    if (madvise(base + book->begin, book->populated - book->begin,
                MADV_REMOVE) == 0) {
        book->populated = book->begin;
    }
}

static void finish_write(wf_book *book, uint32_t record)
{
    book->record[record] = book->head->written;
    atomic_store_explicit(&book->head->journal, 0, memory_order_release);
}

void wf_book_write(wf_book *book, uint32_t record, const wf_key_state *state,
                   uint32_t base)
{
    book->head->written = (wf_record){.used = 1, .base = base, .state = *state};
    atomic_store_explicit(&book->head->journal, record + 1,
                          memory_order_release);
    atomic_signal_fence(memory_order_seq_cst);
    finish_write(book, record);
}

weft_status wf_book_take_over(wf_book *book)
{
    uint32_t journal = atomic_load(&book->head->journal);
    uint32_t made = atomic_load(&book->head->made);

    if (journal != 0 && journal <= made) {
        finish_write(book, journal - 1);
    }
    book->frees = 0;
    for (uint32_t i = 0; i < made; i++) {
        if (book->record[i].used == 0) {
            if (!has_room(book)) {
                return wf_fail_nomem("records of a store");
            }
            book->free[book->frees++] = i;
        }
    }
    /* Others have allocated the memory of these. */
    book->populated =
        (uint64_t)((char *)&book->record[made] - (char *)book->segment.base) /
        4096 * 4096;
    return WEFT_OK;
}
