/* Time of one plane of random bits in a bit-parallel update of W x 64 chains with four neighbours, and nothing else.
 *
 * What cannot be left out: a random word for 64 chains, the bit of each chain's threshold as a multiplexer of its four
 * neighbours, and which chains are decided. Everything is in the first cache, and masks are made beforehand.
 * Prints nanoseconds per plane, best of several runs.
 *
 * usage: planes runs
 */
#define _POSIX_C_SOURCE 199309L
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define W 32
#define PLANES 100000

static uint64_t a[4][W], key[W], gamma_[W], spin[W], left[W], mask[64][16];

static inline uint64_t select(uint64_t b, uint64_t low, uint64_t high) { return low ^ (b & (low ^ high)); }

static inline uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static void plane(uint64_t counter) {
    const uint64_t *m = mask[counter & 63];
    for (int w = 0; w < W; w++) {
        const uint64_t b0 = a[0][w], b1 = a[1][w], b2 = a[2][w], b3 = a[3][w];
        const uint64_t q0 = select(b1, select(b0, m[0], m[1]), select(b0, m[2], m[3]));
        const uint64_t q1 = select(b1, select(b0, m[4], m[5]), select(b0, m[6], m[7]));
        const uint64_t q2 = select(b1, select(b0, m[8], m[9]), select(b0, m[10], m[11]));
        const uint64_t q3 = select(b1, select(b0, m[12], m[13]), select(b0, m[14], m[15]));
        const uint64_t bit = select(b3, select(b2, q0, q1), select(b2, q2, q3));
        const uint64_t differ = (mix(key[w] + gamma_[w] * counter) ^ bit) & left[w];
        spin[w] |= differ & bit;
        left[w] &= ~differ;
    }
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

int main(int count, char **words) {
    const int runs = count == 2 ? atoi(words[1]) : 1;
    uint64_t seed = 1, total = 0;
    for (int w = 0; w < W; w++) {
        for (int k = 0; k < 4; k++) a[k][w] = mix(seed += 0x9e3779b97f4a7c15u);
        key[w] = mix(seed += 0x9e3779b97f4a7c15u);
        gamma_[w] = mix(seed += 0x9e3779b97f4a7c15u) | 1;
    }
    for (int p = 0; p < 64; p++)
        for (int k = 0; k < 16; k++) mask[p][k] = mix(seed += 0x9e3779b97f4a7c15u) & 1 ? ~(uint64_t)0 : 0;
    double best = 1e9;
    for (int run = 0; run <= runs; run++) { /* run 0 warms up */
        for (int w = 0; w < W; w++) left[w] = ~(uint64_t)0;
        const double begin = now();
        for (int p = 0; p < PLANES; p++) plane((uint64_t)p);
        const double elapsed = now() - begin;
        if (run && elapsed < best) best = elapsed;
        for (int w = 0; w < W; w++) total += spin[w];
    }
    printf("%.4f %lu\n", 1e9 * best / PLANES, (unsigned long)total);
    return 0;
}
