/* Time of one Gibbs update of a plain sampler: the unit in which the benchmark states the cost of choosing a scan.
 *
 * Ising model on a side x side grid, neighbours in CSR form, systematic scan; each update sums its neighbours, takes one
 * exp and one draw of xoshiro256+. Prints nanoseconds per update, best of several runs.
 *
 * usage: gibbs side sweeps runs
 */
#define _POSIX_C_SOURCE 199309L
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef struct {
    int n;
    int *start, *neighbor;
    double *coupling;
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

static void *room(size_t count, size_t size) {
    void *memory = malloc(count * size);
    if (!memory) {
        fputs("out of memory\n", stderr);
        exit(1);
    }
    return memory;
}

static void link_to(Model *model, int *edges, int j, double coupling) {
    model->neighbor[*edges] = j;
    model->coupling[(*edges)++] = coupling;
}

static Model grid(int side) {
    Model model = {side * side, NULL, NULL, NULL};
    model.start = room(model.n + 1, sizeof(int));
    model.neighbor = room(4 * (size_t)model.n, sizeof(int));
    model.coupling = room(4 * (size_t)model.n, sizeof(double));
    double *right = room(model.n, sizeof(double)), *down = room(model.n, sizeof(double));
    for (int i = 0; i < model.n; i++) {
        right[i] = 0.25 * uniform();
        down[i] = 0.25 * uniform();
    }
    int edges = 0;
    for (int i = 0; i < model.n; i++) {
        const int row = i / side, column = i % side;
        model.start[i] = edges;
        if (row > 0) link_to(&model, &edges, i - side, down[i - side]);
        if (column > 0) link_to(&model, &edges, i - 1, right[i - 1]);
        if (column < side - 1) link_to(&model, &edges, i + 1, right[i]);
        if (row < side - 1) link_to(&model, &edges, i + side, down[i]);
    }
    model.start[model.n] = edges;
    free(right);
    free(down);
    return model;
}

static void sweep(const Model *model, int8_t *spin) {
    for (int i = 0; i < model->n; i++) {
        double field = 0.0;
        for (int e = model->start[i]; e < model->start[i + 1]; e++)
            field += model->coupling[e] * spin[model->neighbor[e]];
        spin[i] = uniform() * (1.0 + exp(-2.0 * field)) < 1.0 ? 1 : -1;
    }
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

int main(int count, char **words) {
    if (count != 4) {
        fputs("usage: gibbs side sweeps runs\n", stderr);
        return 2;
    }
    const int side = atoi(words[1]), sweeps = atoi(words[2]), runs = atoi(words[3]);
    seed(1);
    const Model model = grid(side);
    int8_t *spin = room(model.n, 1);
    for (int i = 0; i < model.n; i++) spin[i] = uniform() < 0.5 ? 1 : -1;
    double best = INFINITY;
    for (int run = 0; run <= runs; run++) { /* run 0 warms up */
        const double begin = now();
        for (int s = 0; s < sweeps; s++) sweep(&model, spin);
        const double elapsed = now() - begin;
        if (run && elapsed < best) best = elapsed;
    }
    long total = 0; /* printed, so that no update can be optimised away */
    for (int i = 0; i < model.n; i++) total += spin[i];
    printf("%.4f %ld\n", 1e9 * best / ((double)sweeps * model.n), total);
    return 0;
}
