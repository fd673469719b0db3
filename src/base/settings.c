/* SPDX-License-Identifier: Apache-2.0 */
#include "base/settings.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/status.h"

extern char **environ;

typedef weft_status parse_fn(const char *text, void *field);

typedef struct setting {
    const char *name;
    const char *fallback;
    parse_fn *parse;
    size_t offset;
    size_t room; /* of a text, which needs no parser; 0: of anything else */
    const char *help;
} setting;

weft_status wf_parse_bytes(const char *text, uint64_t *out)
{
    static const char units[] = "kmgt";
    char *end;
    unsigned long long v;
    const char *unit;
    unsigned shift;

    errno = 0;
    v = strtoull(text, &end, 10);
    unit = *end != '\0' ? strchr(units, tolower((unsigned char)*end)) : NULL;
    if (!isdigit((unsigned char)text[0]) || errno != 0 ||
        (*end != '\0' && (unit == NULL || end[1] != '\0'))) {
        return wf_fail(WEFT_ERR_INVALID,
                       "'%s' is not a number of bytes (4096, 64K, 2M, 1G)",
                       text);
    }
    shift = unit != NULL ? 10u * (unsigned)(unit - units + 1) : 0;
    if (v > (UINT64_MAX >> shift)) {
        return wf_fail(WEFT_ERR_INVALID, "'%s' is too large", text);
    }
    *out = (uint64_t)v << shift;
    return WEFT_OK;
}

weft_status wf_parse_duration(const char *text, uint64_t *ns)
{
    static const struct {
        const char *name;
        double ns;
    } units[] = {{"us", 1e3}, {"ms", 1e6},   {"s", 1e9},
                 {"m", 60e9}, {"h", 3600e9}, {"", 1e9}};
    char *end;
    double v = strtod(text, &end);
    size_t i;

    if (end != text && v >= 0 && v < 1e9) {
        for (i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
            if (strcmp(end, units[i].name) == 0 && v * units[i].ns < 1e19) {
                *ns = (uint64_t)(v * units[i].ns);
                return WEFT_OK;
            }
        }
    }
    return wf_fail(WEFT_ERR_INVALID,
                   "'%s' is not a duration (50us, 20ms, 5s, 30m, 1h)", text);
}

static weft_status parse_bytes(const char *text, void *field)
{
    return wf_parse_bytes(text, field);
}

/* Is it left to the library? */
static bool parse_auto(const char *text, uint64_t *out)
{
    bool is_auto = strcmp(text, "auto") == 0;

    *out = is_auto ? UINT64_MAX : *out;
    return is_auto;
}

static weft_status parse_auto_bytes(const char *text, void *field)
{
    return parse_auto(text, field) ? WEFT_OK : wf_parse_bytes(text, field);
}

static weft_status parse_timeout(const char *text, void *field)
{
    weft_status st = wf_parse_duration(text, field);

    if (st == WEFT_OK && *(uint64_t *)field == 0) {
        st = wf_fail(WEFT_ERR_INVALID, "timeout must be greater than 0");
    }
    return st;
}

static weft_status parse_auto_duration(const char *text, void *field)
{
    return parse_auto(text, field) ? WEFT_OK : wf_parse_duration(text, field);
}

static weft_status parse_u32(const char *text, void *field)
{
    char *end;
    unsigned long v;

    errno = 0;
    v = strtoul(text, &end, 10);
    if (!isdigit((unsigned char)text[0]) || *end != '\0' || errno != 0 ||
        v > UINT32_MAX) {
        return wf_fail(WEFT_ERR_INVALID, "'%s' is not a whole number", text);
    }
    *(uint32_t *)field = (uint32_t)v;
    return WEFT_OK;
}

static weft_status parse_bool(const char *text, void *field)
{
    static const char *const yes[] = {"1", "yes", "on", "true"};
    static const char *const no[] = {"0", "no", "off", "false"};
    size_t i;

    for (i = 0; i < 4; i++) {
        if (strcmp(text, yes[i]) == 0 || strcmp(text, no[i]) == 0) {
            *(bool *)field = strcmp(text, yes[i]) == 0;
            return WEFT_OK;
        }
    }
    return wf_fail(WEFT_ERR_INVALID, "'%s' is not 0 or 1", text);
}

static weft_status parse_cma(const char *text, void *field)
{
    bool on = false;
    weft_status st = WEFT_OK;

    if (strcmp(text, "auto") == 0) {
        *(uint32_t *)field = WF_CMA_AUTO;
        return WEFT_OK;
    }
    st = parse_bool(text, &on);
    if (st == WEFT_OK) {
        *(uint32_t *)field = on ? WF_CMA_ON : WF_CMA_OFF;
    }
    return st;
}

