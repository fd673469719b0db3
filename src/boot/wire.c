/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/wire.h"

#include <stdbool.h>
#include <string.h>

/* Says both "this is weft" and which version of the messages. */
#define WIRE_MAGIC 0x77656201u

typedef struct wire_head {
    uint32_t magic;
    uint16_t kind;
    uint16_t key_n;
    uint32_t id;
    int32_t status;
    uint32_t value_n;
} wire_head;
_Static_assert(sizeof(wire_head) == 20, "layout");
_Static_assert(sizeof(wf_wire_hello) == 8, "layout");

/* Are the lengths and the status those that this kind of message has? */
static bool wire_head_fits(const wire_head *h)
{
    bool has_key = h->key_n > 0 && h->key_n <= WF_BOOT_KEY_MAX;
    bool plain = h->status == WEFT_OK;

    if (h->magic != WIRE_MAGIC || h->value_n > WEFT_BOOT_VALUE_MAX) {
        return false;
    }
    switch (h->kind) {
    case WF_WIRE_HELLO:
        return h->key_n == 0 && h->value_n == sizeof(wf_wire_hello) && plain;
    case WF_WIRE_SET:
        return has_key && plain;
    case WF_WIRE_GET:
        return has_key && h->value_n == 0 && plain;
    case WF_WIRE_DONE:
        return h->key_n == 0 && h->value_n == 0 && plain;
    case WF_WIRE_ACK:
    case WF_WIRE_VALUE:
        return h->key_n == 0 &&
               (int32_t)wf_status_parse(h->status) == h->status;
    default:
        return false;
    }
}

wf_wire_found wf_wire_parse(const void *bytes, size_t n, wf_wire_msg *out,
                            size_t *used)
{
    const char *p = bytes;
    wire_head h;

    if (n < sizeof(h)) {
        return WF_WIRE_PART;
    }
    memcpy(&h, p, sizeof(h));
    if (!wire_head_fits(&h)) {
        return WF_WIRE_BAD;
    }
    if (n - sizeof(h) < (size_t)h.key_n + h.value_n) {
        return WF_WIRE_PART;
    }
    if (h.key_n > 0 && !wf_boot_is_key(p + sizeof(h), h.key_n)) {
        return WF_WIRE_BAD;
    }
    memcpy(out->key, p + sizeof(h), h.key_n);
    out->key[h.key_n] = '\0';
    out->kind = (wf_wire_kind)h.kind;
    out->id = h.id;
    out->status = (weft_status)h.status;
    out->value = p + sizeof(h) + h.key_n;
    out->n = h.value_n;
    *used = sizeof(h) + h.key_n + h.value_n;
    return WF_WIRE_WHOLE;
}

size_t wf_wire_size(const wf_wire_msg *msg)
{
    return sizeof(wire_head) + strlen(msg->key) + msg->n;
}

void wf_wire_write(const wf_wire_msg *msg, void *bytes)
{
    char *p = bytes;
    wire_head h = {
        .magic = WIRE_MAGIC,
        .kind = (uint16_t)msg->kind,
        .key_n = (uint16_t)strlen(msg->key),
        .id = msg->id,
        .status = (int32_t)msg->status,
        .value_n = (uint32_t)msg->n,
    };

    memcpy(p, &h, sizeof(h));
    memcpy(p + sizeof(h), msg->key, h.key_n);
    if (msg->n > 0) {
        memcpy(p + sizeof(h) + h.key_n, msg->value, msg->n);
    }
}
