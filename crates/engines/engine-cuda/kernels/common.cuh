// Code that all kernels share: storage types, index arithmetic, reductions over blocks.
//
// Values are stored as 32-bit floats, half floats, brain floats or integers; arithmetic is in 32-bit floats and 64-bit
// integers. No header of the CUDA toolkit is needed: NVRTC alone compiles this, and so does a C++ compiler with
// host/emulation.h prepended. This file and window.cuh are prepended to each .cu file when it is compiled.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;
typedef int i32;
typedef long long i64;

struct f16 {
    u16 bits;
};
struct bf16 {
    u16 bits;
};
struct boolean {
    u8 byte;
};

// Largest rank of strided operands; the planner's MAX_RANK.
constexpr int RANK = 6;

// Stands before a loop whose arrays must stay in registers.
#ifdef HOST_EMULATION
#define UNROLL
#else
#define UNROLL _Pragma("unroll")
#endif

// === bits ===

__device__ inline u32 bits_of(float value) { return __float_as_uint(value); }
__device__ inline float float_of(u32 bits) { return __uint_as_float(bits); }
__device__ inline float infinity() { return float_of(0x7f800000u); }

#ifdef HOST_EMULATION
__device__ inline float half_to_float(u16 bits) { return emulated_half_to_float(bits); }
__device__ inline u16 float_to_half(float value) { return emulated_float_to_half(value); }
#else
__device__ inline float half_to_float(u16 bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}
__device__ inline u16 float_to_half(float value) {
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
#endif

// Rounds to nearest, halves to even; NaN stays NaN.
__device__ inline u16 float_to_brain(float value) {
    u32 bits = bits_of(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (u16)((bits >> 16) | 0x40u);
    return (u16)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// Rounds towards zero and saturates; NaN gives 0.
__device__ inline i64 float_to_integer(float value) {
    if (value != value) return 0;
    if (value >= 9223372036854775808.0f) return 0x7fffffffffffffffLL;
    if (value <= -9223372036854775808.0f) return -0x7fffffffffffffffLL - 1;
    return (i64)value;
}

// === storage ===

// The type in which a stored value is computed.
template <class T> struct Wide {
    typedef i64 type;
};
template <> struct Wide<float> {
    typedef float type;
};
template <> struct Wide<f16> {
    typedef float type;
};
template <> struct Wide<bf16> {
    typedef float type;
};

__device__ inline float widen(float value) { return value; }
__device__ inline float widen(f16 value) { return half_to_float(value.bits); }
__device__ inline float widen(bf16 value) { return float_of((u32)value.bits << 16); }
__device__ inline i64 widen(i64 value) { return value; }
__device__ inline i64 widen(i32 value) { return value; }
__device__ inline i64 widen(i8 value) { return value; }
__device__ inline i64 widen(u8 value) { return value; }
__device__ inline i64 widen(boolean value) { return value.byte != 0; }

__device__ inline void narrow(float value, float& to) { to = value; }
__device__ inline void narrow(float value, f16& to) { to.bits = float_to_half(value); }
__device__ inline void narrow(float value, bf16& to) { to.bits = float_to_brain(value); }
__device__ inline void narrow(i64 value, i64& to) { to = value; }
__device__ inline void narrow(i64 value, i32& to) { to = (i32)value; }
__device__ inline void narrow(i64 value, i8& to) { to = (i8)value; }
__device__ inline void narrow(i64 value, u8& to) { to = (u8)value; }
__device__ inline void narrow(i64 value, boolean& to) { to.byte = value != 0; }

// Codes of element types, for kernels that convert.
enum Element { F32, F16, BF16, I64, I32, I8, U8, BOOL };

// Values that one thread loads or stores at once: 16 bytes where W is more than 1.
template <class T, int W> struct alignas(sizeof(T) * W) Pack {
    T values[W];
};

// === activations ===

enum Activation { NO_ACTIVATION, ACTIVATION_RELU };

// Keeps NaN.
__device__ inline float relu(float value) { return value < 0.0f ? 0.0f : value; }
__device__ inline float activate(int activation, float value) {
    return activation == ACTIVATION_RELU ? relu(value) : value;
}

// === indices ===

__device__ inline u64 first_index() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ inline u64 index_step() { return (u64)gridDim.x * blockDim.x; }

// Sizes of a strided tensor, the innermost dimension last.
struct Shape {
    i32 rank;
    u64 sizes[RANK];
};
struct Strides {
    i64 values[RANK];
};

// Offsets, in elements, of element `index` in N tensors of the same sizes. Division is the costly part, so 32-bit
// numbers are used where they suffice.
template <int N>
__device__ inline void offsets(u64 index, const Shape& shape, const Strides* const (&strides)[N],
                               i64 (&found)[N]) {
    for (int tensor = 0; tensor < N; ++tensor) found[tensor] = 0;
    for (int dim = shape.rank - 1; dim >= 0; --dim) {
        u64 size = shape.sizes[dim];
        u64 at;
        if (dim == 0) {
            at = index;
        } else if ((index >> 32) == 0 && (size >> 32) == 0) {
            u32 rest = (u32)index / (u32)size;
            at = (u32)index - rest * (u32)size;
            index = rest;
        } else {
            at = index % size;
            index /= size;
        }
        for (int tensor = 0; tensor < N; ++tensor)
            found[tensor] += (i64)at * strides[tensor]->values[dim];
    }
}

// === reductions over a block ===

struct Add {
    template <class V> __device__ V operator()(V a, V b) const { return a + b; }
};
struct Multiply {
    template <class V> __device__ V operator()(V a, V b) const { return a * b; }
};
struct Larger {
    __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
    __device__ i64 operator()(i64 a, i64 b) const { return a > b ? a : b; }
};
struct Smaller {
    __device__ float operator()(float a, float b) const { return fminf(a, b); }
    __device__ i64 operator()(i64 a, i64 b) const { return a < b ? a : b; }
};

// The value of the lane whose number differs by `distance` in one bit.
template <class V> __device__ inline V exchange(V value, int distance) {
    return __shfl_xor_sync(0xffffffffu, value, distance);
}
__device__ inline float from_lane(float value, int distance) { return exchange(value, distance); }
__device__ inline i64 from_lane(i64 value, int distance) { return exchange(value, distance); }

template <class V, class Combine> __device__ inline V reduce_warp(V value, const Combine& combine) {
    for (int distance = 16; distance > 0; distance /= 2)
        value = combine(value, from_lane(value, distance));
    return value;
}

// Combines one value of each thread; every thread gets the result. All threads of the block must call it, and the block
// must consist of whole warps.
template <class V, class Combine>
__device__ inline V reduce_block(V value, const V& identity, const Combine& combine) {
    __shared__ V partial[32];
    value = reduce_warp(value, combine);
    u32 warps = blockDim.x / 32;
    if (warps == 1) return value;
    u32 lane = threadIdx.x % 32;
    if (lane == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    value = reduce_warp(lane < warps ? partial[lane] : identity, combine);
    // The next reduction writes to the memory that this one read.
    __syncthreads();
    return value;
}

// === instances ===

#define FOR_FLOATS(INSTANCE) INSTANCE(f32, float) INSTANCE(f16, f16) INSTANCE(bf16, bf16)
#define FOR_SHORT_INTEGERS(INSTANCE) INSTANCE(i8, i8) INSTANCE(u8, u8) INSTANCE(bool, boolean)
#define FOR_LONG_INTEGERS(INSTANCE) INSTANCE(i64, i64) INSTANCE(i32, i32)
#define FOR_SIZES(INSTANCE) INSTANCE(1, u8) INSTANCE(2, u16) INSTANCE(4, u32) INSTANCE(8, u64)
