/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a process says to "weft blas run": lines of fields with tabs between,
 * appended to one file by all processes of the program.
 *
 *   process PID RANK NAME            before anything else of it
 *   torch   PID FILE                 it has loaded this libtorch_cpu.so
 *   call    PID ROUTINE CALLER FILE  the first call, and the file that serves
 * it bind    PID SYMBOL FILE STATE    where a call of libtorch_cpu.so leads;
 * the loader did "bind" it, or will "later" failure PID TEXT end     PID it
 * went to its end; not if it was killed
 */
#include "shim.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__x86_64__)
#define WB_IS_SLOT(type)                                                       \
    ((type) == R_X86_64_JUMP_SLOT || (type) == R_X86_64_GLOB_DAT)
#elif defined(__aarch64__)
#define WB_IS_SLOT(type)                                                       \
    ((type) == R_AARCH64_JUMP_SLOT || (type) == R_AARCH64_GLOB_DAT)
#else
#define WB_IS_SLOT(type) ((void)(type), 0)
#endif

/* One write each, so that lines of processes do not mix. */
static struct {
    size_t used;
    char bytes[1 << 16];
} text;

__attribute__((format(printf, 1, 2))) static void report_add(const char *format,
                                                             ...)
{
    size_t room = sizeof(text.bytes) - text.used;
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(text.bytes + text.used, room, format, args);
    va_end(args);
    if (n > 0 && (size_t)n < room) {
        text.used += (size_t)n;
    }
}

static void report_write(void)
{
    const char *file = getenv("WEFTBLAS_REPORT");
    int fd = file ? open(file, O_WRONLY | O_APPEND | O_CLOEXEC) : -1;

    if (fd >= 0) {
        if (write(fd, text.bytes, text.used) < 0) {
            (void)fprintf(stderr, "weft blas: %s: %s\n", file, strerror(errno));
        }
        (void)close(fd);
    }
    text.used = 0;
}

static void report_process(void)
{
    static pid_t said;
    const char *rank = getenv("RANK");

    if (said != getpid()) {
        said = getpid();
        report_add("process\t%d\t%s\t%s\n", (int)said, rank ? rank : "",
                   program_invocation_short_name);
    }
}

/* The object that an address is in. dladdr also looks for the symbol, which
 * takes a millisecond in an object as large as libtorch_cpu.so. */
typedef struct report_place {
    uintptr_t address;
    const char *file;
} report_place;

static int report_contains(struct dl_phdr_info *info, size_t size,
                           void *context)
{
    report_place *place = context;

    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t begin = info->dlpi_addr + part->p_vaddr;

        if (part->p_type == PT_LOAD && place->address >= begin &&
            place->address - begin < part->p_memsz) {
            place->file = info->dlpi_name;
            return 1;
        }
    }
    return 0;
}

static const char *report_file(const void *address)
{
    report_place place = {.address = (uintptr_t)address, .file = ""};

    (void)dl_iterate_phdr(report_contains, &place);
    return place.file;
}

void wb_note_call(const char *name, const void *caller, const void *target)
{
    report_process();
    report_add("call\t%d\t%s\t%s\t%s\n", (int)getpid(), name,
               report_file(caller), report_file(target));
    report_write();
}

void wb_note_failure(const char *why)
{
    report_process();
    report_add("failure\t%d\t%s\n", (int)getpid(), why ? why : "");
    report_write();
    (void)fprintf(stderr, "weft blas: %s\n", why ? why : "failed");
}

static int report_is_torch(struct dl_phdr_info *info, size_t size,
                           void *context)
{
    const char *slash = strrchr(info->dlpi_name, '/');
    wb_object *out = context;

    (void)size;
    if (slash == NULL || strncmp(slash, "/libtorch_cpu.so", 16) != 0) {
        return 0;
    }
    *out = (wb_object){
        .file = info->dlpi_name, .base = info->dlpi_addr, .begin = UINTPTR_MAX};
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t begin = info->dlpi_addr + part->p_vaddr;

        if (part->p_type == PT_DYNAMIC) {
            out->dynamic = begin;
        }
        if (part->p_type == PT_LOAD) {
            out->begin = begin < out->begin ? begin : out->begin;
            out->end = begin + part->p_memsz > out->end ? begin + part->p_memsz
                                                        : out->end;
        }
    }
    return 1;
}

bool wb_find_torch(wb_object *out)
{
    return dl_iterate_phdr(report_is_torch, out) == 1;
}

