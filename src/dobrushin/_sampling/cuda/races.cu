// Sets of states of variables with up to LABELS states, one run a thread: labels race. Compiled without fused
// multiply-add, so that sums and products are rounded as they are on the CPU. See states.cuh for LABELS and EACH.

// a / b of numbers of ordinary size: the operations that the compiler makes of a division, without its branch for other
// numbers. (On a GPU, 8e10 quotients were compared with divisions: random ones, those next to 1, and those at the ends.)
__device__ __forceinline__ double quotient(double a, double b) {
    double y;
#ifdef __CUDACC__
    asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(b));
#else
    y = 1.0 / b;  // in tests on the host
#endif
    y = __hiloint2double(__double2hiint(y), 1);
    double e = fma(-b, y, 1.0);
    y = fma(y, fma(e, e, e), y);
    y = fma(y, fma(-b, y, 1.0), y);
    const double q = a * y;
    return fma(y, fma(-b, q, a), q);
}

// log(x / 2^scale) of a positive number: the operations of _kernels/elementary.py, and the coefficients of the polynomial.
__constant__ double ARTANH[] = {2.0 / 3.0,  2.0 / 5.0,  2.0 / 7.0,  2.0 / 9.0,  2.0 / 11.0,
                                2.0 / 13.0, 2.0 / 15.0, 2.0 / 17.0, 2.0 / 19.0, 2.0 / 21.0};
__device__ __forceinline__ double logarithm(double x, int scale = 0) {
    const int upper = __double2hiint(x) - (scale << 20), above = upper - 0x3FE6A09E;
    const double e = above >> 20, m = __hiloint2double(upper - (above & 0xFFF00000), __double2loint(x));
    const double s = quotient(m - 1.0, m + 1.0), z = s * s;
    double p = ARTANH[6] + z * (ARTANH[7] + z * (ARTANH[8] + z * ARTANH[9]));
    p = ARTANH[2] + z * (ARTANH[3] + z * (ARTANH[4] + z * (ARTANH[5] + z * p)));
    p = z * (ARTANH[0] + z * (ARTANH[1] + z * p));
    return e * LN2_HIGH + (2.0 * s + (s * p + e * LN2_LOW));
}

// -log(u), where u 2^54 is the odd number above the first 53 bits of a word, rounded. The logarithm of 1 is 0.
__device__ __forceinline__ double arrival(u64 word) {
    const double log = logarithm((double)(word >> 10 | 1), 54);
    return __double2hiint(log) < 0 ? -log : 1e-300;
}

// Bit a of the WORDS numbers of a variable says whether its label a is possible.
#define WORDS ((LABELS + 31) / 32)

// The next possible label after `label`; 32 WORDS if there is none.
__device__ __forceinline__ int next_label(const u32* set, u32 runs, int label) {
    label++;
    for (int w = label / 32; w < WORDS; label = 32 * ++w) {
        const u32 bits = set[(size_t)runs * w] >> label % 32;
        if (bits) return label + __ffs(bits) - 1;
    }
    return 32 * WORDS;
}

// Whether one label alone is possible, where one is at least.
__device__ __forceinline__ bool is_alone(const u32* set, u32 runs) {
    int count = 0;
    for (int w = 0; w < WORDS; w++) count += __popc(set[(size_t)runs * w]);
    return count == 1;
}

// Sets of labels of a Potts model race; see _kernels/sets.py.
KERNEL(, set_labels)(
    const int* __restrict__ order, int length, int place, u64 number, int steps, const int* __restrict__ start,
    const int* __restrict__ neighbor, const double* __restrict__ delay, const double* __restrict__ unary,
    const u64* __restrict__ keys, u32* x, u32 runs)
{
    const u32 c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= runs) return;
    u32* column = x + c;
    const u64 gamma = keys[runs + c];
    u64 word = keys[c] + gamma * (number * LABELS);
    for (int t = 0; t < steps; t++) {
        const int i = order[place];
        place = place + 1 == length ? 0 : place + 1;
        // The earliest and the latest time of each label.
        double fast[LABELS], slow[LABELS], best = 1.0 / 0.0;
        EACH
        for (int a = 0; a < LABELS; a++) {
            fast[a] = slow[a] = arrival(mix(word)) * unary[(size_t)i * LABELS + a];
            word += gamma;
        }
        const int end = start[i + 1];
        for (int e = start[i]; e < end; e++) {
            const double f = delay[e];
            const u32* there = column + (u64)runs * ((u32)neighbor[e] * WORDS);
            const bool is_sure = is_alone(there, runs);
            u32 early[WORDS], late[WORDS];
            for (int w = 0; w < WORDS; w++) {
                const u32 possible = there[(size_t)runs * w], sure = is_sure ? possible : 0;
                early[w] = f <= 1.0 ? possible : sure;
                late[w] = f <= 1.0 ? sure : possible;
            }
            EACH
            for (int a = 0; a < LABELS; a++)
                if (early[a / 32] >> a % 32 & 1) fast[a] = __dmul_rn(fast[a], f);
            EACH
            for (int a = 0; a < LABELS; a++)
                if (late[a / 32] >> a % 32 & 1) slow[a] = __dmul_rn(slow[a], f);
        }
        EACH
        for (int a = 0; a < LABELS; a++) best = slow[a] < best ? slow[a] : best;
        u32 set[WORDS] = {};
        EACH
        for (int a = 0; a < LABELS; a++)
            if (fast[a] <= best) set[a / 32] |= 1u << a % 32;
        for (int w = 0; w < WORDS; w++) column[(u64)runs * ((u32)i * WORDS + w)] = set[w];
    }
}
ENTRY(, set_labels)

