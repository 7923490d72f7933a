// Bit-parallel Gibbs updates: a thread has 64 chains in one number; see _kernels/bits.py, whose
// random bits these kernels draw. Threads share nothing but the tables.
//
// Every update looks at the first PLANES bits of the thresholds, without a branch. A bit of the threshold is a function
// of the neighbours a0, a1, ...: for each combination of the others it is one of the 16 functions of a0 and a1. These
// are computed once for an update, into shared memory; which of them a plane needs is in a table, as offsets in bytes.
// The few chains that are not decided after PLANES bits are finished one by one.

#ifndef PLANES
#define PLANES 12
#endif
#ifndef BLOCK
#define BLOCK 128
#endif
#define TUNED __launch_bounds__(BLOCK, 1)

// low where the bit of b is 0, high where it is 1.
__device__ __forceinline__ u64 select(u64 b, u64 low, u64 high) { return low ^ (b & (low ^ high)); }

// The 16 functions of two words: number f has the value of bit 2 b + a of f where the words have the bits a and b.
__device__ __forceinline__ void functions(u64* mine, u64 a, u64 b) {
    mine[1 * BLOCK] = ~(a | b);
    mine[2 * BLOCK] = a & ~b;
    mine[3 * BLOCK] = ~b;
    mine[4 * BLOCK] = ~a & b;
    mine[5 * BLOCK] = ~a;
    mine[6 * BLOCK] = a ^ b;
    mine[7 * BLOCK] = ~(a & b);
    mine[8 * BLOCK] = a & b;
    mine[9 * BLOCK] = ~(a ^ b);
    mine[10 * BLOCK] = a;
    mine[11 * BLOCK] = a | ~b;
    mine[12 * BLOCK] = b;
    mine[13 * BLOCK] = ~a | b;
    mine[14 * BLOCK] = a | b;
}

// Numbers 0 and 15 are the same for all updates.
__device__ __forceinline__ void constants(u64* mine) {
    mine[0 * BLOCK] = 0;
    mine[15 * BLOCK] = ~0ull;
}

struct alignas(16) Four {
    u32 a, b, c, d;
};

// The bit of the threshold as a function of the first four neighbours.
__device__ __forceinline__ u64 bit_of_four(const u64* mine, const Four* choice, const u64* a) {
    const Four pick = *choice;
    const char* bytes = (const char*)mine;
    const u64 q0 = *(const u64*)(bytes + pick.a), q1 = *(const u64*)(bytes + pick.b);
    const u64 q2 = *(const u64*)(bytes + pick.c), q3 = *(const u64*)(bytes + pick.d);
    return select(a[3], select(a[2], q0, q1), select(a[2], q2, q3));
}

template <int WIDTH>
__device__ __forceinline__ u64 bit_of(const u64* mine, const Four* choice, const u64* a) {
    if (WIDTH == 4) return bit_of_four(mine, choice, a);
    const u64 low = select(a[WIDTH - 2], bit_of_four(mine, choice, a), bit_of_four(mine, choice + 1, a));
    const u64 high = select(a[WIDTH - 2], bit_of_four(mine, choice + 2, a), bit_of_four(mine, choice + 3, a));
    return select(a[WIDTH - 1], low, high);
}

// Chains that are still open after PLANES planes, one by one. Open after all 64: spin 0, unless the probability is 1.
template <int WIDTH>
__device__ __forceinline__ u64 finish(
    u64 spin, u64 open, const u64* a, const u64* threshold, const unsigned char* certain, u64 first, u64 gamma)
{
#pragma unroll 1
    while (open) {
        const int lane = __ffsll((long long)open) - 1;
        open &= open - 1;
        u32 c = 0;
#pragma unroll
        for (int k = 0; k < WIDTH; k++) c |= (u32)(a[k] >> lane & 1) << k;
        u64 p = threshold[c] << PLANES, z = first;
        bool one = certain != nullptr && certain[c];
#pragma unroll 1
        for (int plane = PLANES; plane < 64; plane++) {
            const bool bit = p >> 63;
            if ((mix(z) >> lane & 1) != bit) {
                one = bit;
                break;
            }
            p <<= 1;
            z += gamma;
        }
        spin = (spin & ~(1ull << lane)) | (u64)one << lane;
    }
    return spin;
}

// Rows of the neighbours of a variable.
template <int COUNT>
struct alignas(COUNT % 4 ? 8 : 16) Rows {
    u32 at[COUNT];
};

// The word in a row, given the first one and the bytes of a row.
__device__ __forceinline__ u64& word_of(u64* column, u32 bytes, u32 row) {
    return *(u64*)((char*)column + (u64)bytes * row);
}

