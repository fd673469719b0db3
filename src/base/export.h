/* SPDX-License-Identifier: Apache-2.0 */
/* What libweft exports for libraries of our own that it loads on demand (see
 * base/library.h). It is no interface for anybody else: they are built from the
 * same source, and a library of another version is refused. */
#ifndef WF_BASE_EXPORT_H
#define WF_BASE_EXPORT_H

/* Protected: the library's own calls go straight to them. Those libraries are
 * compiled with WF_MODULE, and export their one symbol in this way, too. */
#ifdef WF_MODULE
#define WF_API __attribute__((visibility("default")))
#else
#define WF_API __attribute__((visibility("protected")))
#endif

#endif
