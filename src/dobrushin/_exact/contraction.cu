// Sums of products of tables on the GPU: the steps of contraction.py, one thread for each entry that is made, or for
// a part of its sum. COUNT is the number of operands.

typedef long long Index;
typedef unsigned long long Bits;

__device__ __forceinline__ Bits bits_of(double value) {
    union { double number; Bits bits; } both;
    both.number = value;
    return both.bits;
}

// Axes lie in rows of COUNT + 1 numbers: the length, and the stride in each operand. Kept axes come first, in the order
// of the table that is made; then the summed ones. The last row of each kind changes fastest.
#define ROW (COUNT + 1)

// Digits of a number in the lengths of some axes, added to the places in the operands.
__device__ __forceinline__ void move(Index number, const Index* axes, int rows, Index* place, Index* digit) {
    for (int a = rows - 1; a >= 0; --a) {
        const Index length = axes[a * ROW];
        // A division of short numbers takes a fraction of the time.
        const Index rest = number >> 32 ? number / length : (Index)((unsigned)number / (unsigned)length);
        const Index here = number - rest * length;
        number = rest;
        if (digit) digit[a] = here;
#pragma unroll
        for (int k = 0; k < COUNT; ++k) place[k] += here * axes[a * ROW + 1 + k];
    }
}

// Entry `begin + i` of the table that has `entries` in all; of its terms those of part y, `terms` of `all` at most.
extern "C" __global__ void add_products(
    const double* store, const Index* axes, int kept, int summed, const Index* start, Index begin, Index end, Index entries,
    Index terms, Index all, double* out
) {
    const Index entry = begin + (Index)blockIdx.x * blockDim.x + threadIdx.x;
    if (entry >= end) return;
    Index place[COUNT];
    Index digit[MOST_AXES];
#pragma unroll
    for (int k = 0; k < COUNT; ++k) place[k] = start[k];
    move(entry, axes, kept, place, nullptr);
    const Index* inner = axes + kept * ROW;
    Index t = (Index)blockIdx.y * terms;
    const Index last = t + terms < all ? t + terms : all;
    move(t, inner, summed, place, digit);
    double total = 0.0;
    while (t < last) {
        Index run = 1;
        const Index* fast = inner + (summed - 1) * ROW;
        if (summed) {
            run = fast[0] - digit[summed - 1];
            if (run > last - t) run = last - t;
        }
        for (Index i = 0; i < run; ++i) {
            double product = store[place[0]];
#pragma unroll
            for (int k = 1; k < COUNT; ++k) product *= store[place[k]];
            total += product;
            if (summed) {
#pragma unroll
                for (int k = 0; k < COUNT; ++k) place[k] += fast[1 + k];
            }
        }
        t += run;
        if (t >= last) break;
        // The run has ended at the end of its axis: the next digit goes on.
        for (int a = summed - 1; a >= 0; --a) {
            const Index* axis = inner + a * ROW;
            if (a < summed - 1) {
#pragma unroll
                for (int k = 0; k < COUNT; ++k) place[k] += axis[1 + k];
                if (++digit[a] < axis[0]) break;
            }
            digit[a] = 0;
#pragma unroll
            for (int k = 0; k < COUNT; ++k) place[k] -= axis[0] * axis[1 + k];
        }
    }
    out[(Index)blockIdx.y * entries + entry] = total;
}

// Adds up the parts of each entry.
extern "C" __global__ void add_parts(const double* parts, Index entries, int count, double* out) {
    const Index entry = (Index)blockIdx.x * blockDim.x + threadIdx.x;
    if (entry >= entries) return;
    double total = 0.0;
    for (int k = 0; k < count; ++k) total += parts[k * entries + entry];
    out[entry] = total;
}

// The largest entry and the smallest that is not 0, as bits: those of numbers that are not negative are in their order.
extern "C" __global__ void extremes(const double* table, Index entries, Bits* found) {
    double most = 0.0, least = 1.0 / 0.0;
    const Index stride = (Index)gridDim.x * blockDim.x;
    for (Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x; i < entries; i += stride) {
        const double value = table[i];
        if (value > most) most = value;
        if (value > 0.0 && value < least) least = value;
    }
    atomicMax(found, bits_of(most));
    atomicMin(found + 1, bits_of(least));
}

// In two steps, since the power itself may be too large.
extern "C" __global__ void rescale(double* table, Index entries, double first, double second) {
    const Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < entries) table[i] = table[i] * first * second;
}