static weft_status parse_text(const char *text, char *field, size_t room)
{
    if (strlen(text) >= room) {
        return wf_fail(WEFT_ERR_INVALID, "'%s' is longer than %zu characters",
                       text, room - 1);
    }
    snprintf(field, room, "%s", text);
    return WEFT_OK;
}

static weft_status parse_choice(const char *text, void *field,
                                const char *const *names, uint32_t count)
{
    char all[64] = "";

    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(text, names[i]) == 0) {
            *(uint32_t *)field = i;
            return WEFT_OK;
        }
        wf_add_word(all, sizeof(all), names[i]);
    }
    return wf_fail(WEFT_ERR_INVALID, "'%s' is not one of %s", text, all);
}

static weft_status parse_log(const char *text, void *field)
{
    static const char *const names[] = {"error", "warn", "info", "debug",
                                        "trace"};

    return parse_choice(text, field, names, 5);
}

static weft_status parse_huge(const char *text, void *field)
{
    static const char *const names[] = {"off", "thp", "hugetlb"};

    return parse_choice(text, field, names, 3);
}

/* A field that `parse` fills in; one that holds a text; and none, for what is
 * read elsewhere and listed for its help. */
#define FIELD(parse, field) parse, offsetof(wf_settings, field), 0
#define TEXT(field)                                                            \
    NULL, offsetof(wf_settings, field), sizeof(((wf_settings *)0)->field)
#define ELSEWHERE NULL, 0, 0

static const setting table[] = {
    {"LOG", "warn", FIELD(parse_log, log),
     "What is logged: error, warn, info, debug or trace"},
    {"TIMEOUT", "30m", FIELD(parse_timeout, timeout_ns),
     "How long an operation waits for its peers"},
    {"BOOT_TIMEOUT", "5m", FIELD(parse_timeout, boot_timeout_ns),
     "How long joining the job waits for the other ranks"},
    {"HOST_TIMEOUT", "15s", FIELD(parse_timeout, host_timeout_ns),
     "How long a host may be silent before its ranks are taken for dead, the "
     "same on all ranks"},
    {"HEARTBEAT", "500ms", FIELD(parse_timeout, heartbeat_ns),
     "How often neighbouring hosts tell each other that they are there"},
    {"NODE", "", TEXT(node),
     "Ranks with different names map no memory of each other, even on one "
     "host"},
    {"TRANSPORTS", "auto", TEXT(transports),
     "Transports that may be used, with commas between (self,shm), the same "
     "on all ranks; they must be there. auto: all that are"},
    {"MPI", "auto", TEXT(mpi),
     "The library of transport mpi: openmpi, mpich, or auto: what is loaded, "
     "or what the launcher belongs to"},
    {"ENGINE", "auto", TEXT(engine),
     "The engine of all collectives, by name (shm, hosts, message, switch), "
     "where it can serve"},
    {"ALGORITHM", "auto", TEXT(algorithm),
     "Algorithms of the message engine, as allreduce=ring,broadcast=binomial; "
     "auto, and for all others: by size and ranks"},
    {"SWITCH", "", TEXT(switch_at),
     "A weft-switch, as host:port, or several with commas between, through "
     "which allreduce goes where that pays; the same on all ranks"},
    {"SWITCH_KEY", "", TEXT(switch_key),
     "The file with the switch's key, which weft-switch key writes"},
    {"SWITCH_PAYLOAD", "1088", FIELD(parse_bytes, switch_payload),
     "Bytes of data in a packet to the switch: what the links carry, less 112, "
     "in whole lines of 64 (8832 where they carry 9000); the same on all "
     "ranks"},
    {"SWITCH_SLOTS", "0", FIELD(parse_u32, switch_slots),
     "Packets of a rank that may be under way in each shard of the switch; 0: "
     "256, or as many as make half a MiB; the same on all ranks"},
    {"SPIN", "auto", FIELD(parse_auto_duration, spin_ns),
     "How long a wait polls before it yields its core"},
    {"YIELD", "auto", FIELD(parse_auto_duration, yield_ns),
     "How long it then yields before it sleeps"},
    {"HUGE", "thp", FIELD(parse_huge, huge),
     "Huge pages for shared memory: off, thp or hugetlb"},
    {"ARENA", "auto", FIELD(parse_auto_bytes, arena_bytes),
     "Address space of each rank for memory that the ranks of its node read "
     "where it lies; 0: none; auto: as much as the host has memory"},
    {"ARENA_KEEP", "auto", FIELD(parse_auto_bytes, arena_keep_bytes),
     "Memory of freed blocks of it that a rank keeps for the next ones; auto: "
     "an eighth of the host's, by its ranks"},
    {"SHM_RING_BYTES", "64K", FIELD(parse_bytes, ring_bytes),
     "Ring between each two ranks for messages; a power of two"},
    {"SHM_EAGER", "8K", FIELD(parse_bytes, eager_bytes),
     "Messages up to this size are copied through the ring at once"},
    {"SHM_CMA", "auto", FIELD(parse_cma, cma),
     "Read large messages and blocks of collectives straight from the sender's "
     "memory, where the kernel allows it: 1, 0, or auto: messages when ranks "
     "outnumber cores, large scatters among three ranks and more, alltoalls "
     "among "
     "eight and more with a core each; the same on all ranks. With 1 also all "
     "large messages that lie in the arena, else read where that is faster"},
    {"UCX_EAGER", "64K", FIELD(parse_bytes, ucx_eager_bytes),
     "Messages up to this size are sent over UCX before there is a receive"},
    {"MESH_RANKS", "64", FIELD(parse_u32, mesh_ranks),
     "Up to so many ranks a host, each watches every other one"},
    {"FLAT_BYTES", "auto", FIELD(parse_auto_bytes, flat_bytes),
     "Up to this size every rank reduces all of an allreduce by itself"},
    {"CHUNK_BYTES", "auto", FIELD(parse_auto_bytes, chunk_bytes),
     "Piece in which a rank passes large data to the others"},
    {"CUDA_DRIVER", "auto", TEXT(cuda_driver),
     "For tests: a library that replaces the CUDA driver"},
    {"THREADS", "0", FIELD(parse_u32, threads),
     "Threads of row operations on the CPU; 0: cores by ranks of the host"},
    {"CUDA_LIBRARY", "auto", ELSEWHERE,
     "The file with the kernels for GPUs; auto: libweft_cuda.so beside "
     "libweft"},
    {"CPU", "auto", ELSEWHERE,
     "Vector unit of the reduce kernels: auto, plain, avx2 or avx512"},
    {"TORCH_BLOCKING_WAIT", "0", ELSEWHERE,
     "Calls of torch.distributed on CUDA tensors make the host wait, and raise "
     "where they fail: 1 or 0"},
    {"RANK", "", ELSEWHERE, "This process's rank, when no launcher gives it"},
    {"RANKS", "", ELSEWHERE, "Number of ranks, when no launcher gives it"},
    {"JOB", "", ELSEWHERE, "Name of the job, the same on all its ranks"},
    {"BOOT", "auto", ELSEWHERE,
     "How ranks of a launcher find each other: local (one host), dir "
     "(WEFT_BOOT_DIR), pmix, mpi. auto: what suits the job"},
    {"BOOT_DIR", "", ELSEWHERE,
     "Directory that all ranks see, through which they find each other"},
};