template <int COUNT>
__device__ __forceinline__ void load(const Rows<COUNT>& rows, u64* column, u32 bytes, u64* a) {
#pragma unroll
    for (int k = 0; k < COUNT; k++) a[k] = word_of(column, bytes, rows.at[k]);
}

// Steps of a cycle, in advance: while one is under way, the states that the next one needs are loaded already. Only
// that of the variable that is being updated is not known yet; it takes the place of what was loaded once it is.
template <int COUNT>
struct Ahead {
    const u32* order;
    const Rows<COUNT>* neighbor;
    u32 length, place, i, next;
    Rows<COUNT> rows;

    __device__ __forceinline__ Ahead(
        const u32* order, u32 length, u32 place, const Rows<COUNT>* neighbor, u64* column, u32 bytes, u64* a)
        : order(order), neighbor(neighbor), length(length), place(place)
    {
        i = order[place];
        load(neighbor[i], column, bytes, a);
        next = following();
        rows = neighbor[next];
    }

    __device__ __forceinline__ u32 following() {
        place = place + 1 == length ? 0 : place + 1;
        return order[place];
    }
};

// Steps of the cycle `order`, from `place`; the first one is number `step` of the scan.
template <int WIDTH>
__device__ __forceinline__ void update(
    const u32* order, u32 length, u32 place, u64 step, int steps, const Rows<WIDTH>* neighbor, const Four* choice,
    const u64* threshold, const unsigned char* certain, const u64* keys, u64* x, u32 W)
{
    __shared__ u64 table[16 * BLOCK];
    const u32 w = blockIdx.x * BLOCK + threadIdx.x;
    if (w >= W) return;
    u64 *mine = table + threadIdx.x, *column = x + w;
    const u64 gamma = keys[W + w];
    u64 base = keys[w] + gamma * (step * 64), a[WIDTH], b[WIDTH];
    Ahead<WIDTH> ahead(order, length, place, neighbor, column, 8 * W, a);
    constants(mine);
    for (int t = 0; t < steps; t++) {
        const u32 i = ahead.i, after = ahead.following();
        load(ahead.rows, column, 8 * W, b);
        const Rows<WIDTH> later = neighbor[after];
        functions(mine, a[0], a[1]);
        const Four* row = choice + (size_t)i * (PLANES << (WIDTH - 4));
        u64 spin = 0, open = ~0ull;
        // From the lowest plane: a higher one overrides it where the words differ.
#pragma unroll
        for (int plane = PLANES - 1; plane >= 0; plane--) {
            const u64 bit = bit_of<WIDTH>(mine, row + (plane << (WIDTH - 4)), a);
            const u64 differ = mix(base + gamma * plane) ^ bit;
            spin = select(differ, spin, bit);
            open &= ~differ;
        }
        if (open) {
            const size_t at = (size_t)i << WIDTH;
            spin = finish<WIDTH>(spin, open, a, threshold + at, certain + at, base + gamma * PLANES, gamma);
        }
        word_of(column, 8 * W, i) = spin;
#pragma unroll
        for (int k = 0; k < WIDTH; k++) a[k] = ahead.rows.at[k] == i ? spin : b[k];
        ahead.i = ahead.next;
        ahead.next = after;
        ahead.rows = later;
        base += gamma << 6;
    }
}

KERNEL(TUNED, update_bits4)(
    const u32* __restrict__ order, u32 length, u32 place, u64 step, int steps, const Rows<4>* __restrict__ neighbor,
    const Four* __restrict__ choice, const u64* __restrict__ threshold, const unsigned char* __restrict__ certain,
    const u64* __restrict__ keys, u64* x, u32 W)
{
    update<4>(order, length, place, step, steps, neighbor, choice, threshold, certain, keys, x, W);
}
ENTRY(TUNED, update_bits4)

KERNEL(TUNED, update_bits6)(
    const u32* __restrict__ order, u32 length, u32 place, u64 step, int steps, const Rows<6>* __restrict__ neighbor,
    const Four* __restrict__ choice, const u64* __restrict__ threshold, const unsigned char* __restrict__ certain,
    const u64* __restrict__ keys, u64* x, u32 W)
{
    update<6>(order, length, place, step, steps, neighbor, choice, threshold, certain, keys, x, W);
}
ENTRY(TUNED, update_bits6)

