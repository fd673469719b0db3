/* SPDX-License-Identifier: Apache-2.0 */
/* Where switches are: "host:port", "[::1]:port", "host", or several of these
 * with commas between. */
#ifndef WF_AGG_ADDRESS_H
#define WF_AGG_ADDRESS_H

#include "agg/udp.h"

#define WF_AGG_PORT 4747 /* unless another is given */
#define WF_AGG_ADDRESS_TEXT 64u

/* Is a text such a list, of 1 to `most`? WEFT_ERR_INVALID if it is not. */
weft_status wf_agg_addresses_check(const char *text, uint32_t most);

/* Find the addresses of a list, 1 to `most` that differ; this may ask the
 * network. `*count` is how many there are. */
weft_status wf_agg_addresses_find(const char *text, uint32_t most,
                                  wf_udp_address *out, uint32_t *count);

/* The port in an address, as on the wire. */
uint16_t *wf_agg_address_port(wf_udp_address *address);

/* "127.0.0.1:4747", for errors. */
void wf_agg_address_text(const wf_udp_address *address, char *text,
                         size_t room);

#endif
