// Gibbs updates of variables with up to LABELS states, one chain a thread; see _kernels/labels.py. States have the
// layout [variable, chain]. Compiled without fused multiply-add, so that sums and products are rounded as they are
// there. See states.cuh for LABELS, STATE and EACH.

// What all kernels of chains take, and how they begin and end: a thread has the column of its chain, and the words of its
// steps. Where chains draw their steps by themselves, threads of a warp look at other variables each. Such small models
// are compiled with HELD: each chain is held in so many words, packed, of the fast memory of its block of THREADS, where
// all words of a chain are in one bank, its own within a warp.
#define ROUTE                                                                                                         \
    const int *__restrict__ order, int length, int place, const u64 *__restrict__ thresholds, int last, u64 step,     \
        int steps, int rows
#define BEGIN                                                                                                         \
    const u32 c = blockIdx.x * blockDim.x + threadIdx.x;                                                              \
    if (c >= chains) return;                                                                                          \
    STATE* column = x + c;                                                                                            \
    const u64 key = keys[c], gamma = keys[chains + c];                                                                \
    u64 base = key + gamma * step;                                                                                    \
    FETCH
#ifdef HELD
#define BITS (LABELS <= 2 ? 1u : LABELS <= 4 ? 2u : LABELS <= 16 ? 4u : 8u)
#define EACH_WORD (32u / BITS)
#define GET(j) (int)(own[(u32)(j) / EACH_WORD * THREADS] >> (u32)(j) % EACH_WORD * BITS & ((1u << BITS) - 1u))
#define SET(i, state) put(own, i, (u32)(state))
#define FETCH                                                                                                         \
    __shared__ u32 held[HELD * THREADS];                                                                              \
    u32* own = held + threadIdx.x;                                                                                    \
    for (int w = 0; w < HELD; w++) own[w * THREADS] = 0u;                                                             \
    for (int j = 0; j < rows; j++) SET(j, column[(size_t)chains * j]);
#define END                                                                                                           \
    for (int j = 0; j < rows; j++) column[(size_t)chains * j] = (STATE)GET(j);
__device__ __forceinline__ void put(u32* own, u32 i, u32 state) {
    const u32 shift = i % EACH_WORD * BITS;
    u32* word = own + i / EACH_WORD * THREADS;
    *word = (*word & ~(((1u << BITS) - 1u) << shift)) | state << shift;
}
#else
#define GET(j) (int)column[(size_t)chains * (j)]
#define SET(i, state) column[(size_t)chains * (i)] = (STATE)(state)
#define FETCH
#define END
#endif