// Spins whose neighbours come in groups of equal coupling: the configuration of four bits says how many of each group
// are up. Triples as in _kernels/bits.py.
KERNEL(TUNED, update_counts)(
    const u32* __restrict__ order, u32 length, u32 place, u64 step, int steps, const u32* __restrict__ start,
    const u32* __restrict__ neighbor, const u64* __restrict__ flip, const u32* __restrict__ first,
    const Four* __restrict__ choice, const u64* __restrict__ threshold, const unsigned char* __restrict__ certain,
    const u64* __restrict__ keys, u64* x, u32 W)
{
    __shared__ u64 table[16 * BLOCK];
    const u32 w = blockIdx.x * BLOCK + threadIdx.x;
    if (w >= W) return;
    u64 *mine = table + threadIdx.x, *column = x + w;
    const u64 gamma = keys[W + w];
    u64 base = keys[w] + gamma * (step * 64);
    constants(mine);
    for (int t = 0; t < steps; t++) {
        const u32 i = order[place];
        place = place + 1 == length ? 0 : place + 1;
        u64 a[4] = {0, 0, 0, 0};
        const u32 end = start[i + 1];
        for (u32 e = start[i]; e < end; e++) {
            const u64 p = word_of(column, 8 * W, neighbor[3 * e]) ^ flip[3 * e];
            const u64 q = word_of(column, 8 * W, neighbor[3 * e + 1]) ^ flip[3 * e + 1];
            const u64 r = word_of(column, 8 * W, neighbor[3 * e + 2]) ^ flip[3 * e + 2];
            // Two bits to add, from the first bit of the group on.
            const u64 ones = p ^ q ^ r, twos = (p & q) | (r & (p | q));
            const u32 bit = first[e];
            u64 carry = 0;
#pragma unroll
            for (u32 k = 0; k < 4; k++) {
                const u64 more = k == bit ? ones : k == bit + 1 ? twos : 0, old = a[k];
                a[k] = old ^ more ^ carry;
                carry = (old & more) | (carry & (old | more));
            }
        }
        functions(mine, a[0], a[1]);
        const Four* row = choice + (size_t)i * PLANES;
        u64 spin = 0, open = ~0ull;
#pragma unroll
        for (int plane = PLANES - 1; plane >= 0; plane--) {
            const u64 bit = bit_of<4>(mine, row + plane, a);
            const u64 differ = mix(base + gamma * plane) ^ bit;
            spin = select(differ, spin, bit);
            open &= ~differ;
        }
        if (open) {
            const size_t at = (size_t)i << 4;
            spin = finish<4>(spin, open, a, threshold + at, certain + at, base + gamma * PLANES, gamma);
        }
        word_of(column, 8 * W, i) = spin;
        base += gamma << 6;
    }
}
ENTRY(TUNED, update_counts)

// Row i of x holds the lowest state of variable i, row n + i the highest; both compare the same random number with
// their own threshold. The first step uses the random bits of `number`.
template <int WIDTH>
__device__ __forceinline__ void set_update(
    const u32* order, u32 length, u32 place, u64 number, int steps, const Rows<2 * WIDTH>* neighbor,
    const Four* choice, const u64* threshold, u32 n, const u64* keys, u64* x, u32 W)
{
    __shared__ u64 table[2 * 16 * BLOCK];
    const u32 w = blockIdx.x * BLOCK + threadIdx.x;
    if (w >= W) return;
    u64 *near = table + threadIdx.x, *far = near + 16 * BLOCK, *column = x + w;
    const u64 gamma = keys[W + w];
    u64 base = keys[w] + gamma * (number * 64), a[2 * WIDTH], b[2 * WIDTH];
    Ahead<2 * WIDTH> ahead(order, length, place, neighbor, column, 8 * W, a);
    constants(near);
    constants(far);
    for (int t = 0; t < steps; t++) {
        const u32 i = ahead.i, after = ahead.following();
        load(ahead.rows, column, 8 * W, b);
        const Rows<2 * WIDTH> later = neighbor[after];
        functions(near, a[0], a[1]);
        functions(far, a[WIDTH], a[WIDTH + 1]);
        const Four* row = choice + (size_t)i * (PLANES << (WIDTH - 4));
        u64 low = 0, high = 0, open_low = ~0ull, open_high = ~0ull;
#pragma unroll
        for (int plane = PLANES - 1; plane >= 0; plane--) {
            const u64 word = mix(base + gamma * plane);
            const u64 bit_low = bit_of<WIDTH>(near, row + (plane << (WIDTH - 4)), a);
            const u64 bit_high = bit_of<WIDTH>(far, row + (plane << (WIDTH - 4)), a + WIDTH);
            low = select(word ^ bit_low, low, bit_low);
            high = select(word ^ bit_high, high, bit_high);
            open_low &= ~(word ^ bit_low);
            open_high &= ~(word ^ bit_high);
        }
        const u64 *p = threshold + ((size_t)i << WIDTH), first = base + gamma * PLANES;
        if (open_low) low = finish<WIDTH>(low, open_low, a, p, nullptr, first, gamma);
        if (open_high) high = finish<WIDTH>(high, open_high, a + WIDTH, p, nullptr, first, gamma);
        word_of(column, 8 * W, i) = low;
        word_of(column, 8 * W, n + i) = high;
#pragma unroll
        for (int k = 0; k < 2 * WIDTH; k++)
            a[k] = ahead.rows.at[k] == i ? low : ahead.rows.at[k] == n + i ? high : b[k];
        ahead.i = ahead.next;
        ahead.next = after;
        ahead.rows = later;
        base += gamma << 6;
    }
}

