// Gibbs updates of variables with up to LABELS states, LANES chains a thread; see _kernels/labels.py. States have the
// layout [variable, chain]. Compiled without fused multiply-add, so that sums and products are rounded as they are
// there. See states.cuh for LABELS, STATE and EACH.

// What all kernels of chains take, and how they begin and end: a thread has LANES chains, which are THREADS apart, and
// the words of their next steps. The last threads may have fewer: they read beyond the end of a row, where the next row
// begins (the last row of all is spare), and write nothing there.
// Where chains draw their steps by themselves, a thread has one chain, and threads of a warp look at other variables
// each. Such small models are compiled with HELD: each chain is held in so many words, packed, of the fast memory of its
// block of THREADS, where all words of a chain are in one bank, its own within a warp.
#ifndef LANES
#define LANES 1
#endif
#ifndef THREADS
#define THREADS 128
#endif
#define EACH_LANE _Pragma("unroll") for (int l = 0; l < LANES; l++)
#define ROUTE                                                                                                         \
    const int *__restrict__ order, int length, int place, const u64 *__restrict__ thresholds, int last, u64 step,     \
        int steps, int rows
#define BEGIN                                                                                                         \
    const u32 c = blockIdx.x * (THREADS * LANES) + threadIdx.x;                                                       \
    if (c >= chains) return;                                                                                          \
    STATE* column = x + c;                                                                                            \
    const u64 key = keys[c];                                                                                          \
    u64 base[LANES], gamma[LANES];                                                                                    \
    EACH_LANE {                                                                                                       \
        const u32 own = c + l * THREADS < chains ? c + l * THREADS : c;                                               \
        gamma[l] = keys[chains + own];                                                                                \
        base[l] = keys[own] + gamma[l] * step;                                                                        \
    }                                                                                                                 \
    FETCH
#ifdef HELD
#define BITS (LABELS <= 2 ? 1u : LABELS <= 4 ? 2u : LABELS <= 16 ? 4u : 8u)
#define EACH_WORD (32u / BITS)
#define GET(j, l) (int)(own[(u32)(j) / EACH_WORD * THREADS] >> (u32)(j) % EACH_WORD * BITS & ((1u << BITS) - 1u))
#define SET(i, l, state) put(own, i, (u32)(state))
#define FETCH                                                                                                         \
    __shared__ u32 held[HELD * THREADS];                                                                              \
    u32* own = held + threadIdx.x;                                                                                    \
    for (int w = 0; w < HELD; w++) own[w * THREADS] = 0u;                                                             \
    for (int j = 0; j < rows; j++) SET(j, 0, column[(size_t)chains * j]);
#define END                                                                                                           \
    for (int j = 0; j < rows; j++) column[(size_t)chains * j] = (STATE)GET(j, 0);
__device__ __forceinline__ void put(u32* own, u32 i, u32 state) {
    const u32 shift = i % EACH_WORD * BITS;
    u32* word = own + i / EACH_WORD * THREADS;
    *word = (*word & ~(((1u << BITS) - 1u) << shift)) | state << shift;
}
#else
#define GET(j, l) (int)column[(u64)chains * (u32)(j) + (l) * THREADS]
#define SET(i, l, state)                                                                                              \
    if ((l) == 0 || c + (l) * THREADS < chains) column[(u64)chains * (u32)(i) + (l) * THREADS] = (STATE)(state)
#define FETCH
#define END
#endif

// The variable of step `number`: the next one of a cycle, or, where `last` is not negative, one that the chain draws by
// itself. `order` has then the own number of each position; without thresholds all positions are as likely.
__device__ __forceinline__ int variable(
    const int* order, int length, int& place, const u64* thresholds, int last, u64 key, u64 gamma, u64 number)
{
    if (LANES > 1 || last < 0) {
        const int i = order[place];
        place = place + 1 == length ? 0 : place + 1;
        return i;
    }
    const u64 word = mix(key + gamma * (CHOICE + number));
    if (!thresholds) return order[__umul64hi(word, (u64)length)];
    int low = 0, high = length;  // the first threshold above the word
    while (low < high) {
        const int middle = (low + high) >> 1;
        if (thresholds[middle] <= word) low = middle + 1;
        else high = middle;
    }
    return order[low < last ? low : last];
}

