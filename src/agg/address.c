/* SPDX-License-Identifier: Apache-2.0 */
#include "agg/address.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

static bool is_port(const char *text)
{
    char *end;
    unsigned long n = strtoul(text, &end, 10);

    return text[0] >= '0' && text[0] <= '9' && *end == '\0' && n > 0 &&
           n <= 65535;
}

weft_status wf_agg_address_cut(const char *text, char *host, char *port,
                               size_t room)
{
    bool bracket = text[0] == '[';
    const char *begin = text + bracket;
    const char *end = bracket ? strchr(text, ']') : strrchr(text, ':');
    const char *colon = bracket && end != NULL ? end + 1 : end;

    if (end == NULL) {
        end = colon = text + strlen(text);
    }
    if (end == begin || (size_t)(end - begin) >= room || strlen(colon) > 6 ||
        (*colon != '\0' && (*colon != ':' || !is_port(colon + 1))) ||
        (!bracket && memchr(begin, ':', (size_t)(end - begin)) != NULL)) {
        return wf_fail(WEFT_ERR_INVALID,
                       "'%s' is not the address of a switch (host:port, or "
                       "[address]:port)",
                       text);
    }
    memcpy(host, begin, (size_t)(end - begin));
    host[end - begin] = '\0';
    snprintf(port, room, "%s", *colon != '\0' ? colon + 1 : WF_AGG_PORT);
    return WEFT_OK;
}

weft_status wf_agg_address_find(const char *text, wf_udp_address *out)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    char host[256];
    char port[256];
    weft_status st = wf_agg_address_cut(text, host, port, sizeof(host));
    int bad;

    if (st != WEFT_OK) {
        return st;
    }
    bad = getaddrinfo(host, port, &hints, &found);
    if (bad != 0) {
        return wf_fail(WEFT_ERR_INVALID, "the switch '%s': %s", text,
                       gai_strerror(bad));
    }
    memcpy(&out->at, found->ai_addr, found->ai_addrlen);
    out->length = found->ai_addrlen;
    freeaddrinfo(found);
    return WEFT_OK;
}
