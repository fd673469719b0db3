/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/mpi.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#include "base/library.h"
#include "base/secret.h"
#include "base/status.h"
#include "boot/boot.h"
#include "boot/launcher.h"

/* A library of MPI, and how it is recognised. */
typedef struct mpi_abi {
    const char *name; /* as the setting has it */
    const char *file; /* our library for it */
    /* What its launcher sets. */
    const char *variable[4];
} mpi_abi;

static const mpi_abi abis[] = {
    {"openmpi",
     "libweft_mpi_openmpi.so",
     {"OMPI_COMM_WORLD_SIZE", "OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE"}},
    {"mpich",
     "libweft_mpi_mpich.so",
     {"PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS", "PMI_FD"}},
};

enum { OPENMPI, MPICH, ABIS };

/* --- which one ------------------------------------------------------------ */

/* Looks at one library of this process; `found` is an index or ABIS. */
static int look_at(struct dl_phdr_info *info, size_t size, void *found)
{
    const char *slash = strrchr(info->dlpi_name, '/');
    const char *name = slash != NULL ? slash + 1 : info->dlpi_name;
    void *library = NULL;
    int *out = found;

    (void)size;
    if (strncmp(name, "libmpi.so", 9) == 0 ||
        strncmp(name, "libmpich.so", 11) == 0) {
        library = dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
    }
    if (library != NULL && dlsym(library, "ompi_mpi_comm_world") != NULL) {
        *out = OPENMPI;
    } else if (library != NULL && dlsym(library, "MPI_Init_thread") != NULL) {
        *out = MPICH;
    }
    if (library != NULL) {
        dlclose(library);
    }
    return *out != ABIS;
}

static int abi_loaded(void)
{
    int found = ABIS;

    (void)dl_iterate_phdr(look_at, &found);
    return found;
}

static int abi_launched(void)
{
    for (int i = 0; i < ABIS; i++) {
        for (size_t v = 0; v < 4 && abis[i].variable[v] != NULL; v++) {
            if (wf_boot_env(abis[i].variable[v]) != NULL) {
                return i;
            }
        }
    }
    return ABIS;
}

weft_status wf_boot_mpi_library(const wf_settings *settings, const char **file)
{
    int found = ABIS;

    if (strcmp(settings->mpi, "auto") == 0) {
        found = abi_loaded();
        found = found != ABIS ? found : abi_launched();
    } else {
        for (int i = 0; i < ABIS; i++) {
            found = strcmp(settings->mpi, abis[i].name) == 0 ? i : found;
        }
        if (found == ABIS) {
            return wf_fail(WEFT_ERR_INVALID,
                           "setting WEFT_MPI is '%s'; it takes auto, openmpi "
                           "or mpich",
                           settings->mpi);
        }
    }
    if (found == ABIS) {
        return wf_fail(WEFT_ERR_UNSUPPORTED,
                       "no MPI library is loaded, and no launcher of MPI has "
                       "started this process");
    }
    *file = abis[found].file;
    return WEFT_OK;
}

weft_status wf_boot_mpi_wanted(bool insist)
{
    wf_boot_launch launch;
    weft_status st;

    if (abi_launched() == ABIS) {
        return wf_fail(WEFT_ERR_UNSUPPORTED,
                       "MPI is not initialised, and no launcher of MPI has "
                       "started this process");
    }
    if (insist) {
        return WEFT_OK;
    }
    st = wf_boot_read_launch(&launch);
    return st == WEFT_OK && !launch.several_hosts
               ? wf_fail(WEFT_ERR_UNSUPPORTED,
                         "MPI is not initialised, and all ranks are on one "
                         "host: name mpi in WEFT_TRANSPORTS to use it")
               : WEFT_OK;
}

/* --- which run of mpirun -------------------------------------------------- */

/* Where mpirun listens: the same on all hosts, and taken while it runs. It
 * stands in the command line of the proxy that is among our ancestors. */
static bool hydra_port(char *text, size_t room)
{
    char line[4096];
    static const char option[] = "--control-port";
    size_t n = wf_boot_proxy_line(line, sizeof(line));

    for (size_t at = 0; at < n; at += strlen(line + at) + 1) {
        if (strcmp(line + at, option) == 0 && at + sizeof(option) < n) {
            snprintf(text, room, "%s", line + at + sizeof(option));
            return true;
        }
    }
    return false;
}

/* The first of these that there is. One host of a Slurm job may lack a variable
 * of Slurm that another one has, so these count only where nothing else does.
 */
static void job_text(char *text, size_t room)
{
    static const char *const variable[] = {
        "OMPI_MCA_orte_precondition_transports", "PMI_JOBID", "PMIX_NAMESPACE"};
    const char *job = wf_boot_env("SLURM_JOB_ID");
    const char *step = wf_boot_env("SLURM_STEP_ID");

    for (size_t i = 0; i < sizeof(variable) / sizeof(variable[0]); i++) {
        const char *value = wf_boot_env(variable[i]);

        if (value != NULL) {
            snprintf(text, room, "%s", value);
            return;
        }
    }
    if (!hydra_port(text, room) && job != NULL && step != NULL) {
        snprintf(text, room, "%s.%s", job, step);
    }
}

uint64_t wf_boot_mpi_job(void)
{
    static const wf_secret key = {{0x7765667420696e20, 0x6d70692061646472}};
    char text[1024] = "";

    job_text(text, sizeof(text));
    return text[0] != '\0' ? wf_keyed_hash(&key, text, strlen(text)) : 0;
}

/* --- the table ------------------------------------------------------------ */

weft_status wf_boot_open_mpi(const wf_settings *settings, weft_boot **out)
{
    const char *file = NULL;
    const void *found = NULL;
    wf_boot_mpi_open_fn *open_it;
    weft_status st = wf_boot_mpi_library(settings, &file);

    if (st == WEFT_OK) {
        st = wf_library_find(NULL, file, WF_BOOT_MPI_SYMBOL, &found);
    }
    if (st != WEFT_OK) {
        return st;
    }
    /* ISO C has no cast from data to functions. */
    memcpy(&open_it, &found, sizeof(open_it));
    return open_it(out);
}
