/* SPDX-License-Identifier: Apache-2.0 */
#include "mem/cgroup.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/num.h"

/* --- where our groups are ------------------------------------------------- */

/* Is `word` one of the words of a list with commas? */
static bool list_has(const char *list, const char *word)
{
    size_t n = strlen(word);

    while (list != NULL) {
        if (strncmp(list, word, n) == 0 &&
            (list[n] == '\0' || list[n] == ',')) {
            return true;
        }
        list = strchr(list, ',');
        list = list != NULL ? list + 1 : NULL;
    }
    return false;
}

static const char *controller_of(wf_cgroup_kind kind)
{
    return kind == WF_CGROUP_V1_CPU ? "cpu" : "memory";
}

/* The path in a line "4:memory,hugetlb:/a/b" of /proc/self/cgroup; version 2
 * has the number 0 and no controllers. NULL: it is another hierarchy. */
static const char *group_path(wf_cgroup_kind kind, char *line)
{
    char *controllers = strchr(line, ':');
    char *path =
        controllers != NULL ? strchr(controllers + 1, ':') : controllers;

    line[strcspn(line, "\n")] = '\0';
    if (path == NULL || path[1] != '/') {
        return NULL;
    }
    *path = '\0';
    *controllers = '\0';
    if (kind == WF_CGROUP_V2 ? strcmp(line, "0") == 0 && controllers[1] == '\0'
                             : list_has(controllers + 1, controller_of(kind))) {
        return path + 1;
    }
    return NULL;
}

static bool find_group(wf_cgroup_kind kind, FILE *groups, char *path,
                       size_t room)
{
    char *line = NULL;
    const char *found = NULL;
    size_t n = 0;

    while (found == NULL && getline(&line, &n, groups) > 0) {
        found = group_path(kind, line);
    }
    found = found != NULL && strlen(found) < room ? found : NULL;
    if (found != NULL) {
        memcpy(path, found, strlen(found) + 1);
    }
    free(line);
    return found != NULL;
}

/* Spaces and the like are written as "\040" in mountinfo. */
static void unescape(char *text)
{
    char *to = text;

    for (; *text != '\0'; text++) {
        unsigned code = 0;
        int used = 0;

        if (text[0] == '\\' && sscanf(text + 1, "%3o%n", &code, &used) == 1 &&
            used == 3 && code > 0 && code < 256) {
            *to++ = (char)code;
            text += used;
        } else {
            *to++ = *text;
        }
    }
    *to = '\0';
}

/* What is mounted where, of a line of /proc/self/mountinfo:
 * "36 35 98:0 ROOT POINT options [more] - TYPE source OPTIONS". */
static bool mount_parse(wf_cgroup_kind kind, char *line, char **root,
                        char **point)
{
    char *tail = strstr(line, " - ");
    char *word[5];
    char *save = NULL;
    const char *type;
    const char *options;

    if (tail == NULL) {
        return false;
    }
    *tail = '\0';
    for (unsigned i = 0; i < 5; i++) {
        word[i] = strtok_r(i == 0 ? line : NULL, " ", &save);
        if (word[i] == NULL) {
            return false;
        }
    }
    type = strtok_r(tail + 3, " \n", &save);
    (void)strtok_r(NULL, " \n", &save);
    options = strtok_r(NULL, " \n", &save);
    *root = word[3];
    *point = word[4];
    unescape(*root);
    unescape(*point);
    if (type == NULL || (*root)[0] != '/' || (*point)[0] != '/') {
        return false;
    }
    return kind == WF_CGROUP_V2 ? strcmp(type, "cgroup2") == 0
                                : strcmp(type, "cgroup") == 0 &&
                                      list_has(options, controller_of(kind));
}

/* The part of `path` below `root`, both of the hierarchy; NULL if it is not
 * below it. Beyond the top of a namespace a path goes by "..", which leads
 * nowhere. */
static const char *below(const char *root, const char *path)
{
    size_t n = strcmp(root, "/") == 0 ? 0 : strlen(root);

    if (strncmp(root, path, n) != 0 || strstr(path + n, "/..") != NULL) {
        return NULL;
    }
    if (path[n] != '/' && path[n] != '\0') {
        return NULL;
    }
    return strcmp(path + n, "/") == 0 ? "" : path + n;
}

static bool path_set(wf_cgroup_path *path, const char *point, const char *rest)
{
    size_t top = strlen(point);
    size_t n = strlen(rest);

    if (top + n >= sizeof(path->dir)) {
        return false;
    }
    memcpy(path->dir, point, top);
    memcpy(path->dir + top, rest, n + 1);
    path->top = top;
    return true;
}

/* A container often sees its own group as the top of the mount, under a path
 * that it knows nothing of; so the top is what counts for a path that is not
 * below it. Of several mounts the one that shows most is taken. */
