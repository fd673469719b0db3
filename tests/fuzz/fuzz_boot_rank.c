/* SPDX-License-Identifier: Apache-2.0 */
/* A rank that meets something at rank 0's address which sends any bytes and
 * then hangs up. The rank ends every call with a status, at once. */
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <weft/boot.h>
#include <weft/log.h>

#include "boot/local.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

typedef struct answer {
    int listener;
    const uint8_t *data;
    size_t n;
} answer;

static void must(int holds)
{
    if (!holds) {
        abort();
    }
}

static void *answer_main(void *arg)
{
    const answer *a = arg;
    struct pollfd p = {.fd = a->listener, .events = POLLIN};
    char heard[256];
    int fd;

    must(poll(&p, 1, -1) == 1);
    fd = accept(a->listener, NULL, NULL);
    must(fd >= 0);
    (void)!send(fd, a->data, a->n, MSG_NOSIGNAL | MSG_DONTWAIT);
    shutdown(fd, SHUT_WR);
    while (recv(fd, heard, sizeof(heard), 0) > 0) {
    }
    close(fd);
    return NULL;
}

static void be_a_rank(const char *name)
{
    weft_boot *boot = NULL;
    char value[64];
    size_t n = sizeof(value);

    must(weft_boot_open_local(name, 1, 2, &boot) == WEFT_OK);
    (void)boot->set(boot->ctx, "mine", "x", 1);
    if (boot->get(boot->ctx, "key", value, &n, 60000) == WEFT_OK) {
        must(n <= sizeof(value));
    }
    n = 0;
    (void)boot->get(boot->ctx, "key", value, &n, 60000);
    weft_boot_close(boot);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    answer a = {-1, data, n};
    wf_boot_holder holder;
    wf_boot_name at;
    pthread_t thread;
    char name[32];

    weft_log_set_level(WEFT_LOG_ERROR);
    snprintf(name, sizeof(name), "fuzz-%d", (int)getpid());
    wf_boot_local_name(name, &at);
    must(wf_boot_name_listen(&at, &a.listener, &holder) == WEFT_OK);
    must(a.listener >= 0);
    must(pthread_create(&thread, NULL, answer_main, &a) == 0);
    be_a_rank(name);
    must(pthread_join(thread, NULL) == 0);
    close(a.listener);
    return 0;
}