enum { SETTINGS = sizeof(table) / sizeof(table[0]) };

static const char *setting_env(const setting *s)
{
    char name[64];
    const char *value;

    snprintf(name, sizeof(name), "WEFT_%s", s->name);
    value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

static weft_status setting_apply(const setting *s, const char *value,
                                 wf_settings *out)
{
    weft_status st = WEFT_OK;

    if (s->room > 0) {
        st = parse_text(value, (char *)out + s->offset, s->room);
    } else if (s->parse != NULL) {
        st = s->parse(value, (char *)out + s->offset);
    }
    return st == WEFT_OK ? st
                         : wf_fail(st, "setting WEFT_%s: %s", s->name,
                                   weft_error_detail());
}

static const setting *setting_find(const char *name, size_t n)
{
    for (size_t i = 0; i < SETTINGS; i++) {
        if (strlen(table[i].name) == n && memcmp(table[i].name, name, n) == 0) {
            return &table[i];
        }
    }
    return NULL;
}

/* One "NAME=value" of the overrides. */
static weft_status override_apply(const char *word, size_t n, wf_settings *out)
{
    const char *eq = memchr(word, '=', n);
    const setting *s;
    char value[256];
    size_t len;

    if (eq == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "setting '%.*s' has no '='", (int)n,
                       word);
    }
    s = setting_find(word, (size_t)(eq - word));
    if (s == NULL || (s->parse == NULL && s->room == 0)) {
        return wf_fail(WEFT_ERR_INVALID,
                       "'%.*s' is not a setting that can be given in code "
                       "(weft doctor --settings lists them)",
                       (int)(eq - word), word);
    }
    len = n - (size_t)(eq + 1 - word);
    if (len >= sizeof(value)) {
        return wf_fail(WEFT_ERR_INVALID, "setting %s is too long", s->name);
    }
    memcpy(value, eq + 1, len);
    value[len] = '\0';
    return setting_apply(s, value, out);
}

