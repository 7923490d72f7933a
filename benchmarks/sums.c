/* Time of one state entry of a sum of products: the limits in which `exact.py roofline` states the rate of exact sums.
 *
 * The sum is out[q, z] = sum over y of a[y, q] f[y, z]: what a step of a junction tree does with a message `a` over many
 * variables q and a factor `f`. An entry is a combination of y, q and z. One thread; all numbers are doubles.
 *
 * Prints nanoseconds per entry of the plain loop; per 8 bytes that are streamed through memory, two arrays read and one
 * written, each as long as `out`; and per multiplication and addition in registers, on vectors.
 *
 * usage: sums q y z runs
 */
#define _POSIX_C_SOURCE 199309L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define LANES 32 /* independent sums, enough to keep all vector units busy */

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return 1e9 * t.tv_sec + t.tv_nsec;
}

static double *numbers(size_t count) {
    double *array = malloc(count * sizeof *array);
    if (!array) exit(1);
    for (size_t k = 0; k < count; k++) array[k] = 0.5 + 0.25 * (k % 3);
    return array;
}

static void sum(long q, long y, long z, const double *restrict a, const double *restrict f, double *restrict out) {
    for (long i = 0; i < q; i++)
        for (long k = 0; k < z; k++) {
            double total = 0.0;
            for (long j = 0; j < y; j++) total += a[j * q + i] * f[j * z + k];
            out[i * z + k] = total;
        }
}

static void stream(long count, const double *restrict a, const double *restrict b, double *restrict out) {
    for (long k = 0; k < count; k++) out[k] = a[k] + 0.5 * b[k];
}

static double arithmetic(long count) {
    double total[LANES], factor = 1.0 - 1e-9, more = 1e-9;
    for (int k = 0; k < LANES; k++) total[k] = 0.1 * k;
    for (long i = 0; i < count; i++)
        for (int k = 0; k < LANES; k++) total[k] = total[k] * factor + more;
    double all = 0.0;
    for (int k = 0; k < LANES; k++) all += total[k];
    return all;
}

int main(int count, char **words) {
    if (count != 5) return 1;
    const long q = atol(words[1]), y = atol(words[2]), z = atol(words[3]), runs = atol(words[4]);
    double *a = numbers(q * y), *f = numbers(y * z), *out = numbers(q * z), *b = numbers(q * z), *c = numbers(q * z);
    double best[3] = {1e300, 1e300, 1e300};
    volatile double kept = 0.0; /* so that nothing is left out */
    for (long run = 0; run <= runs; run++) {
        double begin = now();
        sum(q, y, z, a, f, out);
        double after = now();
        stream(q * z, b, c, out);
        double streamed = now();
        kept += out[run % (q * z)] + arithmetic(100000);
        double end = now();
        if (!run) continue; /* the first run fills caches */
        double found[3] = {(after - begin) / q / y / z, (streamed - after) / (3.0 * q * z), (end - streamed) / 1e5 / LANES};
        for (int k = 0; k < 3; k++)
            if (found[k] < best[k]) best[k] = found[k];
    }
    printf("%.6g %.6g %.6g\n", best[0], best[1], best[2]);
    return 0;
}