bool wf_cgroup_find(wf_cgroup_kind kind, FILE *groups, FILE *mounts,
                    wf_cgroup_path *out)
{
    char path[PATH_MAX];
    size_t best = SIZE_MAX; /* length of the root: less shows more */
    bool found = false;
    char *line = NULL;
    size_t n = 0;

    if (!find_group(kind, groups, path, sizeof(path))) {
        return false;
    }
    while (getline(&line, &n, mounts) > 0) {
        char *root;
        char *point;

        if (mount_parse(kind, line, &root, &point)) {
            const char *rest = below(root, path);
            size_t hidden = rest != NULL ? strlen(root) : SIZE_MAX;

            if (hidden <= best &&
                path_set(out, point, rest != NULL ? rest : "")) {
                best = hidden;
                found = true;
            }
        }
    }
    free(line);
    return found;
}

/* --- what they say -------------------------------------------------------- */

/* From here on there is no limit: version 1 writes the largest number of whole
 * pages. */
#define NO_LIMIT ((uint64_t)1 << 62)

typedef struct group_files {
    const char *limit;
    const char *used;
    const char *droppable[3]; /* lines of memory.stat, of all groups below */
} group_files;

/* Pages of files are either in active or in inactive use, and both can be
 * dropped; those of shared memory are counted neither here nor there. */
static const group_files files_v2 = {
    "memory.max",
    "memory.current",
    {"inactive_file ", "active_file ", "slab_reclaimable "}};
static const group_files files_v1 = {
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    {"total_inactive_file ", "total_active_file ", NULL}};
static const group_files files_v1_swap = {
    "memory.memsw.limit_in_bytes",
    "memory.memsw.usage_in_bytes",
    {"total_inactive_file ", "total_active_file ", NULL}};

/* The number behind the first line that begins with `prefix`. */
static bool number_in(int dir, const char *name, const char *prefix,
                      uint64_t *out)
{
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
    FILE *f = fd >= 0 ? fdopen(fd, "r") : NULL;
    size_t n = strlen(prefix);
    bool found = false;
    char line[128];
    char *end;

    if (f == NULL) {
        wf_close(fd);
        return false;
    }
    while (!found && fgets(line, sizeof(line), f) != NULL) {
        found = strncmp(line, prefix, n) == 0;
    }
    fclose(f);
    if (!found || line[n] < '0' || line[n] > '9') {
        return false; /* "max" */
    }
    *out = strtoull(line + n, &end, 10);
    return *end == '\n' || *end == '\0';
}

static uint64_t droppable(int dir, const group_files *files)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < 3 && files->droppable[i] != NULL; i++) {
        uint64_t one = 0;

        if (number_in(dir, "memory.stat", files->droppable[i], &one)) {
            sum = one > UINT64_MAX - sum ? UINT64_MAX : sum + one;
        }
    }
    return sum;
}

/* What is left of `limit` in the group of `dir`. */
static bool room_of(int dir, const group_files *files, uint64_t limit,
                    uint64_t enough, uint64_t *out)
{
    uint64_t used = 0;
    uint64_t drop;

    if (!number_in(dir, files->used, "", &used)) {
        return false;
    }
    if (used > limit || limit - used < enough) {
        drop = droppable(dir, files);
        used -= wf_least(drop, used);
    }
    *out = used < limit ? limit - used : 0;
    return true;
}

static void groups_add(wf_cgroups *out, const wf_cgroup *group)
{
    wf_cgroup *last = &out->group[WF_CGROUPS - 1];

    if (out->count < WF_CGROUPS) {
        out->group[out->count++] = *group;
        return;
    }
    last->id = group->id;
    last->limit = wf_least(group->limit, last->limit);
    last->room = wf_least(group->room, last->room);
}

/* `above`: the limit of groups that may not be mounted here. */
static void groups_ask(int dir, wf_cgroup_kind kind, const group_files *files,
                       uint64_t above, uint64_t enough, wf_cgroups *out)
{
    wf_cgroup group = {.limit = UINT64_MAX};
    struct stat s;

    if (!number_in(dir, files->limit, "", &group.limit) ||
        above < group.limit) {
        group.limit = above;
    }
    if (group.limit < NO_LIMIT && fstat(dir, &s) == 0 &&
        room_of(dir, files, group.limit, enough, &group.room)) {
        /* A path is relative to a namespace; the directory is not. */
        group.id = (uint64_t)s.st_ino << 1 | (kind == WF_CGROUP_V1);
        groups_add(out, &group);
    }
}

/* In version 1 a group may count only itself, and not those below it. */
static bool counts_below(int dir)
{
    uint64_t counts = 1;

    return !number_in(dir, "memory.use_hierarchy", "", &counts) || counts != 0;
}

static void ask_v1(int dir, bool own, uint64_t enough, wf_cgroups *out)
{
    uint64_t above = UINT64_MAX;

    if (own) {
        (void)number_in(dir, "memory.stat", "hierarchical_memory_limit ",
                        &above);
    }
    if (own || counts_below(dir)) {
        groups_ask(dir, WF_CGROUP_V1, &files_v1, above, enough, out);
        groups_ask(dir, WF_CGROUP_V1, &files_v1_swap, UINT64_MAX, enough, out);
    }
}

