/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever comes over MPI, what passes the checks has sizes that can be used:
 * the bytes that a head speaks of are there.
 *
 * The first four bytes of the input are what the receiver knows: the credits
 * that the sender has left, whether a frame, a chunk or a question to the
 * bootstrap table has come, and how much of a chunk's message is missing. The
 * rest is what came. */
#include <stdlib.h>
#include <string.h>

#include "transport/mpi/wire.h"
#include "transport/transport.h"

enum { KNOWN = 4, FRAME = 0, CHUNK = 1 };

static const uint64_t job = 0x1122334455667788u;
static const uint64_t token = 7;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void must(bool true_of_good_heads)
{
    if (!true_of_good_heads) {
        abort();
    }
}

/* Read all of it, so that a sanitizer sees what is not there. */
static void touch(const unsigned char *at, size_t n)
{
    volatile unsigned char sum = 0;

    for (size_t i = 0; i < n; i++) {
        sum = (unsigned char)(sum + at[i]);
    }
}

static void read_frame(const unsigned char *data, size_t n, uint32_t credits)
{
    const mp_head *head = (const mp_head *)data;
    const unsigned char *body = data + sizeof(*head);

    if (!mp_wire_is_frame(data, n, job) ||
        !mp_wire_check(head, n - sizeof(*head), credits)) {
        return;
    }
    must(credits + head->credits <= MP_CREDITS);
    must(head->kind >= MP_EAGER && head->kind <= MP_BYE);
    if (mp_wire_is_near(head, UINT32_MAX - 3)) {
        must(head->seq >= UINT32_MAX - 3 || head->seq <= 2 * MP_CREDITS - 4);
    }
    if (head->kind == MP_EAGER) {
        must(head->n <= n - sizeof(*head));
        touch(body, (size_t)head->n);
    } else if (head->kind == MP_AM) {
        must(mp_am_id(head) < WF_AM_IDS);
        must(mp_am_header(head) <= WF_AM_HEADER_MAX);
        must(head->n <= WF_AM_PAYLOAD_MAX);
        must(mp_am_payload(mp_am_header(head)) + head->n <= n - sizeof(*head));
        touch(body, mp_am_header(head));
        touch(body + mp_am_payload(mp_am_header(head)), (size_t)head->n);
    } else {
        must(n == sizeof(*head));
    }
    if (head->kind == MP_OFFER || head->kind == MP_WANT) {
        must(head->n <= PTRDIFF_MAX);
    }
    if (!mp_costs_credit(head->kind)) {
        must(head->token <= UINT32_MAX);
    }
}

/* As far as a receive of `left` bytes has room. */
static void read_chunk(const unsigned char *data, size_t n, size_t left)
{
    const mp_chunk_head *head = (const mp_chunk_head *)data;
    size_t body = n - sizeof(*head);

    if (!mp_wire_is_chunk(data, n, job) ||
        !mp_wire_check_chunk(head, body, token, left)) {
        return;
    }
    must(head->token == token);
    must(body <= left && body <= MP_CHUNK_BYTES);
    touch(data + sizeof(*head), body);
}

static void read_question(const unsigned char *data, size_t n)
{
    const mp_boot_head *h = (const mp_boot_head *)data;

    if (mp_wire_check_boot(data, n)) {
        must(strlen(h->key) <= WF_BOOT_KEY_MAX);
        must(h->n <= n - sizeof(*h));
        touch(data + sizeof(*h), (size_t)h->n);
        must(h->verb >= MP_BOOT_SET && h->verb <= MP_BOOT_DONE);
    }
}

/* What came, in memory of its size that is aligned as MPI's receives are. */
static unsigned char *copy_of(const uint8_t *data, size_t n)
{
    unsigned char *copy = malloc(n > 0 ? n : 1);

    must(copy != NULL);
    if (n > 0) {
        memcpy(copy, data, n);
    }
    return copy;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    unsigned char *came;

    if (n < KNOWN) {
        return 0;
    }
    came = copy_of(data + KNOWN, n - KNOWN);
    if (data[1] % 3 == FRAME) {
        read_frame(came, n - KNOWN, data[0]);
    } else if (data[1] % 3 == CHUNK) {
        read_chunk(came, n - KNOWN, data[2] | (size_t)data[3] << 8);
    } else {
        read_question(came, n - KNOWN);
    }
    free(came);
    return 0;
}
