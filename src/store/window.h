#ifndef WF_STORE_WINDOW_H
#define WF_STORE_WINDOW_H
#include <stdint.h>
typedef struct wf_window {
    int64_t x;
} wf_window;
static inline void wf_window_init(wf_window *w)
{
    w->x = 0;
}
static inline int64_t wf_window_ahead(wf_window *w, int64_t clock)
{
    (void)w;
    (void)clock;
    return 40;
}
#endif
