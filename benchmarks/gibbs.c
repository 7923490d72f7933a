/* Time of one Gibbs update of a plain sampler: the unit in which the benchmarks state costs and rates.
 *
 * One chain, one thread, neighbours in CSR form, systematic scan, xoshiro256+. An update of an Ising model sums its
 * neighbours and takes one exp; one of a Potts model takes an exp for each label and draws from the cumulative sums.
 * Prints nanoseconds per update, best of several runs.
 *
 * usage: gibbs model sweeps runs
 *
 * The model is a binary file: int64 n, labels (0: Ising) and entries; int32 start[n + 1] and neighbor[entries]; then
 * double coupling[entries] and unary[n * labels] (Ising: the n fields).
 */
#define _POSIX_C_SOURCE 199309L
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef struct {
    int n, labels;
    int32_t *start, *neighbor;
    double *coupling, *unary;
} Model;

static uint64_t word[4];

static uint64_t rotate(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }

static double uniform(void) { /* xoshiro256+ */
    const uint64_t result = word[0] + word[3];
    const uint64_t shifted = word[1] << 17;
    word[2] ^= word[0];
    word[3] ^= word[1];
    word[1] ^= word[2];
    word[0] ^= word[3];
    word[2] ^= shifted;
    word[3] = rotate(word[3], 45);
    return (double)(result >> 11) * 0x1.0p-53;
}

static void seed(uint64_t x) { /* splitmix64 */
    for (int k = 0; k < 4; k++) {
        uint64_t z = (x += 0x9e3779b97f4a7c15u);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        word[k] = z ^ (z >> 31);
    }
}

static void fail(const char *message) {
    fprintf(stderr, "gibbs: %s\n", message);
    exit(1);
}

static void *room(size_t count, size_t size) {
    void *memory = malloc(count * size + 1);
    if (!memory) fail("out of memory");
    return memory;
}

static void *next(FILE *file, size_t count, size_t size) {
    void *memory = room(count, size);
    if (fread(memory, size, count, file) != count) fail("the model file is too short");
    return memory;
}

static Model load(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) fail("cannot open the model file");
    int64_t *sizes = next(file, 3, sizeof(int64_t));
    const int64_t n = sizes[0], labels = sizes[1], entries = sizes[2];
    Model model = {(int)n, (int)labels, NULL, NULL, NULL, NULL};
    model.start = next(file, n + 1, sizeof(int32_t));
    model.neighbor = next(file, entries, sizeof(int32_t));
    model.coupling = next(file, entries, sizeof(double));
    model.unary = next(file, n * (labels ? labels : 1), sizeof(double));
    free(sizes);
    fclose(file);
    return model;
}

static void sweep_ising(const Model *model, int8_t *state) {
    for (int i = 0; i < model->n; i++) {
        double field = model->unary[i];
        for (int e = model->start[i]; e < model->start[i + 1]; e++)
            field += model->coupling[e] * state[model->neighbor[e]];
        state[i] = uniform() * (1.0 + exp(-2.0 * field)) < 1.0 ? 1 : -1;
    }
}

static void sweep_potts(const Model *model, int8_t *state, double *weight) {
    const int labels = model->labels;
    for (int i = 0; i < model->n; i++) {
        for (int a = 0; a < labels; a++) weight[a] = model->unary[(size_t)i * labels + a];
        for (int e = model->start[i]; e < model->start[i + 1]; e++)
            weight[state[model->neighbor[e]]] += model->coupling[e];
        double total = 0.0;
        for (int a = 0; a < labels; a++) weight[a] = total += exp(weight[a]);
        const double drawn = uniform() * total;
        int label = 0;
        while (label < labels - 1 && weight[label] <= drawn) label++;
        state[i] = (int8_t)label;
    }
}

static void run_sweeps(const Model *model, int8_t *state, double *weight, int sweeps) {
    for (int s = 0; s < sweeps; s++) {
        if (model->labels)
            sweep_potts(model, state, weight);
        else
            sweep_ising(model, state);
    }
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

int main(int count, char **words) {
    if (count != 4) fail("usage: gibbs model sweeps runs");
    const Model model = load(words[1]);
    const int sweeps = atoi(words[2]), runs = atoi(words[3]);
    seed(1);
    int8_t *state = room(model.n, 1);
    double *weight = room(model.labels, sizeof(double));
    for (int i = 0; i < model.n; i++) {
        const double u = uniform();
        state[i] = (int8_t)(model.labels ? (int)(u * model.labels) : (u < 0.5 ? 1 : -1));
    }
    double best = INFINITY;
    for (int run = 0; run <= runs; run++) { /* run 0 warms up */
        const double begin = now();
        run_sweeps(&model, state, weight, sweeps);
        const double elapsed = now() - begin;
        if (run && elapsed < best) best = elapsed;
    }
    long total = 0; /* printed, so that no update can be optimised away */
    for (int i = 0; i < model.n; i++) total += state[i];
    printf("%.4f %ld\n", 1e9 * best / ((double)sweeps * model.n), total);
    return 0;
}
