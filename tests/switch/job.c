/* SPDX-License-Identifier: Apache-2.0 */
#include "job.h"

#include <signal.h>
#include <stdio.h>

rig job_switch;

static job_plan plan; /* of the run */

enum { WORD_PORT = WT_WORDS - 1 };

void job_restart(void)
{
    rig_start(&job_switch, plan.options);
    wt_word_set(WORD_PORT, job_switch.port);
}

/* Of the switch; nobody is at port 1. */
static unsigned find_port(void)
{
    if (plan.options == NULL) {
        return 1;
    }
    if (wt_rank() == 0) {
        job_restart();
    }
    wt_word_await(WORD_PORT, 1);
    return atomic_load(wt_word(WORD_PORT));
}

static void run_rank(void)
{
    char settings[400];
    weft_world *world = NULL;

    (void)snprintf(settings, sizeof(settings),
                   "ENGINE=switch SWITCH=127.0.0.1:%u SWITCH_KEY=%s "
                   "TIMEOUT=60s %s",
                   find_port(), plan.key_file,
                   plan.settings != NULL ? plan.settings : "");
    WT_OK(wt_join(settings, 0, &world));
    plan.body(world);
    weft_world_destroy(world);
    if (plan.doomed == 0) {
        wt_meet(); /* others may still ask for their last results */
    }
    if (wt_rank() == 0 && job_switch.pid != 0) {
        (void)rig_stop(&job_switch, SIGKILL);
    }
}

void job_run_as(const job_plan *p)
{
    wt_job job;

    plan = *p;
    rig_init(&job_switch);
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

double job_chunks(void)
{
    return rig_metric(&job_switch, "weft_switch_job_results_total");
}
