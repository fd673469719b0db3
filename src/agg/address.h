/* SPDX-License-Identifier: Apache-2.0 */
/* Where a switch is: "host:port", "[::1]:port", "host". */
#ifndef WF_AGG_ADDRESS_H
#define WF_AGG_ADDRESS_H

#include "agg/udp.h"

#define WF_AGG_PORT "4747" /* unless another is given */

/* Cut a text into host and port, of `room` bytes each. WEFT_ERR_INVALID if it
 * is none. */
weft_status wf_agg_address_cut(const char *text, char *host, char *port,
                               size_t room);

/* Find the address; this may ask the network. */
weft_status wf_agg_address_find(const char *text, wf_udp_address *out);

#endif
