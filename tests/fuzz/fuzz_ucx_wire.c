/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever comes over the network, a head that passes the checks has sizes that
 * can be used.
 *
 * The input is a head, or an address; the number of bytes that came with the
 * head is that of the rest. */
#include <stdlib.h>

#include "transport/transport.h"
#include "transport/ucx/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void must(bool true_of_good_heads)
{
    if (!true_of_good_heads) {
        abort();
    }
}

static void check(const ucx_head *head, size_t payload)
{
    if (!ucx_wire_check(head, payload)) {
        return;
    }
    must(ucx_has_order(head) == (head->kind <= UCX_ASK));
    if (payload > 0) {
        must(head->n == payload);
        must(head->kind == UCX_EAGER || head->kind == UCX_AM ||
             head->kind == UCX_DATA);
    }
    if (head->kind == UCX_AM) {
        must(ucx_am_id(head) < WF_AM_IDS);
        must(ucx_am_header(head) <= WF_AM_HEADER_MAX);
        must(ucx_am_header(head) <= payload);
        must(payload - ucx_am_header(head) <= UCX_AM_PAYLOAD);
    }
    if (head->kind == UCX_DATA) {
        must(head->word + head->n > head->word);
        must(head->word + head->n <= PTRDIFF_MAX);
    }
    if (head->kind == UCX_OFFER || head->kind == UCX_WANT) {
        must(head->n <= PTRDIFF_MAX);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    size_t first = n < sizeof(ucx_head) ? n : sizeof(ucx_head);
    ucx_head head;
    ucx_address address;

    if (ucx_wire_read(data, first, &head)) {
        check(&head, n - first);
        check(&head, 0);
        check(&head, (size_t)head.n);
    }
    if (ucx_wire_address(data, n, &address)) {
        must(n > sizeof(address) && address.magic == UCX_MAGIC);
    }
    return 0;
}
