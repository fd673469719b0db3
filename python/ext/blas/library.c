/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The chosen library, and which function of it serves which routine. It is
 * loaded by the first call, because most processes of a program (shells,
 * launchers) make none.
 */
#include "shim.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WB_STRING(name, ignored) #name,
const char *const wb_names[WB_N] = {WB_PLAIN(WB_STRING) WB_REAL_DOTS(WB_STRING)
                                        WB_COMPLEX_DOTS(WB_STRING)};

static struct {
    /* Published once the rest is set, and not before PyTorch is there: what it
     * expects of a complex dot product and its threads are not known earlier.
     */
    _Atomic(wb_function *) target;
    bool target_hidden;
    bool torch_hidden;
    bool noted; /* this process has told of its first call */
} routines[WB_N];

static struct {
    pthread_mutex_t lock; /* for all but `routines[].target` */
    /* Held during calls of a library that is for one thread; such a one may
     * call itself by a name that leads here. */
    pthread_mutex_t turn;
    bool takes_turns; /* set before the first target is published */
    bool tried;
    void *handle;    /* the library, or NULL if it cannot be loaded */
    void *torch;     /* libtorch_cpu.so, or NULL if it is not loaded */
    wb_object where; /* libtorch_cpu.so, if torch is not NULL */
} state = {.lock = PTHREAD_MUTEX_INITIALIZER,
           .turn = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP};

static wb_function *library_symbol(void *handle, const char *name)
{
    wb_function *found = NULL;

    /* ISO C has no cast from an object to a function; POSIX has this. */
    *(void **)&found = dlsym(handle, name);
    return found;
}

static wb_function *library_find(const char *name)
{
    const char *prefix = getenv("WEFTBLAS_PREFIX");
    char full[64];

    if (state.handle == NULL) {
        return NULL;
    }
    (void)snprintf(full, sizeof(full), "%s%s", prefix ? prefix : "", name);
    return library_symbol(state.handle, full);
}

static bool library_is_for_one_thread(void)
{
    typedef int counting(void);
    wb_function *parallel = library_find("openblas_get_parallel");

    return parallel != NULL && ((counting *)parallel)() == 0;
}

static void library_open(void)
{
    const char *file = getenv("WEFTBLAS_LIBRARY");

    state.tried = true;
    if (file == NULL) {
        wb_note_failure("WEFTBLAS_LIBRARY is not set");
        return;
    }
    state.handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (state.handle == NULL) {
        wb_note_failure(dlerror());
    }
    state.takes_turns = library_is_for_one_thread();
}

/* PyTorch may be loaded long after the first call of somebody else. */
static void library_meet_torch(void)
{
    if (state.torch == NULL && wb_find_torch(&state.where)) {
        state.torch = dlopen(state.where.file, RTLD_LAZY | RTLD_NOLOAD);
        if (state.torch != NULL) {
            wb_threads_open(state.handle, state.torch);
            wb_note_bindings();
        }
    }
}

/* What would be called without this file. */
static wb_function *library_own(const char *name)
{
    wb_function *own = library_symbol(RTLD_NEXT, name);

    if (own == NULL && state.torch != NULL) {
        own = library_symbol(state.torch, name);
    }
    return own;
}

/* A dot product of one element, called as if the value were stored. A function
 * that returns it takes `sum` for the length, which is 0, and touches nothing.
 */
static bool library_stores(wb_function *dot)
{
    typedef void storing(void *, const void *, const void *, const void *,
                         const void *, const void *);
    const double x[2] = {1, 1};
    const int one = 1;
    double sum[2] = {0, 0};

    ((storing *)dot)(sum, &one, x, &one, x, &one);
    return sum[0] != 0 || sum[1] != 0;
}

static bool library_is_complex_dot(const char *name)
{
    return strcmp(name + 1, "dotu_") == 0 || strcmp(name + 1, "dotc_") == 0;
}

static wb_function *library_resolve(int routine)
{
    wb_function *target = library_find(wb_names[routine]);
    wb_function *own = library_own(wb_names[routine]);

    if (target == NULL) {
        target = own;
    }
    if (target == NULL) { /* what the loader does when a symbol is missing */
        (void)fprintf(stderr, "weft blas: no library here has %s\n",
                      wb_names[routine]);
        _exit(127);
    }
    if (library_is_complex_dot(wb_names[routine])) {
        routines[routine].target_hidden = library_stores(target);
        routines[routine].torch_hidden = own != NULL && library_stores(own);
    }
    return target;
}

static wb_function *library_first_call(int routine, const void *caller)
{
    wb_function *target;

    (void)pthread_mutex_lock(&state.lock);
    if (!state.tried) {
        library_open();
    }
    library_meet_torch();
    target = library_resolve(routine);
    if (!routines[routine].noted) {
        routines[routine].noted = true;
        wb_note_call(wb_names[routine], caller, *(void **)&target);
    }
    if (state.torch != NULL) {
        /* Publishes the conventions; pairs with the acquire in wb_enter. */
        atomic_store_explicit(&routines[routine].target, target,
                              memory_order_release);
    }
    (void)pthread_mutex_unlock(&state.lock);
    return target;
}

wb_function *wb_enter(int routine, const void *caller)
{
    wb_function *target =
        atomic_load_explicit(&routines[routine].target, memory_order_acquire);

    if (target == NULL) {
        target = library_first_call(routine, caller);
    }
    wb_threads_follow();
    if (state.takes_turns) {
        (void)pthread_mutex_lock(&state.turn);
    }
    return target;
}

void wb_leave(void)
{
    if (state.takes_turns) {
        (void)pthread_mutex_unlock(&state.turn);
    }
}

bool wb_target_hidden(int routine)
{
    return routines[routine].target_hidden;
}

/* Others than PyTorch are taken to be made by gfortran or gcc. */
bool wb_caller_hidden(int routine, const void *caller)
{
    uintptr_t at = (uintptr_t)caller;

    return routines[routine].torch_hidden && at >= state.where.begin &&
           at < state.where.end;
}

bool wb_target(int routine, const void **out)
{
    wb_function *found = library_find(wb_names[routine]);

    if (found != NULL) {
        *out = *(void **)&found;
    }
    return state.tried;
}

int wb_routine(const char *name)
{
    for (int i = 0; i < WB_N; i++) {
        if (strcmp(wb_names[i], name) == 0) {
            return i;
        }
    }
    return -1;
}

static void library_before_fork(void)
{
    (void)pthread_mutex_lock(&state.turn);
    (void)pthread_mutex_lock(&state.lock);
}

static void library_after_fork(void)
{
    (void)pthread_mutex_unlock(&state.lock);
    (void)pthread_mutex_unlock(&state.turn);
}

/* The child says for itself what it calls. */
static void library_in_child(void)
{
    library_after_fork();
    for (int i = 0; i < WB_N; i++) {
        routines[i].noted = false;
        atomic_store_explicit(&routines[i].target, NULL, memory_order_relaxed);
    }
}

__attribute__((constructor)) static void library_loaded(void)
{
    (void)pthread_atfork(library_before_fork, library_after_fork,
                         library_in_child);
}

/* A thread that is just making its first call at the end is not waited for. */
__attribute__((destructor)) static void library_unloaded(void)
{
    if (pthread_mutex_trylock(&state.lock) == 0) {
        wb_note_end();
        (void)pthread_mutex_unlock(&state.lock);
    }
}