// Uniform labels for every variable.
KERNEL(, start_labels)(
    const long long* ids, const int* states, u32 n, const u64* keys, STATE* x, u32 chains)
{
    const u32 c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= chains) return;
    for (u32 v = 0; v < n; v++) {
        const u64 word = mix(keys[c] + keys[chains + c] * (START + (u64)ids[v]));
        x[(size_t)chains * v + c] = (STATE)__umul64hi(word, states[v]);
    }
}
ENTRY(, start_labels)

// The number of partial sums, but for the last, that u times the total is not below. They do not decrease.
__device__ __forceinline__ int draw(const double* sums, double total, int k, u64 word) {
    const double u = (double)(word >> 11) * UNIT * total;
    int label = 0;
    EACH
    for (int a = 0; a < LABELS - 1; a++)
        if (a < k - 1 && sums[a] <= u) label = a + 1;
    return label;
}

#define NEXT(t) variable(order, length, place, thresholds, last, key, gamma[0], step + (t))

// A Potts model; `strength` and `unary` are exponentials.
KERNEL(, update_potts)(
    ROUTE, const int* __restrict__ start, const int* __restrict__ neighbor, const double* __restrict__ strength, const double* __restrict__ unary,
    const u64* __restrict__ keys, STATE* x, u32 chains)
{
    BEGIN
    for (int t = 0; t < steps; t++) {
        const int i = NEXT(t);
        double weight[LANES][LABELS];
        EACH
        for (int a = 0; a < LABELS; a++) {
            const double own = unary[(size_t)i * LABELS + a];
            EACH_LANE weight[l][a] = own;
        }
        const int end = start[i + 1];
#pragma unroll 4
        for (int e = start[i]; e < end; e++) {
            const int j = neighbor[e];
            const double f = strength[e];
            EACH_LANE {
                const int other = GET(j, l);
#if LABELS <= 32
                EACH
                for (int a = 0; a < LABELS; a++)  // `*=` would be a product and two selections
                    if (other == a) weight[l][a] = __dmul_rn(weight[l][a], f);
#else
                weight[l][other] *= f;
#endif
            }
        }
        EACH_LANE {
            EACH
            for (int a = 1; a < LABELS; a++) weight[l][a] += weight[l][a - 1];
            SET(i, l, draw(weight[l], weight[l][LABELS - 1], LABELS, mix(base[l])));
            base[l] += gamma[l];
        }
    }
    END
}
ENTRY(, update_potts)

// The exponential of _kernels/elementary.py: coefficients of Taylor's polynomial from degree 2 on.
__constant__ double TAYLOR[] = {
    1.0 / 2.0, 1.0 / 6.0, 1.0 / 24.0, 1.0 / 120.0, 1.0 / 720.0, 1.0 / 5040.0, 1.0 / 40320.0, 1.0 / 362880.0,
    1.0 / 3628800.0, 1.0 / 39916800.0, 1.0 / 479001600.0, 1.0 / 6227020800.0};
__constant__ double LOG2E = 1.4426950408889634;
__device__ __forceinline__ double exponential(double t) {
    // 700 and more in size, seen in the upper half of the number: comparing numbers takes twice the time.
    const int upper = __double2hiint(t);
    if ((upper & 0x7FFFFFFF) >= 0x4085E000) t = __hiloint2double((upper & 0x80000000) | 0x4085E000, 0);
    const double y = t * LOG2E + 6755399441055744.0, k = y - 6755399441055744.0;
    const double r = (t - k * LN2_HIGH) - k * LN2_LOW;
    const double r2 = r * r, r4 = r2 * r2;
    const double low = (1.0 + r) + r2 * (TAYLOR[0] + r * TAYLOR[1]);
    const double middle = (TAYLOR[2] + r * TAYLOR[3]) + r2 * (TAYLOR[4] + r * TAYLOR[5]);
    const double high = (TAYLOR[6] + r * TAYLOR[7]) + r2 * (TAYLOR[8] + r * TAYLOR[9]);
    const double top = TAYLOR[10] + r * TAYLOR[11];
    const double p = low + r4 * (middle + r4 * (high + r4 * top));
    return __hiloint2double(__double2hiint(p) + (__double2loint(y) << 20), __double2loint(p));
}