weft_status wf_settings_load(const char *overrides, wf_settings *out)
{
    wf_settings s;
    weft_status st;
    const char *p;

    memset(&s, 0, sizeof(s));
    for (size_t i = 0; i < SETTINGS; i++) {
        const char *env = setting_env(&table[i]);

        st =
            setting_apply(&table[i], env != NULL ? env : table[i].fallback, &s);
        if (st != WEFT_OK) {
            return st;
        }
    }
    for (p = overrides; p != NULL && *p != '\0';) {
        size_t n = strcspn(p, " ");

        st = n == 0 ? WEFT_OK : override_apply(p, n, &s);
        if (st != WEFT_OK) {
            return st;
        }
        p += n + strspn(p + n, " ");
    }
    *out = s;
    return WEFT_OK;
}

/* --- what ranks must share ------------------------------------------------ */

static const char *const shared[] = {
    "ENGINE",       "ALGORITHM", "SWITCH",     "SWITCH_PAYLOAD",
    "SWITCH_SLOTS", "SHM_CMA",   "FLAT_BYTES", "CHUNK_BYTES"};

static int setting_line(const setting *s, const wf_settings *from, char *text,
                        size_t room)
{
    const void *field = (const char *)from + s->offset;
    uint64_t number = 0;

    if (s->room > 0) {
        return snprintf(text, room, "%s=%s\n", s->name, (const char *)field);
    }
    if (s->parse == parse_u32) {
        uint32_t small;

        memcpy(&small, field, sizeof(small));
        number = small;
    } else if (s->parse == parse_cma) {
        number = from->cma == WF_CMA_AUTO ? UINT64_MAX : from->cma;
    } else {
        memcpy(&number, field, sizeof(number));
    }
    return number == UINT64_MAX ? snprintf(text, room, "%s=auto\n", s->name)
                                : snprintf(text, room, "%s=%llu\n", s->name,
                                           (unsigned long long)number);
}

void wf_settings_shared(const wf_settings *s, char *text, size_t room)
{
    size_t n = 0;

    text[0] = '\0';
    for (size_t i = 0; i < sizeof(shared) / sizeof(shared[0]) && n < room;
         i++) {
        const setting *row = setting_find(shared[i], strlen(shared[i]));

        n += (size_t)setting_line(row, s, text + n, room - n);
    }
}

weft_status wf_settings_compare(const wf_settings *own, uint32_t rank,
                                const char *theirs, uint32_t other)
{
    char text[WF_SETTINGS_SHARED_MAX];
    const char *ours = text;

    wf_settings_shared(own, text, sizeof(text));
    while (*ours != '\0') {
        size_t n = strcspn(ours, "\n");
        size_t m = strcspn(theirs, "\n");
        size_t name = strcspn(ours, "=") + 1;

        if (n != m || memcmp(ours, theirs, n) != 0) {
            return wf_fail(WEFT_ERR_MISMATCH,
                           "the setting WEFT_%.*s must be the same on all "
                           "ranks: it is '%.*s' on rank %u, but '%.*s' on rank "
                           "%u",
                           (int)(name - 1), ours, (int)(n - name), ours + name,
                           rank, m > name ? (int)(m - name) : 0, theirs + name,
                           other);
        }
        ours += n + (ours[n] == '\n');
        theirs += m + (theirs[m] == '\n');
    }
    return WEFT_OK;
}

void wf_settings_warn_unknown(void)
{
    for (char **e = environ; e != NULL && *e != NULL; e++) {
        const char *eq = strchr(*e, '=');

        if (strncmp(*e, "WEFT_", 5) == 0 && eq != NULL &&
            setting_find(*e + 5, (size_t)(eq - *e - 5)) == NULL) {
            wf_log(WEFT_LOG_WARN,
                   "there is no setting %.*s; weft doctor "
                   "--settings lists those there are",
                   (int)(eq - *e), *e);
        }
    }
}

weft_status weft_setting_get(size_t index, weft_setting_info *out)
{
    static _Thread_local char name[64];
    const char *env;

    if (index >= SETTINGS || out == NULL) {
        return wf_fail(WEFT_ERR_INVALID,
                       "the index is out of range (%d settings)", SETTINGS);
    }
    env = setting_env(&table[index]);
    snprintf(name, sizeof(name), "WEFT_%s", table[index].name);
    out->name = name;
    out->value = env != NULL ? env : table[index].fallback;
    out->source = env != NULL ? "environment" : "default";
    out->fallback = table[index].fallback;
    out->help = table[index].help;
    return WEFT_OK;
}
