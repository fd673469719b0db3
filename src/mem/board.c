/* SPDX-License-Identifier: Apache-2.0 */
#include "mem/board.h"

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/num.h"
#include "base/time.h"

#define UNFENCED_NAP_NS WF_MS

static long futex(_Atomic uint32_t *word, int op, uint32_t value,
                  const struct timespec *timeout)
{
    return syscall(SYS_futex, word, op, value, timeout, NULL, 0);
}

void wf_board_wake(wf_board_rank *r)
{
    /* Pairs with the sleeper's read of the bell before its second look. */
    atomic_fetch_add_explicit(&r->bell, 1, memory_order_release);
    futex(&r->bell, FUTEX_WAKE, INT32_MAX, NULL);
}

bool wf_board_end(wf_board *board, uint32_t rank, uint32_t state)
{
    uint32_t here = WF_BOARD_HERE;
    bool news =
        atomic_compare_exchange_strong(&board->rank[rank].state, &here, state);

    if (news) {
        atomic_fetch_add(&board->gone, 1);
    }
    return news;
}

bool wf_board_register_barrier(void)
{
    return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0,
                   0) == 0;
}

uint32_t wf_board_drowse(wf_board *board, wf_board_rank *self)
{
    uint32_t bell = atomic_load_explicit(&self->bell, memory_order_acquire);

    atomic_fetch_add_explicit(&self->asleep, 1, memory_order_seq_cst);
    /* Orders the announcement before the second look, also where an atomic
     * addition alone does not. */
    atomic_thread_fence(memory_order_seq_cst);
    if (self->fence == 0 &&
        atomic_load_explicit(&board->unfenced, memory_order_relaxed) == 0) {
        syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
    }
    return bell;
}

/* Sleep while the word has this value, until it is woken or `until_ns`. */
static void sleep_on(_Atomic uint32_t *word, uint32_t value, uint64_t until_ns)
{
    uint64_t now = wf_now_ns();
    uint64_t nap = until_ns > now ? until_ns - now : 0;
    struct timespec t = {(time_t)(nap / WF_SEC), (long)(nap % WF_SEC)};

    if (nap > 0) {
        futex(word, FUTEX_WAIT, value, &t);
    }
}

void wf_board_sleep(wf_board *board, wf_board_rank *self, uint32_t bell,
                    uint64_t until_ns)
{
    if (self->fence == 0 &&
        atomic_load_explicit(&board->unfenced, memory_order_relaxed) != 0) {
        uint64_t end = wf_now_ns() + UNFENCED_NAP_NS;

        until_ns = wf_least(end, until_ns);
    }
    sleep_on(&self->bell, bell, until_ns);
}

void wf_board_awake(wf_board_rank *self)
{
    atomic_fetch_sub_explicit(&self->asleep, 1, memory_order_relaxed);
}

void wf_board_wake_listener(wf_board_rank *r)
{
    atomic_fetch_add_explicit(&r->second_bell, 1, memory_order_release);
    futex(&r->second_bell, FUTEX_WAKE, INT32_MAX, NULL);
}

void wf_board_ring_all(wf_board_rank *r)
{
    if (wf_board_listens(r)) { /* fences */
        wf_board_wake_listener(r);
    }
    if (atomic_load(&r->asleep) != 0) {
        wf_board_wake(r);
    }
}

uint32_t wf_board_listen(wf_board_rank *self)
{
    uint32_t bell =
        atomic_load_explicit(&self->second_bell, memory_order_acquire);

    atomic_fetch_add_explicit(&self->listening, 1, memory_order_seq_cst);
    /* Pairs with the fence in wf_board_listens: either the poster sees this, or
     * the second look sees what it posted. */
    atomic_thread_fence(memory_order_seq_cst);
    return bell;
}

void wf_board_sleep_listening(wf_board_rank *self, uint32_t bell,
                              uint64_t until_ns)
{
    sleep_on(&self->second_bell, bell, until_ns);
}

void wf_board_unlisten(wf_board_rank *self)
{
    atomic_fetch_sub_explicit(&self->listening, 1, memory_order_relaxed);
}

void wf_board_stand_in(wf_board_rank *self)
{
    atomic_fetch_sub_explicit(&self->listening, WF_BOARD_STAND_IN,
                              memory_order_relaxed);
}

void wf_board_step_back(wf_board_rank *self)
{
    atomic_fetch_add_explicit(&self->listening, WF_BOARD_STAND_IN,
                              memory_order_seq_cst);
    atomic_thread_fence(memory_order_seq_cst); /* as in wf_board_listen */
}