KERNEL(TUNED, set_bits4)(
    const u32* __restrict__ order, u32 length, u32 place, u64 number, int steps,
    const Rows<8>* __restrict__ neighbor, const Four* __restrict__ choice, const u64* __restrict__ threshold, u32 n,
    const u64* __restrict__ keys, u64* x, u32 W)
{
    set_update<4>(order, length, place, number, steps, neighbor, choice, threshold, n, keys, x, W);
}
ENTRY(TUNED, set_bits4)

KERNEL(TUNED, set_bits6)(
    const u32* __restrict__ order, u32 length, u32 place, u64 number, int steps,
    const Rows<12>* __restrict__ neighbor, const Four* __restrict__ choice, const u64* __restrict__ threshold, u32 n,
    const u64* __restrict__ keys, u64* x, u32 W)
{
    set_update<6>(order, length, place, number, steps, neighbor, choice, threshold, n, keys, x, W);
}
ENTRY(TUNED, set_bits6)

// choice[i, plane, q]: where the function of the first two neighbours stands that is right for combination q of the
// others.
KERNEL(, choose)(const u64* __restrict__ threshold, u32 n, int width, u32* choice) {
    const u32 others = 1u << (width - 2);
    const size_t cell = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (cell >= (size_t)n * PLANES * others) return;
    const u32 q = cell % others, plane = cell / others % PLANES;
    const u64* p = threshold + (cell / others / PLANES << width) + 4 * q;
    u32 f = 0;
    for (int j = 0; j < 4; j++) f |= (u32)(p[j] >> (63 - plane) & 1) << j;
    choice[cell] = f * (8 * BLOCK);
}
ENTRY(, choose)

// Fair bits for every variable; ids are positions in the model.
KERNEL(, start_bits)(const long long* ids, u32 n, const u64* keys, u64* x, u32 W) {
    const u32 w = blockIdx.x * blockDim.x + threadIdx.x;
    if (w >= W) return;
    for (u32 v = 0; v < n; v++) x[(size_t)W * v + w] = mix(keys[w] + keys[W + w] * (START + (u64)ids[v]));
}
ENTRY(, start_bits)

// counts[v] += ones among the first `chains` of row rows[v], of which there are n; one block a row.
KERNEL(, count_bits)(const u64* x, const long long* rows, u32 n, u32 W, u64 chains, u64* counts) {
    if (blockIdx.x >= n) return;
    u64 total = 0;
    for (u32 w = threadIdx.x; w < W; w += blockDim.x) {
        u64 word = x[(size_t)W * rows[blockIdx.x] + w];
        if (chains - 64ull * w < 64) word &= (1ull << (chains - 64ull * w)) - 1;
        total += __popcll(word);
    }
    if (total) atomicAdd(counts + blockIdx.x, total);
}
ENTRY(, count_bits)

// States of chains of n rows: out[v, chain]; blockIdx.y is v.
KERNEL(, unpack)(const u64* x, const long long* rows, u32 n, u32 W, u64 chains, signed char* out) {
    const u64 c = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (c < chains && blockIdx.y < n) out[chains * blockIdx.y + c] = x[(size_t)W * rows[blockIdx.y] + c / 64] >> c % 64 & 1;
}
ENTRY(, unpack)

// The state of a variable that is settled, else -1: of `count` of the n variables.
KERNEL(, settled_bits)(const u64* x, int n, const long long* rows, u32 count, u32 W, u64 chains, short* out) {
    const u64 c = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= chains || blockIdx.y >= count) return;
    const size_t at = (size_t)W * rows[blockIdx.y] + c / 64;
    const int low = x[at] >> c % 64 & 1, high = x[at + (size_t)W * n] >> c % 64 & 1;
    out[chains * blockIdx.y + c] = low == high ? low : -1;
}
ENTRY(, settled_bits)
