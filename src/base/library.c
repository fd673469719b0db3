/* SPDX-License-Identifier: Apache-2.0 */
#include "base/library.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"

/* The file beside the one that this code is in. */
static void beside_us(const char *file, char *path, size_t room)
{
    static const char here;
    Dl_info us;
    const char *slash = NULL;

    if (dladdr(&here, &us) != 0 && us.dli_fname != NULL) {
        slash = strrchr(us.dli_fname, '/');
    }
    if (slash == NULL || strchr(file, '/') != NULL) {
        snprintf(path, room, "%s", file);
    } else {
        snprintf(path, room, "%.*s/%s", (int)(slash - us.dli_fname),
                 us.dli_fname, file);
    }
}

weft_status wf_library_find(const char *named, const char *file,
                            const char *symbol, const void **out)
{
    char path[PATH_MAX];
    void *library;
    const void *found;

    if (named != NULL && named[0] != '\0' && strcmp(named, "auto") != 0) {
        snprintf(path, sizeof(path), "%s", named);
    } else {
        beside_us(file, path, sizeof(path));
    }
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        return wf_fail(WEFT_ERR_UNSUPPORTED, "%s", dlerror());
    }
    found = dlsym(library, symbol);
    if (found == NULL) {
        dlclose(library);
        return wf_fail(WEFT_ERR_UNSUPPORTED, "%s has no symbol %s", path,
                       symbol);
    }
    *out = found;
    return WEFT_OK;
}
