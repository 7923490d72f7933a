// SplitMix64 as a keyed generator: number c of a stream is mix(key + c * gamma). See _kernels/generator.py.

typedef unsigned long long u64;
typedef unsigned int u32;

__device__ __forceinline__ u64 mix(u64 z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

// Word of the variable of a random step, and of the initial state of a variable.
#define CHOICE (1ull << 62)
#define START (1ull << 63)

// Keys and increments of the streams `first` to `first + count - 1` of a seed.
extern "C" __global__ void streams(u64 master_key, u64 master_gamma, u64 first, u32 count, u64* keys) {
    const u32 s = blockIdx.x * blockDim.x + threadIdx.x;
    if (s >= count) return;
    keys[s] = mix(master_key + 0x9E3779B97F4A7C15ull * (first + s));
    u64 z = mix(master_gamma + 0x9E3779B97F4A7C15ull * (first + s)) | 1;
    if (__popcll(z ^ (z >> 1)) < 24) z ^= 0xAAAAAAAAAAAAAAAAull;
    keys[count + s] = z;
}
