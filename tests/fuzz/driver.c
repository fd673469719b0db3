/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target without libFuzzer: first each seed as it is, then changed
 * copies of the seeds, a fixed number of them or as many as a few seconds
 * allow. The changes come from a fixed start value, so every run tries the same
 * inputs; this finds far less than a real fuzzer, but it runs with any compiler
 * and under any sanitizer.
 *
 * usage: fuzz_NAME [FOLDER-OR-FILE ...] */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { INPUT_MAX = 1 << 16, SEEDS_MAX = 256, ROUNDS = 20000, SECONDS = 5 };

struct input {
    size_t n;
    uint8_t *data;
};

static struct input seeds[SEEDS_MAX];
static size_t seed_count;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Each input gets memory of exactly its size, so that a sanitizer sees a read
 * past the end. */
static void try_input(const uint8_t *data, size_t n)
{
    uint8_t *copy = malloc(n > 0 ? n : 1);

    if (copy == NULL) {
        fprintf(stderr, "no memory for an input of %zu bytes\n", n);
        exit(1);
    }
    memcpy(copy, data, n);
    LLVMFuzzerTestOneInput(copy, n);
    free(copy);
}

static void add_seed(const uint8_t *data, size_t n)
{
    struct input *seed = &seeds[seed_count];

    if (seed_count == SEEDS_MAX) {
        return;
    }
    seed->data = malloc(n > 0 ? n : 1);
    if (seed->data == NULL) {
        fprintf(stderr, "no memory for a seed of %zu bytes\n", n);
        exit(1);
    }
    memcpy(seed->data, data, n);
    seed->n = n;
    seed_count++;
}

static void read_seed(const char *path)
{
    static uint8_t data[INPUT_MAX];
    FILE *file = fopen(path, "rb");

    if (file == NULL) {
        fprintf(stderr, "cannot read the seed %s\n", path);
        exit(1);
    }
    add_seed(data, fread(data, 1, sizeof(data), file));
    fclose(file);
}

static void read_seeds(const char *path)
{
    DIR *folder = opendir(path);
    struct dirent *entry;
    char name[4096];

    if (folder == NULL) {
        read_seed(path);
        return;
    }
    while ((entry = readdir(folder)) != NULL) {
        if (entry->d_name[0] != '.') {
            snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
            read_seed(name);
        }
    }
    closedir(folder);
}

/* Copy a seed to `data` with a few bytes changed, cut off or added. */
static size_t change_seed(const struct input *seed, uint64_t *random,
                          uint8_t *data)
{
    size_t n = seed->n;
    unsigned changes = 1 + (unsigned)(next_random(random) % 8);

    memcpy(data, seed->data, n);
    if (next_random(random) % 4 == 0) {
        n = next_random(random) % (n + 1);
    } else if (next_random(random) % 4 == 0) {
        size_t more = next_random(random) % 64;
        for (; more > 0 && n < INPUT_MAX; more--) {
            data[n++] = (uint8_t)next_random(random);
        }
    }
    for (; changes > 0 && n > 0; changes--) {
        static const uint8_t edges[] = {0, 1, 0x7f, 0x80, 0xff};
        uint64_t r = next_random(random);
        data[(r >> 16) % n] =
            r % 2 ? (uint8_t)(r >> 8) : edges[(r >> 8) % sizeof(edges)];
    }
    return n;
}

int main(int argc, char **argv)
{
    static uint8_t data[INPUT_MAX];
    uint64_t random = 0x9e3779b97f4a7c15u;
    time_t end;
    int rounds = 0;

    add_seed(data, 0);
    add_seed(data, 256);
    for (int i = 1; i < argc; i++) {
        read_seeds(argv[i]);
    }
    for (size_t i = 0; i < seed_count; i++) {
        try_input(seeds[i].data, seeds[i].n);
    }
    end = time(NULL) + SECONDS;
    for (; rounds < ROUNDS && time(NULL) <= end; rounds++) {
        const struct input *seed = &seeds[next_random(&random) % seed_count];
        size_t n = change_seed(seed, &random, data);
        try_input(data, n);
    }
    printf("%zu seeds, %d changed inputs\n", seed_count, rounds);
    for (size_t i = 0; i < seed_count; i++) {
        free(seeds[i].data);
    }
    return 0;
}