// A spin of 0 or 1 as -1.0 or +1.0.
__device__ __forceinline__ double spin(int state) { return __hiloint2double(0xBFF00000u + 0x80000000u * state, 0); }

// With several chains a thread, so many registers that all states of four neighbours are read at once.
#if LANES > 1
#define ROOMY __launch_bounds__(THREADS, 5)
#else
#define ROOMY
#endif

// An Ising model of any degree: the sums, four neighbours at a time, are those of _kernels/spins.py.
KERNEL(ROOMY, update_field)(
    ROUTE, const int* __restrict__ start, const int* __restrict__ neighbor, const double* __restrict__ theta,
    const double* __restrict__ field, const u64* __restrict__ keys, STATE* x, u32 chains)
{
    BEGIN
    for (int t = 0; t < steps; t++) {
        const int i = NEXT(t);
        double h[LANES];
        EACH_LANE h[l] = field[i];
        const int end = start[i + 1];
        int e = start[i];
        // A coupling times a spin is exact, so that a fused addition rounds as one after the product does.
        for (; e + 4 <= end; e += 4) {
            int state[4][LANES];
#pragma unroll
            for (int k = 0; k < 4; k++) EACH_LANE state[k][l] = GET(neighbor[e + k], l);
            EACH_LANE {
                const double first = theta[e] * spin(state[0][l]), third = theta[e + 2] * spin(state[2][l]);
                h[l] += fma(theta[e + 1], spin(state[1][l]), first) + fma(theta[e + 3], spin(state[3][l]), third);
            }
        }
        for (; e < end; e++) EACH_LANE h[l] = fma(theta[e], spin(GET(neighbor[e], l)), h[l]);
        EACH_LANE {
            const double u = (double)(mix(base[l]) >> 11);
            SET(i, l, u * (1.0 + exponential(-2.0 * h[l])) < 9007199254740992.0);
            base[l] += gamma[l];
        }
    }
    END
}
ENTRY(ROOMY, update_field)

// An Ising model with many neighbours whose sums are exact, so that they may be made in any order: see
// _kernels/spins.py. The local fields of TOGETHER steps are made in one pass through the states; later ones follow what
// earlier ones change.
#define TOGETHER 16
extern "C" __global__ void update_dense(
    ROUTE, const double* __restrict__ columns, const double* __restrict__ field, const int* __restrict__ reach,
    int n, const u64* __restrict__ keys, STATE* x, u32 chains)
{
    BEGIN
    for (int t = 0; t < steps; t += TOGETHER) {
        const int count = steps - t < TOGETHER ? steps - t : TOGETHER;
        int i[TOGETHER], lo = n, hi = 0;
        double h[TOGETHER];
#pragma unroll
        for (int k = 0; k < TOGETHER; k++) {
            // Beyond the last step: once more the first one, whose field nobody asks for.
            i[k] = k < count ? NEXT(t + k) : i[0];
            h[k] = field[i[k]];
            lo = reach[2 * i[k]] < lo ? reach[2 * i[k]] : lo;
            hi = reach[2 * i[k] + 1] > hi ? reach[2 * i[k] + 1] : hi;
        }
        for (int j = lo; j < hi; j++) {
            const double spin = 2.0 * GET(j, 0) - 1.0;
            const double* row = columns + (size_t)n * j;
#pragma unroll
            for (int k = 0; k < TOGETHER; k++) h[k] = fma(row[i[k]], spin, h[k]);
        }
#pragma unroll
        for (int k = 0; k < TOGETHER; k++) {
            if (k < count) {
                const double u = (double)(mix(base[0]) >> 11);
                const int spin = u * (1.0 + exponential(-2.0 * h[k])) < 9007199254740992.0;
                const double change = 2.0 * (spin - GET(i[k], 0));
                SET(i[k], 0, spin);
                if (change != 0.0) {
                    const double* row = columns + (size_t)n * i[k];
#pragma unroll
                    for (int m = k + 1; m < TOGETHER; m++) h[m] = fma(row[i[m]], change, h[m]);
                }
                base[0] += gamma[0];
            }
        }
    }
    END
}

