// Gibbs updates of variables with up to LABELS states, one chain a thread; see _kernels/labels.py. States have the
// layout [variable, chain]. Compiled without fused multiply-add, so that sums and products are rounded as they are
// there.

#ifndef LABELS
#define LABELS 8
#endif
#ifndef STATE
#define STATE signed char
#endif
// With few labels their weights are in registers, which cannot be looked up by number.
#if LABELS <= 32
#define EACH _Pragma("unroll")
#else
#define EACH _Pragma("unroll 1")
#endif

#define UNIT (1.0 / 9007199254740992.0)

// Uniform labels for every variable.
extern "C" __global__ void start_labels(
    const long long* ids, const int* states, u32 n, const u64* keys, STATE* x, u32 chains)
{
    const u32 c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= chains) return;
    for (u32 v = 0; v < n; v++) {
        const u64 word = mix(keys[c] + keys[chains + c] * (START + (u64)ids[v]));
        x[(size_t)chains * v + c] = (STATE)__umul64hi(word, states[v]);
    }
}

// The number of partial sums, but for the last, that u times the total is not below.
__device__ __forceinline__ int draw(const double* sums, double total, int k, u64 word) {
    const double u = (double)(word >> 11) * UNIT * total;
    int label = 0;
    EACH
    for (int a = 0; a < LABELS - 1; a++)
        if (a < k - 1) label += sums[a] <= u;
    return label;
}

// A Potts model; `strength` and `unary` are exponentials.
extern "C" __global__ void update_potts(
    const int* __restrict__ order, int length, int place, u64 step, int steps, const int* __restrict__ start,
    const int* __restrict__ neighbor, const double* __restrict__ strength, const double* __restrict__ unary,
    const u64* __restrict__ keys, STATE* x, u32 chains)
{
    const u32 c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= chains) return;
    STATE* column = x + c;
    const u64 gamma = keys[chains + c];
    u64 base = keys[c] + gamma * step;
    for (int t = 0; t < steps; t++) {
        const int i = order[place];
        place = place + 1 == length ? 0 : place + 1;
        double weight[LABELS];
        EACH
        for (int a = 0; a < LABELS; a++) weight[a] = unary[(size_t)i * LABELS + a];
        const int last = start[i + 1];
        for (int e = start[i]; e < last; e++) {
            const double f = strength[e];
            const int other = column[(size_t)chains * neighbor[e]];
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
        column[(size_t)chains * i] = (STATE)draw(weight, weight[LABELS - 1], LABELS, mix(base));
        base += gamma;
    }
}

// Any factors, by logarithms: forbidden labels (-inf) have weight exactly 0.
extern "C" __global__ void update_factors(
    const int* __restrict__ order, int length, int place, u64 step, int steps, const int* __restrict__ states,
    const int* __restrict__ f_start, const int* __restrict__ m_start, const int* __restrict__ member,
    const int* __restrict__ stride, const int* __restrict__ own_stride, const long long* __restrict__ base_cell,
    const double* __restrict__ table, const u64* __restrict__ keys, STATE* x, u32 chains)
{
    const u32 c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= chains) return;
    STATE* column = x + c;
    const u64 gamma = keys[chains + c];
    u64 base = keys[c] + gamma * step;
    for (int t = 0; t < steps; t++) {
        const int i = order[place], k = states[i];
        place = place + 1 == length ? 0 : place + 1;
        double weight[LABELS];
        EACH
        for (int a = 0; a < LABELS; a++) weight[a] = 0.0;
        const int last = f_start[i + 1];
        for (int f = f_start[i]; f < last; f++) {
            long long cell = base_cell[f];
            for (int m = m_start[f]; m < m_start[f + 1]; m++)
                cell += (long long)column[(size_t)chains * member[m]] * stride[m];
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
        column[(size_t)chains * i] = (STATE)draw(weight, total, k, mix(base));
        base += gamma;
    }
}

// counts[v, label] += chains of row rows[v] with that label; blockIdx.y is v.
extern "C" __global__ void count_labels(const STATE* x, const long long* rows, u32 chains, int width, u64* counts) {
    __shared__ u32 found[LABELS];
    for (int a = threadIdx.x; a < LABELS; a += blockDim.x) found[a] = 0;
    __syncthreads();
    for (u32 c = blockIdx.x * blockDim.x + threadIdx.x; c < chains; c += gridDim.x * blockDim.x)
        atomicAdd(found + x[(size_t)chains * rows[blockIdx.y] + c], 1u);
    __syncthreads();
    for (int a = threadIdx.x; a < LABELS; a += blockDim.x)
        if (found[a]) atomicAdd(counts + (size_t)width * blockIdx.y + a, (u64)found[a]);
}
