/* SPDX-License-Identifier: Apache-2.0 */
#include "job.h"

#include <signal.h>
#include <stdio.h>

rig job_switches[JOB_SWITCHES];

static job_plan plan; /* of the run */

enum { WORD_PORT = WT_WORDS - JOB_SWITCHES };

void job_restart(unsigned which)
{
    rig_start(&job_switches[which], plan.options);
    wt_word_set(WORD_PORT + which, job_switches[which].port);
}

/* Of a switch; nobody is at port 1. */
static unsigned find_port(unsigned which)
{
    if (plan.options == NULL) {
        return 1;
    }
    if (wt_rank() == 0) {
        job_restart(which);
    }
    wt_word_await(WORD_PORT + which, 1);
    return atomic_load(wt_word(WORD_PORT + which));
}

static void write_settings(char *text, size_t room)
{
    size_t n = (size_t)snprintf(text, room, "SWITCH=");

    for (unsigned i = 0; i < plan.switches; i++) {
        n += (size_t)snprintf(text + n, room - n, "%s127.0.0.1:%u",
                              i > 0 ? "," : "", find_port(i));
    }
    if (plan.nodes != NULL) {
        n += (size_t)snprintf(text + n, room - n, " NODE=%c",
                              plan.nodes[wt_rank()]);
    }
    (void)snprintf(text + n, room - n,
                   " ENGINE=switch SWITCH_KEY=%s TIMEOUT=60s %s", plan.key_file,
                   plan.settings != NULL ? plan.settings : "");
}

static void run_rank(void)
{
    char settings[400];
    weft_world *world = NULL;

    write_settings(settings, sizeof(settings));
    WT_OK(wt_join(settings, 0, &world));
    plan.body(world);
    weft_world_destroy(world);
    if (plan.doomed == 0) {
        wt_meet(); /* others may still ask for their last results */
    }
    for (unsigned i = 0; wt_rank() == 0 && i < plan.switches; i++) {
        if (job_switches[i].pid != 0) {
            (void)rig_stop(&job_switches[i], SIGKILL);
        }
    }
}

void job_run_as(const job_plan *p)
{
    wt_job job;

    plan = *p;
    plan.switches = plan.switches == 0 ? 1 : plan.switches;
    rig_init(&job_switch);
    for (unsigned i = 1; i < plan.switches; i++) {
        rig_init_beside(&job_switches[i], &job_switch);
    }
    if (plan.key_file == NULL) {
        plan.key_file = job_switch.key_file;
    }
    job = (wt_job){.ranks = plan.ranks,
                   .bare = run_rank,
                   .doomed = plan.doomed,
                   .deadline = plan.deadline};
    if (WT_TSAN && plan.doomed == 0) {
        wt_run_job_threads(&job);
    } else {
        wt_run_job(&job);
    }
    rig_fini(&job_switch);
}

void job_run(unsigned ranks, const char *const *options, const char *settings,
             wt_body *body)
{
    job_run_as(&(job_plan){.ranks = ranks,
                           .options = options,
                           .settings = settings,
                           .body = body});
}

double job_chunks_of(unsigned which)
{
    return rig_metric(&job_switches[which], "weft_switch_job_results_total");
}

double job_chunks(void)
{
    double sum = 0;

    for (unsigned i = 0; i < plan.switches; i++) {
        sum += job_chunks_of(i);
    }
    return sum;
}