/* sgemm_ and the like, LAPACK's names too, and the interface to C. */
static bool report_is_blas(const char *name)
{
    size_t n = strlen(name);

    if (strncmp(name, "cblas_", 6) == 0) {
        return true;
    }
    return n >= 5 && n <= 8 && strchr("sdcz", name[0]) != NULL &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789") == n - 1 &&
           name[n - 1] == '_';
}

/* Tables of the dynamic section that relocations are found by. */
typedef struct report_tables {
    const ElfW(Sym) * symbols;
    const char *strings;
    const ElfW(Rela) * jumps, *others;
    size_t n_jumps, n_others;
} report_tables;

/* The loader adds the base to these in place, save where the section is
 * read-only. */
static const void *report_pointer(const wb_object *object, uintptr_t value)
{
    uintptr_t at = value < object->base ? object->base + value : value;

    return (const void *)at;
}

static report_tables report_read(const wb_object *object)
{
    const ElfW(Dyn) *entry = report_pointer(object, object->dynamic);
    report_tables t = {0};

    for (; entry->d_tag != DT_NULL; entry++) {
        const void *at = report_pointer(object, entry->d_un.d_ptr);

        switch (entry->d_tag) {
        case DT_SYMTAB:
            t.symbols = at;
            break;
        case DT_STRTAB:
            t.strings = at;
            break;
        case DT_JMPREL:
            t.jumps = at;
            break;
        case DT_PLTRELSZ:
            t.n_jumps = entry->d_un.d_val / sizeof(ElfW(Rela));
            break;
        case DT_RELA:
            t.others = at;
            break;
        case DT_RELASZ:
            t.n_others = entry->d_un.d_val / sizeof(ElfW(Rela));
            break;
        default:
            break;
        }
    }
    return t;
}

/* Where a call through this slot leads. A slot that the loader has not filled
 * in yet leads back into libtorch_cpu.so, which is not where it will lead. */
static void report_slot(const wb_object *object, void *handle, const char *name,
                        uintptr_t slot)
{
    const void *bound = *(void *const *)report_pointer(object, slot);
    const void *own = dlsym(handle, name);
    const void *ours = dlsym(RTLD_DEFAULT, name);
    uintptr_t at = (uintptr_t)bound;
    int routine = wb_routine(name);
    const char *file = NULL;
    bool served = false;

    if (bound != own && at >= object->begin && at < object->end) {
        bound = ours ? ours : own;
    }
    if (routine >= 0 && bound == ours) {
        bound = NULL;
        if (!wb_target(routine, &bound)) { /* nothing was called so far */
            file = getenv("WEFTBLAS_LIBRARY");
        }
        served = bound != NULL || file != NULL;
        bound = bound ? bound : own;
    }
    report_add("bind\t%d\t%s\t%s\t%s\n", (int)getpid(), name,
               file ? file : report_file(bound),
               served ? "library" : "elsewhere");
}

static size_t report_slots(const wb_object *object, void *handle,
                           const report_tables *t, const ElfW(Rela) * slots,
                           size_t n)
{
    size_t found = 0;

    if (slots == NULL || t->symbols == NULL || t->strings == NULL) {
        return 0;
    }
    for (size_t i = 0; i < n; i++) {
        const ElfW(Sym) *symbol = t->symbols + ELF64_R_SYM(slots[i].r_info);
        const char *name = t->strings + symbol->st_name;

        if (WB_IS_SLOT(ELF64_R_TYPE(slots[i].r_info)) && report_is_blas(name)) {
            report_slot(object, handle, name, object->base + slots[i].r_offset);
            found++;
        }
    }
    return found;
}

void wb_note_bindings(void)
{
    wb_object torch = {0};
    report_tables t;
    void *handle;

    if (getenv("WEFTBLAS_REPORT") == NULL || !wb_find_torch(&torch)) {
        return;
    }
    handle = dlopen(torch.file, RTLD_LAZY | RTLD_NOLOAD);
    if (handle == NULL) {
        return;
    }
    report_process();
    report_add("torch\t%d\t%s\n", (int)getpid(), torch.file);
    t = report_read(&torch);
    if (report_slots(&torch, handle, &t, t.jumps, t.n_jumps) == 0) {
        (void)report_slots(&torch, handle, &t, t.others, t.n_others);
    }
    report_write();
    (void)dlclose(handle);
}

void wb_note_end(void)
{
    wb_object torch = {0};

    if (wb_find_torch(&torch)) {
        wb_note_bindings();
        report_add("end\t%d\n", (int)getpid());
        report_write();
    }
}
