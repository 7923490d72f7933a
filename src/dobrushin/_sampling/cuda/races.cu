// Sets of states of variables with up to LABELS states, one run a thread: labels race. Compiled without fused
// multiply-add, so that sums and products are rounded as they are on the CPU. See states.cuh for LABELS and EACH.

// log(x) of a positive number: the operations of _kernels/elementary.py.
__device__ __forceinline__ double logarithm(double x) {
    union { double number; long long bits; } u, m;
    u.number = x;
    const long long above = u.bits - 0x3FE6A09E00000000ll;
    const double e = (double)(above >> 52);
    m.bits = u.bits - (above & -(1ll << 52));
    const double s = (m.number - 1.0) / (m.number + 1.0), z = s * s;
    double p = 2.0 / 15.0 + z * (2.0 / 17.0 + z * (2.0 / 19.0 + z * (2.0 / 21.0)));
    p = 2.0 / 7.0 + z * (2.0 / 9.0 + z * (2.0 / 11.0 + z * (2.0 / 13.0 + z * p)));
    p = z * (2.0 / 3.0 + z * (2.0 / 5.0 + z * p));
    return e * 6.93147180369123816490e-01 + (2.0 * s + (s * p + e * 1.90821492927058770002e-10));
}

// -log(u) of a random number u between 0 and 1.
__device__ __forceinline__ double arrival(u64 word) {
    const double time = -logarithm(((double)(word >> 11) + 0.5) * UNIT);
    return time > 1e-300 ? time : 1e-300;
}

// Sets of labels of a Potts model race; see _kernels/sets.py. Row i k + a says whether label a of variable i is possible,
// row n k + i whether one label alone is.
KERNEL(, set_labels)(
    const int* __restrict__ order, int length, int place, u64 number, int steps, const int* __restrict__ start,
    const int* __restrict__ neighbor, const double* __restrict__ delay, const double* __restrict__ unary, int n,
    const u64* __restrict__ keys, unsigned char* x, u32 runs)
{
    const u32 c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= runs) return;
    unsigned char *column = x + c, *alone = column + (size_t)runs * n * LABELS;
    const u64 gamma = keys[runs + c];
    u64 word = keys[c] + gamma * (number * LABELS);
    for (int t = 0; t < steps; t++) {
        const int i = order[place];
        place = place + 1 == length ? 0 : place + 1;
        double earliest[LABELS], best = 1.0 / 0.0;
        int count = 0;
        const int end = start[i + 1];
        EACH
        for (int a = 0; a < LABELS; a++) {
            double fast = arrival(mix(word)) * unary[(size_t)i * LABELS + a], slow = fast;
            word += gamma;
            for (int e = start[i]; e < end; e++) {
                const int j = neighbor[e];
                const double f = delay[e];
                const bool there = column[(size_t)runs * ((size_t)j * LABELS + a)];
                const bool sure = there && alone[(size_t)runs * j];
                fast *= (f <= 1.0 ? there : sure) ? f : 1.0;
                slow *= (f <= 1.0 ? sure : there) ? f : 1.0;
            }
            earliest[a] = fast;
            best = slow < best ? slow : best;
        }
        EACH
        for (int a = 0; a < LABELS; a++) {
            const bool possible = earliest[a] <= best;
            column[(size_t)runs * ((size_t)i * LABELS + a)] = possible;
            count += possible;
        }
        alone[(size_t)runs * i] = count == 1;
    }
}
ENTRY(, set_labels)

// The label of a variable that is settled, else -1: of n variables.
KERNEL(, settled_labels)(
    const unsigned char* x, const long long* rows, u32 n, u32 runs, u64 chains, short* out)
{
    const u64 c = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= chains || blockIdx.y >= n) return;
    const unsigned char* flags = x + c + (size_t)runs * rows[blockIdx.y] * LABELS;
    int label = -1, count = 0;
    for (int a = 0; a < LABELS; a++)
        if (flags[(size_t)runs * a]) {
            label = a;
            count++;
        }
    out[chains * blockIdx.y + c] = count == 1 ? label : -1;
}
ENTRY(, settled_labels)

// Sets of labels of any factors race; see _kernels/sets.py. Bit a of the WORDS numbers of a variable says whether
// its label a is possible. No factor has more than DEPTH other members.
#ifndef DEPTH
#define DEPTH 1
#endif
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
                EACH
                for (int a = 0; a < LABELS; a++)
                    if (a < k) {
                        const double value = table[cell + a * own];
                        least[a] = value < least[a] ? value : least[a];
                        most[a] = value > most[a] ? value : most[a];
                    }
            };
            if (WORDS == 1 && deep <= 3) {
                u32 set[3];
                long long step[3];
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
