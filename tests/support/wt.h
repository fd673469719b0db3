/* SPDX-License-Identifier: Apache-2.0 */
/* Running ranks in tests.
 *
 * wt_run forks the ranks before the library is touched, so that each one is as
 * fresh as a process of a real job. wt_run_threads runs the same body with the
 * ranks as threads of one forked process, which is what ThreadSanitizer can
 * see. In both, the parent waits with a deadline, kills what hangs, and fails
 * the cmocka test with the rank and the reason.
 *
 * Inside a rank cmocka's assertions are of no use, since they jump to the
 * parent's stack. WT_CHECK and its sisters print where and why, leave the
 * reason for the parent and end the process. */
#ifndef WT_H
#define WT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/weft.h>

/* Ranks of one run at most; WT_WORDS is what the tests may share. */
#define WT_MAX_RANKS 32
#define WT_WORDS 128

/* What a rank exits with when this machine cannot run the test. */
#define WT_EXIT_SKIP 77

#if defined(__SANITIZE_THREAD__)
#define WT_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WT_TSAN 1
#endif
#endif
#ifndef WT_TSAN
#define WT_TSAN 0
#endif

#if defined(__SANITIZE_ADDRESS__)
#define WT_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WT_ASAN 1
#endif
#endif
#ifndef WT_ASAN
#define WT_ASAN 0
#endif

/* How much longer things may take in this build. */
#define WT_SLOWDOWN (WT_TSAN ? 8.0 : WT_ASAN ? 4.0 : 1.0)

/* What a rank does, with a world that the caller makes and destroys. */
typedef void wt_body(weft_world *world);

typedef struct wt_job {
    unsigned ranks;
    /* Settings of every rank, or NULL; settings_of, if there is one, gives each
     * rank its own instead. */
    const char *settings;
    const char *(*settings_of)(unsigned rank);
    /* `bare`, if there is one, runs instead of `body`, without a world, and
     * may make its own. */
    wt_body *body;
    void (*bare)(void);
    /* Bit r: rank r may end in any way. It and its children are killed once
     * all other ranks are done. */
    uint32_t doomed;
    /* Seconds; 0 means 120. Longer under sanitizers. */
    double deadline;
} wt_job;

/* Run the job with ranks as processes. Skips the test under TSan. */
void wt_run_job(const wt_job *job);
void wt_run(unsigned ranks, const char *settings, wt_body *body);

/* Run the job with ranks as threads of one process. Nobody may be doomed. */
void wt_run_job_threads(const wt_job *job);
void wt_run_threads(unsigned ranks, const char *settings, wt_body *body);

/* As processes, then as threads; as threads only under TSan. */
void wt_run_both(unsigned ranks, const char *settings, wt_body *body);
void wt_run_job_both(const wt_job *job);

/* A job on pretended nodes, `ranks` on each, with a timeout of 60 s; one at a
 * time. And wt_run_job_both of it. */
wt_job wt_job_on_nodes(unsigned nodes, unsigned ranks, wt_body *body);
void wt_run_nodes(unsigned nodes, unsigned ranks, wt_body *body);
/* On 1, 2, 3, 5 and 8 ranks. */
void wt_run_counts(const char *settings, wt_body *body);

/* 1 if WT_FULL=1 is in the environment: run whole cross products. */
bool wt_full(void);

/* The largest useful element count or size for this build: `n`, or a small
 * part of it under TSan, where memory costs a hundred times as much. */
size_t wt_scaled(size_t n);

/* --- inside a rank ------------------------------------------------------- */

/* The caller's rank and the number of ranks of the run. */
unsigned wt_rank(void);
unsigned wt_ranks(void);

/* Do messages between nodes go over this kind of transport (WT_TRANSPORT)? */
bool wt_over(const char *kind);

/* Let a thread that the test started speak for `rank`. */
void wt_speak_for(unsigned rank);

/* The name of the run; a run has one for each `round`, the same on all ranks.
 */
void wt_job_name(unsigned round, char *text, size_t room);

/* Make a world over weft_boot_open_local, with the run's name for `round`. */
weft_status wt_join(const char *settings, unsigned round, weft_world **out);

/* What wt_join puts worlds together from; NULL: what the library does. Set
 * before the ranks are forked. */
extern const struct wf_parts *wt_parts;

/* The table that wt_join uses. All ranks call this, and have reached rank 0
 * when it returns: of one that comes when rank 0 has gone, nobody can know. */
weft_boot *wt_boot(unsigned round);

/* Words that all ranks of this run share, zero at its start. */
_Atomic uint32_t *wt_word(unsigned index);

/* Sleep until the word differs from `value` / is at least `value`; set it and
 * wake all sleepers; add to it and wake. */
void wt_word_await(unsigned index, uint32_t value);
void wt_word_set(unsigned index, uint32_t value);
void wt_word_add(unsigned index, uint32_t value);

/* Return when all ranks of the run have called it. Does not use the library. */
void wt_meet(void);

/* Sleep until the parent has seen rank `rank` stop or end. */
void wt_await_gone(unsigned rank);

/* Seconds of the monotonic clock, the same in all processes. */
double wt_now(void);

/* Compare bytes over the ranks of the world: ends the rank that has others
 * than rank 0. All ranks call it. */
void wt_check_same(weft_world *world, const void *bytes, size_t n);

/* 1 if `text` speaks of rank `rank` ("rank 1" is not in "rank 12"). */
bool wt_names_rank(const char *text, unsigned rank);

/* End this rank, or print and go on in the case of wt_note. */
_Noreturn void wt_fail_at(const char *file, int line, const char *fmt, ...)
    WEFT_PRINTF(3, 4);
_Noreturn void wt_skip(const char *why);
void wt_note(const char *fmt, ...) WEFT_PRINTF(1, 2);

/* The bodies of the macros below. */
void wt_check_ok(const char *file, int line, const char *text, weft_status st);
void wt_check_status(const char *file, int line, const char *text,
                     weft_status got, weft_status want);

#define WT_FAIL(...) wt_fail_at(__FILE__, __LINE__, __VA_ARGS__)
#define WT_SKIP(why) wt_skip(why)

#define WT_CHECK(cond)                                                         \
    ((cond) ? (void)0 : wt_fail_at(__FILE__, __LINE__, "%s is false", #cond))

/* The call succeeds / fails with exactly this status. */
#define WT_OK(call) wt_check_ok(__FILE__, __LINE__, #call, (call))
#define WT_STATUS(call, want)                                                  \
    wt_check_status(__FILE__, __LINE__, #call, (call), (want))

#endif
