// Sets of states of variables with up to LABELS states, one run a thread: labels race. Compiled without fused
// multiply-add, so that sums and products are rounded as they are on the CPU. See states.cuh for LABELS and EACH.

// log(x) of a positive number: the operations of _kernels/logarithm.py.
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

// Sets of labels of a Potts model race; see _kernels/race.py. Row i k + a says whether label a of variable i is possible,
// row n k + i whether one label alone is.
extern "C" __global__ void set_labels(
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
        double earliest[LABELS], best = 1.0 / 0.0, second = 1.0 / 0.0;
        int winner = -1, count = 0;
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
            const double later = best > slow ? best : slow;
            second = later < second ? later : second;
            winner = slow < best ? a : winner;
            best = slow < best ? slow : best;
        }
        EACH
        for (int a = 0; a < LABELS; a++) {
            const bool possible = earliest[a] <= (winner == a ? second : best);
            column[(size_t)runs * ((size_t)i * LABELS + a)] = possible;
            count += possible;
        }
        alone[(size_t)runs * i] = count == 1;
    }
}

// The next possible label after `label`; `states` if there is none.
__device__ __forceinline__ int next_label(const unsigned char* column, u32 runs, int first, int states, int label) {
    do label++;
    while (label < states && !column[(size_t)runs * (first + label)]);
    return label;
}

// Sets of labels of any factors race; see _kernels/factor_race.py. Row first[i] + a says whether label a of variable i is
// possible. No factor has more than DEPTH other members.
#ifndef DEPTH
#define DEPTH 1
#endif
extern "C" __global__ void set_race(
    const int* __restrict__ order, int length, int place, u64 number, int steps, int words,
    const int* __restrict__ states, const int* __restrict__ first, const int* __restrict__ f_start,
    const int* __restrict__ m_start, const int* __restrict__ member, const long long* __restrict__ stride,
    const long long* __restrict__ own_stride, const long long* __restrict__ base, const double* __restrict__ table,
    const u64* __restrict__ keys, unsigned char* x, u32 runs)
{
    const u32 c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= runs) return;
    unsigned char* column = x + c;
    const double infinity = 1.0 / 0.0;
    for (int t = 0; t < steps; t++) {
        const int i = order[place], k = states[i], end = f_start[i + 1];
        place = place + 1 == length ? 0 : place + 1;
        double lo[LABELS], hi[LABELS], least[LABELS], most[LABELS];
        int digit[DEPTH];
        EACH
        for (int a = 0; a < LABELS; a++) lo[a] = hi[a] = 0.0;
        for (int f = f_start[i]; f < end; f++) {
            const int m0 = m_start[f], deep = m_start[f + 1] - m0;
            const long long own = own_stride[f];
            long long cell = base[f];
            EACH
            for (int a = 0; a < LABELS; a++) {
                least[a] = infinity;
                most[a] = -infinity;
            }
            for (int m = 0; m < deep; m++) {
                const int j = member[m0 + m];
                digit[m] = next_label(column, runs, first[j], states[j], -1);
                cell += digit[m] * stride[m0 + m];
            }
            for (int m = 0; m >= 0;) {
                EACH
                for (int a = 0; a < LABELS; a++)
                    if (a < k) {
                        const double value = table[cell + a * own];
                        least[a] = value < least[a] ? value : least[a];
                        most[a] = value > most[a] ? value : most[a];
                    }
                for (m = deep - 1; m >= 0; m--) {
                    const int j = member[m0 + m];
                    int following = next_label(column, runs, first[j], states[j], digit[m]);
                    const bool more = following < states[j];
                    if (!more) following = next_label(column, runs, first[j], states[j], -1);
                    cell += (following - digit[m]) * stride[m0 + m];
                    digit[m] = following;
                    if (more) break;
                }
            }
            EACH
            for (int a = 0; a < LABELS; a++) {
                lo[a] += least[a];
                hi[a] += most[a];
            }
        }
        // From here on the times at which a label can arrive.
        double best = infinity, second = infinity;
        int winner = -1, count = 0;
        u64 word = keys[c] + keys[runs + c] * ((number + t) * words);
        EACH
        for (int a = 0; a < LABELS; a++)
            if (a < k) {
                const double time = logarithm(arrival(mix(word))), late = time - lo[a];
                word += keys[runs + c];
                hi[a] = time - hi[a];
                const double later = best > late ? best : late;
                second = later < second ? later : second;
                winner = late < best ? a : winner;
                best = late < best ? late : best;
            }
        EACH
        for (int a = 0; a < LABELS; a++)
            if (a < k) {
                const bool possible = hi[a] < infinity && hi[a] <= (winner == a ? second : best);
                column[(size_t)runs * (first[i] + a)] = possible;
                count += possible;
            }
        if (!count)  // no state is allowed beside these sets: nothing is known
            for (int a = 0; a < k; a++) column[(size_t)runs * (first[i] + a)] = 1;
    }
}

// The label of a variable that is settled, else -1.
extern "C" __global__ void settled_labels(
    const unsigned char* x, const long long* rows, const int* first, const int* states, u32 runs, u64 chains, short* out)
{
    const u64 c = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= chains) return;
    const int i = (int)rows[blockIdx.y];
    const int label = next_label(x + c, runs, first[i], states[i], -1);
    const bool alone = next_label(x + c, runs, first[i], states[i], label) == states[i];
    out[chains * blockIdx.y + c] = alone ? label : -1;
}
