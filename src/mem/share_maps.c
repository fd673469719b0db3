/* SPDX-License-Identifier: Apache-2.0 */
#include "mem/share_maps.h"

#include <sys/mman.h>

#ifndef WF_SHARE_MAPS

void *wf_map_shared(int fd, size_t bytes, int prot)
{
    return mmap(NULL, bytes, prot, MAP_SHARED, fd, 0);
}

void wf_unmap_shared(void *base, size_t bytes)
{
    munmap(base, bytes);
}

#else

#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>

typedef struct map {
    struct map *next;
    dev_t dev;
    ino_t ino;
    size_t bytes;
    int prot;
    void *base;
    unsigned users;
} map;

static pthread_mutex_t maps_lock = PTHREAD_MUTEX_INITIALIZER;
static map *maps;

static map *map_find(const struct stat *s, size_t bytes, int prot)
{
    for (map *m = maps; m != NULL; m = m->next) {
        if (m->dev == s->st_dev && m->ino == s->st_ino && m->bytes == bytes &&
            m->prot == prot) {
            return m;
        }
    }
    return NULL;
}

static map *map_make(int fd, const struct stat *s, size_t bytes, int prot)
{
    map *m = calloc(1, sizeof(*m));

    if (m == NULL) {
        return NULL;
    }
    m->base = mmap(NULL, bytes, prot, MAP_SHARED, fd, 0);
    if (m->base == MAP_FAILED) {
        free(m);
        return NULL;
    }
    m->dev = s->st_dev;
    m->ino = s->st_ino;
    m->bytes = bytes;
    m->prot = prot;
    m->next = maps;
    maps = m;
    return m;
}

void *wf_map_shared(int fd, size_t bytes, int prot)
{
    struct stat s;
    void *base = MAP_FAILED;
    map *m;

    if (fstat(fd, &s) != 0) {
        return MAP_FAILED;
    }
    pthread_mutex_lock(&maps_lock);
    m = map_find(&s, bytes, prot);
    if (m == NULL) {
        m = map_make(fd, &s, bytes, prot);
    }
    if (m != NULL) {
        m->users++;
        base = m->base;
    }
    pthread_mutex_unlock(&maps_lock);
    return base;
}

void wf_unmap_shared(void *base, size_t bytes)
{
    map **at = &maps;
    map *m;

    pthread_mutex_lock(&maps_lock);
    while (*at != NULL && (*at)->base != base) {
        at = &(*at)->next;
    }
    m = *at;
    if (m != NULL && --m->users == 0) {
        *at = m->next;
        munmap(base, bytes);
        free(m);
    }
    pthread_mutex_unlock(&maps_lock);
}

#endif