// The same for a block of up to BLOCK_STEPS steps that all chains share, whose local fields before these steps are given:
// h[step, chain]. theta[k, m] is the coupling of the variable of step m to that of step k; spins are doubles too.
#define BLOCK_STEPS 32
extern "C" __global__ void draw_block(
    const int* __restrict__ order, int count, u64 step, const double* __restrict__ theta,
    const double* __restrict__ local, const u64* __restrict__ keys, double* spins, STATE* x, u32 chains)
{
    const u32 c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= chains) return;
    const u64 gamma = keys[chains + c];
    u64 base = keys[c] + gamma * step;
    double h[BLOCK_STEPS];
#pragma unroll
    for (int k = 0; k < BLOCK_STEPS; k++) h[k] = k < count ? local[(size_t)chains * k + c] : 0.0;
#pragma unroll
    for (int k = 0; k < BLOCK_STEPS; k++) {
        if (k < count) {
            const size_t at = (size_t)chains * order[k] + c;
            const double u = (double)(mix(base) >> 11);
            const double spin = u * (1.0 + exponential(-2.0 * h[k])) < 9007199254740992.0 ? 1.0 : -1.0;
            const double change = spin - spins[at];
            spins[at] = spin;
            x[at] = (STATE)(spin > 0.0);
            const double* row = theta + (size_t)count * k;
#pragma unroll
            for (int m = k + 1; m < BLOCK_STEPS; m++)
                if (m < count) h[m] = fma(row[m], change, h[m]);
            base += gamma;
        }
    }
}

// Binary variables with few neighbours, by tables of 2^63 P(1).
extern "C" __global__ void update_table(
    ROUTE, const int* __restrict__ neighbor, const u64* __restrict__ table, int width,
    const u64* __restrict__ keys, STATE* x, u32 chains)
{
    BEGIN
    for (int t = 0; t < steps; t++) {
        const int i = NEXT(t);
        size_t cell = (size_t)i << width;
        for (int k = 0; k < width; k++) cell += (size_t)GET(neighbor[i * width + k], 0) << k;
        SET(i, 0, mix(base[0]) >> 1 < table[cell]);
        base[0] += gamma[0];
    }
    END
}

struct alignas(16) Two {
    double a, b;
};

// The first numbers of a row of a table, two at a time where there are as many as labels: threads of a warp read other
// rows each, and it is the number of loads that limits them.
__device__ __forceinline__ void load_row(const double* row, int count, double* numbers) {
    if (LABELS <= 32 && LABELS % 2 == 0 && count == LABELS && (size_t)row % sizeof(Two) == 0) {
        EACH
        for (int a = 0; a < LABELS; a += 2) {
            const Two two = *(const Two*)(row + a);
            numbers[a] = two.a;
            numbers[a + 1] = two.b;
        }
    } else {
        EACH
        for (int a = 0; a < LABELS; a++)
            if (a < count) numbers[a] = row[a];
    }
}

// Where weights are few, so few registers that eight blocks of 128 threads run at a time: measured, more or fewer are slower.
#if LABELS <= 8
#define CROWDED __launch_bounds__(128, 8)
#else
#define CROWDED
#endif

