// SplitMix64 as a keyed generator: number c of a stream is mix(key + c * gamma). See _kernels/generator.py.

typedef unsigned long long u64;
typedef unsigned int u32;

// A kernel is written once: KERNEL(bounds, name)(parameters) { ... } ENTRY(bounds, name). Compiled with MANY it is a
// function, and its entry runs it for many sets of arguments in one launch: set blockIdx.z is a row of 64-bit slots, one
// for each parameter (whole numbers and pointers). Blocks that a set has no use for return at once.
#ifdef MANY
#define KERNEL(bounds, name) __device__ __forceinline__ void name
#define ENTRY(bounds, name)                                                                                           \
    extern "C" __global__ void bounds name##_many(const u64* slots) { Call<name>::with(slots); }
template <int... I> struct Numbers {};
template <int N, int... I> struct Upto : Upto<N - 1, N - 1, I...> {};
template <int... I> struct Upto<0, I...> { typedef Numbers<I...> type; };
template <auto body> struct Call;
template <typename... A, void (*body)(A...)> struct Call<body> {
    template <int... I> __device__ __forceinline__ static void pass(const u64* row, Numbers<I...>) { body((A)row[I]...); }
    __device__ __forceinline__ static void with(const u64* slots) {
        pass(slots + sizeof...(A) * blockIdx.z, typename Upto<sizeof...(A)>::type());
    }
};
#else
#define KERNEL(bounds, name) extern "C" __global__ void bounds name
#define ENTRY(bounds, name)
#endif

__device__ __forceinline__ u64 mix(u64 z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

// Word of the variable of a random step, and of the initial state of a variable.
#define CHOICE (1ull << 62)
#define START (1ull << 63)

// Keys and increments of the streams `first` to `first + count - 1` of a seed.
KERNEL(, streams)(u64 master_key, u64 master_gamma, u64 first, u32 count, u64* keys) {
    const u32 s = blockIdx.x * blockDim.x + threadIdx.x;
    if (s >= count) return;
    keys[s] = mix(master_key + 0x9E3779B97F4A7C15ull * (first + s));
    u64 z = mix(master_gamma + 0x9E3779B97F4A7C15ull * (first + s)) | 1;
    if (__popcll(z ^ (z >> 1)) < 24) z ^= 0xAAAAAAAAAAAAAAAAull;
    keys[count + s] = z;
}
ENTRY(, streams)