static void ask(const char *dir, wf_cgroup_kind kind, bool own, uint64_t enough,
                wf_cgroups *out)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0) {
        return;
    }
    if (kind == WF_CGROUP_V1) {
        ask_v1(fd, own, enough, out);
    } else {
        groups_ask(fd, kind, &files_v2, UINT64_MAX, enough, out);
    }
    close(fd);
}

/* --- all together --------------------------------------------------------- */

static bool locate(const char *root, wf_cgroup_kind kind, wf_cgroup_path *out)
{
    char name[PATH_MAX + 32];
    FILE *groups;
    FILE *mounts;
    bool found;

    snprintf(name, sizeof(name), "%s/proc/self/cgroup", root);
    groups = fopen(name, "re");
    snprintf(name, sizeof(name), "%s/proc/self/mountinfo", root);
    mounts = fopen(name, "re");
    found = groups != NULL && mounts != NULL &&
            wf_cgroup_find(kind, groups, mounts, out);
    if (groups != NULL) {
        fclose(groups);
    }
    if (mounts != NULL) {
        fclose(mounts);
    }
    return found;
}

/* Our group and those above it, one after the other. */
typedef struct group_walk {
    char dir[2 * PATH_MAX];
    size_t top; /* length of the highest */
} group_walk;

static bool walk_begin(const char *root, wf_cgroup_kind kind, group_walk *walk)
{
    wf_cgroup_path path;
    size_t skip = strlen(root);

    if (skip >= PATH_MAX || !locate(root, kind, &path)) {
        return false;
    }
    snprintf(walk->dir, sizeof(walk->dir), "%s%s", root, path.dir);
    walk->top = skip + path.top;
    if (access(walk->dir, F_OK) != 0) { /* it goes by another path in here */
        walk->dir[walk->top] = '\0';
    }
    return true;
}

static bool walk_up(group_walk *walk)
{
    if (strlen(walk->dir) <= walk->top) {
        return false;
    }
    *strrchr(walk->dir, '/') = '\0';
    return true;
}

static void read_hierarchy(const char *root, wf_cgroup_kind kind,
                           uint64_t enough, wf_cgroups *out)
{
    group_walk walk;
    bool own = true;

    if (!walk_begin(root, kind, &walk)) {
        return;
    }
    do {
        ask(walk.dir, kind, own, enough, out);
        own = false;
    } while (walk_up(&walk));
}

/* In version 2 a group has this file if cores are shared by it, and the highest
 * has none; in version 1 all have theirs. */
static bool shares_cores(const group_walk *walk, wf_cgroup_kind kind)
{
    char name[sizeof(walk->dir) + 16];

    snprintf(name, sizeof(name), "%s/%s", walk->dir,
             kind == WF_CGROUP_V2 ? "cpu.weight" : "cpu.shares");
    return (kind == WF_CGROUP_V2 || strlen(walk->dir) > walk->top) &&
           access(name, F_OK) == 0;
}

static uint64_t scheduled_by(const char *root, wf_cgroup_kind kind)
{
    group_walk walk;
    struct stat s;

    if (!walk_begin(root, kind, &walk)) {
        return 0;
    }
    while (!shares_cores(&walk, kind)) {
        if (!walk_up(&walk)) {
            return 0;
        }
    }
    return stat(walk.dir, &s) == 0 ? (uint64_t)s.st_ino : 0;
}

uint64_t wf_cgroup_scheduled(const char *root)
{
    uint64_t id = scheduled_by(root, WF_CGROUP_V2);

    return id != 0 ? id : scheduled_by(root, WF_CGROUP_V1_CPU);
}

void wf_cgroups_read(const char *root, uint64_t enough, wf_cgroups *out)
{
    *out = (wf_cgroups){0};
    read_hierarchy(root, WF_CGROUP_V2, enough, out);
    read_hierarchy(root, WF_CGROUP_V1, enough, out);
}

uint64_t wf_cgroups_limit(const wf_cgroups *groups)
{
    uint64_t least = UINT64_MAX;

    for (unsigned i = 0; i < groups->count; i++) {
        least = groups->group[i].limit < least ? groups->group[i].limit : least;
    }
    return least;
}

uint64_t wf_cgroups_room(const wf_cgroups *groups)
{
    uint64_t least = UINT64_MAX;

    for (unsigned i = 0; i < groups->count; i++) {
        least = groups->group[i].room < least ? groups->group[i].room : least;
    }
    return least;
}

void wf_cgroups_ids(const wf_cgroups *groups, wf_cgroup_ids *out)
{
    *out = (wf_cgroup_ids){{0}};
    for (unsigned i = 0; i < groups->count; i++) {
        out->id[i] = groups->group[i].id;
    }
}

bool wf_cgroup_ids_have(const wf_cgroup_ids *ids, uint64_t id)
{
    bool found = false;

    for (unsigned i = 0; i < WF_CGROUPS; i++) {
        found = found || ids->id[i] == id;
    }
    return found;
}