// Tables of conditionals and of products; see _kernels/conditional.py.
KERNEL(CROWDED, update_conditional)(
    ROUTE, const int* __restrict__ states, const int* __restrict__ g_start, const int* __restrict__ m_start,
    const int* __restrict__ member, const long long* __restrict__ stride, const long long* __restrict__ first,
    const double* __restrict__ table, const u64* __restrict__ keys, STATE* x, u32 chains)
{
    BEGIN
    for (int t = 0; t < steps; t++) {
        const int i = NEXT(t), k = states[i];
        const int begin = g_start[i], end = g_start[i + 1];
        const double u = (double)(mix(base[0]) >> 11) * UNIT;
        base[0] += gamma[0];
        double weight[LABELS];
        int label = 0;
        for (int g = begin; g < end; g++) {
            long long cell = first[g];
            for (int m = m_start[g]; m < m_start[g + 1]; m++)
                cell += (long long)GET(member[m], 0) * stride[m];
            if (g == begin) {
                load_row(table + cell, end - begin == 1 ? k - 1 : k, weight);  // partial sums have no last one
            } else {
                double more[LABELS];
                load_row(table + cell, k, more);
                EACH
                for (int a = 0; a < LABELS; a++)
                    if (a < k) weight[a] *= more[a];
            }
        }
        if (end - begin == 1) {
            EACH
            for (int a = 0; a < LABELS - 1; a++)
                if (a < k - 1) label += weight[a] <= u;
        } else if (end > begin) {
            double total = weight[0];
            EACH
            for (int a = 1; a < LABELS; a++)
                if (a < k) {
                    total += weight[a];
                    weight[a] = total;
                }
            const double scaled = u * total;
            EACH
            for (int a = 0; a < LABELS - 1; a++)
                if (a < k - 1) label += weight[a] <= scaled;
        }
        SET(i, 0, label);
    }
    END
}
ENTRY(CROWDED, update_conditional)

// Any factors, by logarithms: forbidden labels (-inf) have weight exactly 0.
KERNEL(, update_factors)(
    ROUTE, const int* __restrict__ states, const int* __restrict__ f_start, const int* __restrict__ m_start, const int* __restrict__ member,
    const int* __restrict__ stride, const int* __restrict__ own_stride, const long long* __restrict__ base_cell,
    const double* __restrict__ table, const u64* __restrict__ keys, STATE* x, u32 chains)
{
    BEGIN
    for (int t = 0; t < steps; t++) {
        const int i = NEXT(t), k = states[i];
        double weight[LABELS];
        EACH
        for (int a = 0; a < LABELS; a++) weight[a] = 0.0;
        const int end = f_start[i + 1];
        for (int f = f_start[i]; f < end; f++) {
            long long cell = base_cell[f];
            for (int m = m_start[f]; m < m_start[f + 1]; m++)
                cell += (long long)GET(member[m], 0) * stride[m];
            const double* entry = table + cell;
            EACH
            for (int a = 0; a < LABELS; a++)
                if (a < k) weight[a] += entry[(long long)a * own_stride[f]];
        }
        double top = weight[0], total = 0.0;
        EACH
        for (int a = 1; a < LABELS; a++)
            if (a < k) top = weight[a] > top ? weight[a] : top;
        EACH
        for (int a = 0; a < LABELS; a++)
            if (a < k) {
                total += exp(weight[a] - top);
                weight[a] = total;
            }
        SET(i, 0, draw(weight, total, k, mix(base[0])));
        base[0] += gamma[0];
    }
    END
}
ENTRY(, update_factors)

// counts[v, label] += chains of row rows[v], of which there are n, with that label; blockIdx.y is v.
KERNEL(, count_labels)(const STATE* x, const long long* rows, u32 n, u32 chains, int width, u64* counts) {
    __shared__ u32 found[LABELS];
    if (blockIdx.y >= n) return;
    for (int a = threadIdx.x; a < LABELS; a += blockDim.x) found[a] = 0;
    __syncthreads();
    for (u32 c = blockIdx.x * blockDim.x + threadIdx.x; c < chains; c += gridDim.x * blockDim.x)
        atomicAdd(found + x[(size_t)chains * rows[blockIdx.y] + c], 1u);
    __syncthreads();
    for (int a = threadIdx.x; a < LABELS; a += blockDim.x)
        if (found[a]) atomicAdd(counts + (size_t)width * blockIdx.y + a, (u64)found[a]);
}
ENTRY(, count_labels)