// The variable of step `number`: the next one of a cycle, or, where `last` is not negative, one that the chain draws by
// itself. `order` has then the own number of each position; without thresholds all positions are as likely.
__device__ __forceinline__ int variable(
    const int* order, int length, int& place, const u64* thresholds, int last, u64 key, u64 gamma, u64 number)
{
    if (last < 0) {
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

// The number of partial sums, but for the last, that u times the total is not below.
__device__ __forceinline__ int draw(const double* sums, double total, int k, u64 word) {
    const double u = (double)(word >> 11) * UNIT * total;
    int label = 0;
    EACH
    for (int a = 0; a < LABELS - 1; a++)
        if (a < k - 1) label += sums[a] <= u;
    return label;
}

#define NEXT(t) variable(order, length, place, thresholds, last, key, gamma, step + (t))

// A Potts model; `strength` and `unary` are exponentials.
KERNEL(, update_potts)(
    ROUTE, const int* __restrict__ start, const int* __restrict__ neighbor, const double* __restrict__ strength, const double* __restrict__ unary,
    const u64* __restrict__ keys, STATE* x, u32 chains)
{
    BEGIN
    for (int t = 0; t < steps; t++) {
        const int i = NEXT(t);
        double weight[LABELS];
        EACH
        for (int a = 0; a < LABELS; a++) weight[a] = unary[(size_t)i * LABELS + a];
        const int end = start[i + 1];
        for (int e = start[i]; e < end; e++) {
            const double f = strength[e];
            const int other = GET(neighbor[e]);
#if LABELS <= 32
            EACH
            for (int a = 0; a < LABELS; a++)
                if (other == a) weight[a] *= f;
#else
            weight[other] *= f;
#endif
        }
        EACH
        for (int a = 1; a < LABELS; a++) weight[a] += weight[a - 1];
        SET(i, draw(weight, weight[LABELS - 1], LABELS, mix(base)));
        base += gamma;
    }
    END
}
ENTRY(, update_potts)

// As in _kernels/elementary.py.
__device__ __forceinline__ double exponential(double t) {
    t = t > -700.0 ? t : -700.0;
    t = t < 700.0 ? t : 700.0;
    union { double number; long long bits; } y, p;
    y.number = t * 1.4426950408889634 + 6755399441055744.0;
    const double k = y.number - 6755399441055744.0;
    const double r = (t - k * 6.93147180369123816490e-01) - k * 1.90821492927058770002e-10;
    const double r2 = r * r, r4 = r2 * r2;
    const double low = (1.0 + r) + r2 * (1.0 / 2.0 + r * (1.0 / 6.0));
    const double middle = (1.0 / 24.0 + r * (1.0 / 120.0)) + r2 * (1.0 / 720.0 + r * (1.0 / 5040.0));
    const double high = (1.0 / 40320.0 + r * (1.0 / 362880.0)) + r2 * (1.0 / 3628800.0 + r * (1.0 / 39916800.0));
    const double top = 1.0 / 479001600.0 + r * (1.0 / 6227020800.0);
    p.number = low + r4 * (middle + r4 * (high + r4 * top));
    p.bits += (long long)((u64)y.bits << 52);
    return p.number;
}

// An Ising model of any degree: the sums, four neighbours at a time, are those of _kernels/spins.py.
KERNEL(, update_field)(
    ROUTE, const int* __restrict__ start, const int* __restrict__ neighbor, const double* __restrict__ theta,
    const double* __restrict__ field, const u64* __restrict__ keys, STATE* x, u32 chains)
{
    BEGIN
#define SPIN(e) (2.0 * GET(neighbor[e]) - 1.0)
    for (int t = 0; t < steps; t++) {
        const int i = NEXT(t);
        double h = field[i];
        const int end = start[i + 1];
        int e = start[i];
        for (; e + 4 <= end; e += 4)
            h += (theta[e] * SPIN(e) + theta[e + 1] * SPIN(e + 1)) + (theta[e + 2] * SPIN(e + 2) + theta[e + 3] * SPIN(e + 3));
        for (; e < end; e++) h += theta[e] * SPIN(e);
        const double u = (double)(mix(base) >> 11);
        SET(i, u * (1.0 + exponential(-2.0 * h)) < 9007199254740992.0);
        base += gamma;
    }
#undef SPIN
    END
}
ENTRY(, update_field)

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
            const double spin = 2.0 * GET(j) - 1.0;
            const double* row = columns + (size_t)n * j;
#pragma unroll
            for (int k = 0; k < TOGETHER; k++) h[k] = fma(row[i[k]], spin, h[k]);
        }
#pragma unroll
        for (int k = 0; k < TOGETHER; k++) {
            if (k < count) {
                const double u = (double)(mix(base) >> 11);
                const int spin = u * (1.0 + exponential(-2.0 * h[k])) < 9007199254740992.0;
                const double change = 2.0 * (spin - GET(i[k]));
                SET(i[k], spin);
                if (change != 0.0) {
                    const double* row = columns + (size_t)n * i[k];
#pragma unroll
                    for (int m = k + 1; m < TOGETHER; m++) h[m] = fma(row[i[m]], change, h[m]);
                }
                base += gamma;
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
        for (int k = 0; k < width; k++) cell += (size_t)GET(neighbor[i * width + k]) << k;
        SET(i, mix(base) >> 1 < table[cell]);
        base += gamma;
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
        const double u = (double)(mix(base) >> 11) * UNIT;
        base += gamma;
        double weight[LABELS];
        int label = 0;
        for (int g = begin; g < end; g++) {
            long long cell = first[g];
            for (int m = m_start[g]; m < m_start[g + 1]; m++)
                cell += (long long)GET(member[m]) * stride[m];
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
        SET(i, label);
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
                cell += (long long)GET(member[m]) * stride[m];
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
        SET(i, draw(weight, total, k, mix(base)));
        base += gamma;
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
