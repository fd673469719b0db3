/* SPDX-License-Identifier: Apache-2.0 */
#include "agg/address.h"

#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

/* One address, in words. */
typedef struct place {
    char text[256];
    char host[256];
    char port[8];
} place;

static bool is_port(const char *text)
{
    char *end;
    unsigned long n = strtoul(text, &end, 10);

    return text[0] >= '0' && text[0] <= '9' && *end == '\0' && n > 0 &&
           n <= 65535;
}

/* Cut p->text into host and port. */
static bool cut_one(place *p)
{
    const char *text = p->text;
    bool bracket = text[0] == '[';
    const char *begin = text + bracket;
    const char *end = bracket ? strchr(text, ']') : strrchr(text, ':');
    const char *colon = bracket && end != NULL ? end + 1 : end;

    if (end == NULL) {
        end = colon = text + strlen(text);
    }
    if (end == begin || strlen(colon) > 6 ||
        (*colon != '\0' && (*colon != ':' || !is_port(colon + 1))) ||
        (!bracket && memchr(begin, ':', (size_t)(end - begin)) != NULL)) {
        return false;
    }
    memcpy(p->host, begin, (size_t)(end - begin));
    p->host[end - begin] = '\0';
    if (*colon != '\0') {
        snprintf(p->port, sizeof(p->port), "%s", colon + 1);
    } else {
        snprintf(p->port, sizeof(p->port), "%u", (unsigned)WF_AGG_PORT);
    }
    return true;
}

/* The next one of a list, of which `*rest` is what follows, or NULL. */
static weft_status cut_next(const char **rest, place *p)
{
    size_t n = strcspn(*rest, ",");
    size_t kept = n < sizeof(p->text) ? n : sizeof(p->text) - 1;

    memcpy(p->text, *rest, kept);
    p->text[kept] = '\0';
    *rest = (*rest)[n] == ',' ? *rest + n + 1 : NULL;
    return kept == n && cut_one(p)
               ? WEFT_OK
               : wf_fail(WEFT_ERR_INVALID,
                         "'%s' is not the address of a switch (host:port, or "
                         "[address]:port)",
                         p->text);
}

static weft_status too_many(uint32_t most)
{
    return wf_fail(WEFT_ERR_INVALID, "a job has at most %u switches", most);
}

weft_status wf_agg_addresses_check(const char *text, uint32_t most)
{
    const char *rest = text;
    weft_status st = WEFT_OK;
    place p;

    for (uint32_t n = 0; rest != NULL && st == WEFT_OK; n++) {
        st = n < most ? cut_next(&rest, &p) : too_many(most);
    }
    return st;
}

static weft_status find_one(const place *p, wf_udp_address *out)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int bad = getaddrinfo(p->host, p->port, &hints, &found);

    if (bad != 0) {
        return wf_fail(WEFT_ERR_INVALID, "the switch '%s': %s", p->text,
                       gai_strerror(bad));
    }
    memset(out, 0, sizeof(*out));
    memcpy(&out->at, found->ai_addr, found->ai_addrlen);
    out->length = found->ai_addrlen;
    freeaddrinfo(found);
    return WEFT_OK;
}

weft_status wf_agg_addresses_find(const char *text, uint32_t most,
                                  wf_udp_address *out, uint32_t *count)
{
    const char *rest = text;
    weft_status st = WEFT_OK;
    uint32_t n = 0;
    place p;

    for (; rest != NULL && st == WEFT_OK; n++) {
        st = n < most ? cut_next(&rest, &p) : too_many(most);
        if (st == WEFT_OK) {
            st = find_one(&p, &out[n]);
        }
        for (uint32_t i = 0; i < n && st == WEFT_OK; i++) {
            if (memcmp(&out[i], &out[n], sizeof(out[n])) == 0) {
                st = wf_fail(WEFT_ERR_INVALID, "the switch '%s' is named twice",
                             p.text);
            }
        }
    }
    *count = n;
    return st;
}

uint16_t *wf_agg_address_port(wf_udp_address *a)
{
    return a->at.ss_family == AF_INET6
               ? &((struct sockaddr_in6 *)&a->at)->sin6_port
               : &((struct sockaddr_in *)&a->at)->sin_port;
}

void wf_agg_address_text(const wf_udp_address *a, char *text, size_t room)
{
    bool six = a->at.ss_family == AF_INET6;
    char host[WF_AGG_ADDRESS_TEXT] = "?";
    char port[8] = "?";

    (void)getnameinfo((const struct sockaddr *)&a->at, a->length, host,
                      sizeof(host), port, sizeof(port),
                      NI_NUMERICHOST | NI_NUMERICSERV);
    snprintf(text, room, six ? "[%s]:%s" : "%s:%s", host, port);
}