// Sets of labels of any factors race; see _kernels/sets.py. No factor has more than DEPTH other members.
#ifndef DEPTH
#define DEPTH 1
#endif

// The first `count` bits of a number.
__device__ __forceinline__ u32 all_labels(int count) { return count >= 32 ? ~0u : count <= 0 ? 0u : (1u << count) - 1; }

KERNEL(, set_race)(
    const int* __restrict__ order, int length, int place, u64 number, int steps, int words,
    const int* __restrict__ states, const int* __restrict__ f_start,
    const int* __restrict__ m_start, const int* __restrict__ member, const long long* __restrict__ stride,
    const long long* __restrict__ own_stride, const long long* __restrict__ base, const double* __restrict__ table,
    const u64* __restrict__ keys, u32* x, u32 runs)
{
    const u32 c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= runs) return;
    const double infinity = 1.0 / 0.0;
    for (int t = 0; t < steps; t++) {
        const int i = order[place], k = states[i], end = f_start[i + 1];
        place = place + 1 == length ? 0 : place + 1;
        double lo[LABELS], hi[LABELS], least[LABELS], most[LABELS];
        EACH
        for (int a = 0; a < LABELS; a++) lo[a] = hi[a] = 0.0;
        for (int f = f_start[i]; f < end; f++) {
            const int m0 = m_start[f], deep = m_start[f + 1] - m0;
            const long long own = own_stride[f];
            EACH
            for (int a = 0; a < LABELS; a++) {
                least[a] = infinity;
                most[a] = -infinity;
            }
            const auto look = [&](long long cell) {
                const double* entry = table + cell;
                EACH
                for (int a = 0; a < LABELS; a++)
                    if (a < k) {
                        const double value = *entry;
                        entry += own;
                        least[a] = value < least[a] ? value : least[a];
                        most[a] = value > most[a] ? value : most[a];
                    }
            };
            if (WORDS == 1 && deep <= 3) {
                u32 set[3];
                long long step[3];
#pragma unroll
                for (int m = 0; m < 3; m++) {
                    set[m] = m < deep ? x[c + (size_t)runs * member[m0 + m]] : 1u;
                    step[m] = m < deep ? stride[m0 + m] : 0;
                }
                for (u32 one = set[0]; one; one &= one - 1) {
                    const long long at = base[f] + (__ffs(one) - 1) * step[0];
                    for (u32 two = set[1]; two; two &= two - 1) {
                        const long long cell = at + (__ffs(two) - 1) * step[1];
                        for (u32 three = set[2]; three; three &= three - 1) look(cell + (__ffs(three) - 1) * step[2]);
                    }
                }
            } else {
                // Of the members so far: the label of the last one, and the place in the table.
                int digit[DEPTH];
                long long cell[DEPTH + 1];
                cell[0] = base[f];
                digit[0] = -1;
                for (int m = 0; m >= 0;) {
                    if (m == deep) {
                        look(cell[m--]);
                        continue;
                    }
                    digit[m] = next_label(x + c + (size_t)runs * WORDS * member[m0 + m], runs, digit[m]);
                    if (digit[m] == 32 * WORDS) {
                        m--;
                        continue;
                    }
                    cell[m + 1] = cell[m] + digit[m] * stride[m0 + m];
                    if (++m < deep) digit[m] = -1;
                }
            }
            EACH
            for (int a = 0; a < LABELS; a++) {
                lo[a] += least[a];
                hi[a] += most[a];
            }
        }
        // From here on the times at which a label can arrive.
        double best = infinity;
        u64 word = keys[c] + keys[runs + c] * ((number + t) * words);
        EACH
        for (int a = 0; a < LABELS; a++)
            if (a < k) {
                const double time = logarithm(arrival(mix(word))), late = time - lo[a];
                word += keys[runs + c];
                hi[a] = time - hi[a];
                best = late < best ? late : best;
            }
        u32 set[WORDS] = {}, any = 0;
        EACH
        for (int a = 0; a < LABELS; a++)
            if (a < k && hi[a] < infinity && hi[a] <= best) set[a / 32] |= 1u << a % 32;
        for (int w = 0; w < WORDS; w++) any |= set[w];
        // Where no state is allowed beside these sets, nothing is known.
        for (int w = 0; w < WORDS; w++)
            x[c + (size_t)runs * ((size_t)i * WORDS + w)] = any ? set[w] : all_labels(k - 32 * w);
    }
}
ENTRY(, set_race)

// The label of a variable that is settled, else -1: of n variables.
KERNEL(, settled_sets)(const u32* x, const long long* rows, u32 n, u32 runs, u64 chains, short* out) {
    const u64 c = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= chains || blockIdx.y >= n) return;
    const u32* set = x + c + (size_t)runs * WORDS * rows[blockIdx.y];
    const int label = next_label(set, runs, -1);
    out[chains * blockIdx.y + c] = next_label(set, runs, label) == 32 * WORDS ? label : -1;
}
ENTRY(, settled_sets)
