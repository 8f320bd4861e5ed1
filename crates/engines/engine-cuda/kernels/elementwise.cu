// Element-by-element kernels: functions of one and two values, scale and shift by channel.
//
// Every thread processes packs of neighbouring values, so that the loads and stores of a warp are whole lines. The
// function is a parameter, not a template: all threads take the same branch, and memory limits the speed of these
// kernels.

enum UnaryFunction {
    RELU, LEAKY_RELU, ELU, SELU, SIGMOID, HARD_SIGMOID, HARD_SWISH, SILU, TANH, ERF, GELU, GELU_TANH,
    SOFTPLUS, SOFTSIGN, EXP, LOG, SQRT, RECIPROCAL, NEG, ABS, SIGN, FLOOR, CEIL, ROUND, SIN, COS, CLIP,
    NOT
};
enum BinaryFunction {
    ADD, SUB, MUL, DIV, POW, MIN, MAX, EQUAL, LESS, LESS_OR_EQUAL, GREATER, GREATER_OR_EQUAL, AND, OR,
    XOR
};

// This is long and rarely used, so the code exists once instead of at every call.
__device__ __noinline__ float slow_power(float a, float b) { return powf(a, b); }
__device__ __noinline__ float slow_sine(float x) { return sinf(x); }
__device__ __noinline__ float slow_cosine(float x) { return cosf(x); }
__device__ __noinline__ float slow_expm1(float x) { return expm1f(x); }
__device__ __noinline__ float slow_softplus(float x) {
    return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)));
}
__device__ __noinline__ float slow_log(float x) { return logf(x); }

__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ inline float unit(float x) { return x < 0.0f ? 0.0f : (x > 1.0f ? 1.0f : x); }
__device__ inline float sign(float x) {
    if (x != x) return x;
    return x == 0.0f ? 0.0f : copysignf(1.0f, x);
}
__device__ inline float gelu_tanh(float x) {
    float inner = 0.7978845608028654f * (x + 0.044715f * x * x * x);
    return 0.5f * x * (1.0f + tanhf(inner));
}

__device__ inline float gelu(float x) { return 0.5f * x * (1.0f + erff(x * 0.7071067811865476f)); }
// Not defined for integers.
__device__ inline i64 gelu(i64 x) { return x; }

// `p` and `q` are the parameters of the function, in the order in which the planner names them.
__device__ inline float unary(int function, float p, float q, float x) {
    switch (function) {
    case RELU: return relu(x);
    case LEAKY_RELU: return x < 0.0f ? p * x : x;
    case ELU: return x < 0.0f ? p * slow_expm1(x) : x;
    case SELU: return q * (x < 0.0f ? p * slow_expm1(x) : x);
    case SIGMOID: return sigmoid(x);
    case HARD_SIGMOID: return unit(p * x + q);
    case HARD_SWISH: return x * unit(x * (1.0f / 6.0f) + 0.5f);
    case SILU: return x * sigmoid(x);
    case TANH: return tanhf(x);
    case ERF: return erff(x);
    case GELU: return gelu(x);
    case GELU_TANH: return gelu_tanh(x);
    case SOFTPLUS: return slow_softplus(x);
    case SOFTSIGN: return x / (1.0f + fabsf(x));
    case EXP: return expf(x);
    case LOG: return slow_log(x);
    case SQRT: return sqrtf(x);
    case RECIPROCAL: return 1.0f / x;
    case NEG: return -x;
    case ABS: return fabsf(x);
    case SIGN: return sign(x);
    case FLOOR: return floorf(x);
    case CEIL: return ceilf(x);
    case ROUND: return rintf(x);
    case SIN: return slow_sine(x);
    case COS: return slow_cosine(x);
    case CLIP: return fminf(fmaxf(x, p), q);
    default: return x;
    }
}

__device__ inline i64 unary(int function, float p, float q, i64 x) {
    switch (function) {
    case RELU: return x < 0 ? 0 : x;
    case NEG: return (i64)(0 - (u64)x);
    case ABS: return x < 0 ? (i64)(0 - (u64)x) : x;
    case SIGN: return x > 0 ? 1 : (x < 0 ? -1 : 0);
    case CLIP: return Smaller()(Larger()(x, float_to_integer(ceilf(p))), float_to_integer(floorf(q)));
    case NOT: return x == 0;
    default: return x;
    }
}

template <class T, int W>
__device__ void unary_kernel(const T* x, T* y, u64 count, int function, float p, float q) {
    for (u64 pack = first_index(); pack * W < count; pack += index_step()) {
        u64 start = pack * W;
        if (start + W <= count) {
            Pack<T, W> values = *(const Pack<T, W>*)(x + start);
            if (W > 1 && function == GELU) {
                // The functions on which encoders spend their time avoid the branch before each value.
                UNROLL
                for (int i = 0; i < W; ++i) narrow(gelu(widen(values.values[i])), values.values[i]);
            } else {
                for (int i = 0; i < W; ++i)
                    narrow(unary(function, p, q, widen(values.values[i])), values.values[i]);
            }
            *(Pack<T, W>*)(y + start) = values;
        } else {
            for (u64 i = start; i < count; ++i) narrow(unary(function, p, q, widen(x[i])), y[i]);
        }
    }
}

__device__ __noinline__ i64 power(i64 base, i64 exponent) {
    // As in the planner, the fraction of a negative exponent is rounded towards zero, and an exponent above 32 bits
    // gives 0, except for the bases 1 and -1.
    if (exponent < 0 || exponent > 0xffffffffLL) {
        if (base == -1) return exponent % 2 == 0 ? 1 : -1;
        return base == 1 ? 1 : 0;
    }
    u32 left = (u32)exponent;
    u64 result = 1, square = (u64)base;
    for (; left > 0; left >>= 1) {
        if (left & 1u) result *= square;
        square *= square;
    }
    return (i64)result;
}

// Rounds towards zero; 0 if there is no result.
__device__ __noinline__ i64 quotient(i64 a, i64 b) {
    if (b == 0 || (b == -1 && a == -0x7fffffffffffffffLL - 1)) return 0;
    return a / b;
}

__device__ inline float binary(int function, float a, float b) {
    switch (function) {
    case ADD: return a + b;
    case SUB: return a - b;
    case MUL: return a * b;
    case DIV: return a / b;
    case POW: return slow_power(a, b);
    case MIN: return fminf(a, b);
    default: return fmaxf(a, b);
    }
}

__device__ inline i64 binary(int function, i64 a, i64 b) {
    switch (function) {
    case ADD: return (i64)((u64)a + (u64)b);
    case SUB: return (i64)((u64)a - (u64)b);
    case MUL: return (i64)((u64)a * (u64)b);
    case DIV: return quotient(a, b);
    case POW: return power(a, b);
    case MIN: return a < b ? a : b;
    case MAX: return a > b ? a : b;
    case AND: return a != 0 && b != 0;
    case OR: return a != 0 || b != 0;
    default: return (a != 0) != (b != 0);
    }
}

template <class V> __device__ inline bool compare(int function, V a, V b) {
    switch (function) {
    case EQUAL: return a == b;
    case LESS: return a < b;
    case LESS_OR_EQUAL: return a <= b;
    case GREATER: return a > b;
    default: return a >= b;
    }
}

__device__ inline float activated(int activation, float value) { return activate(activation, value); }
__device__ inline i64 activated(int, i64 value) { return value; }

// How two values are combined, and in which type the result is stored.
template <class T> struct Arithmetic {
    typedef T Result;
    __device__ static void apply(int function, int activation, T a, T b, T& y) {
        narrow(activated(activation, binary(function, widen(a), widen(b))), y);
    }
};
template <class T> struct Comparison {
    typedef boolean Result;
    __device__ static void apply(int function, int, T a, T b, boolean& y) {
        y.byte = compare(function, widen(a), widen(b));
    }
};

// Floats; each operand has the output's sizes (stride 1) or a single value (stride 0).
template <class T, int W>
__device__ void flat_kernel(const T* a, const T* b, T* y, u64 count, u32 a_stride, u32 b_stride,
                            int function, int activation) {
    for (u64 pack = first_index(); pack * W < count; pack += index_step()) {
        u64 start = pack * W;
        if (start + W <= count) {
            Pack<T, W> left, right;
            if (a_stride) left = *(const Pack<T, W>*)(a + start);
            if (b_stride) right = *(const Pack<T, W>*)(b + start);
            for (int i = 0; i < W; ++i) {
                T here = a_stride ? left.values[i] : *a;
                Arithmetic<T>::apply(function, activation, here, b_stride ? right.values[i] : *b,
                                     left.values[i]);
            }
            *(Pack<T, W>*)(y + start) = left;
        } else {
            for (u64 i = start; i < count; ++i)
                Arithmetic<T>::apply(function, activation, a[i * a_stride], b[i * b_stride], y[i]);
        }
    }
}

// Floats, in packs of W neighbours. Inside a pack, an operand moves with the output (stride W in the innermost
// dimension) or has one value (stride 0). Sizes count packs in the innermost dimension.
template <class T, int W>
__device__ void packed_kernel(const T* a, const T* b, T* y, u64 packs, const Shape& shape,
                              const Strides& a_strides, const Strides& b_strides, u32 a_stride, u32 b_stride,
                              int function, int activation) {
    const Strides* const strides[2] = {&a_strides, &b_strides};
    for (u64 pack = first_index(); pack < packs; pack += index_step()) {
        i64 at[2];
        offsets(pack, shape, strides, at);
        Pack<T, W> left, right;
        if (a_stride) left = *(const Pack<T, W>*)(a + at[0]);
        if (b_stride) right = *(const Pack<T, W>*)(b + at[1]);
        T one_left = a[at[0]], one_right = b[at[1]];
        for (int i = 0; i < W; ++i)
            Arithmetic<T>::apply(function, activation, a_stride ? left.values[i] : one_left,
                                 b_stride ? right.values[i] : one_right, left.values[i]);
        *(Pack<T, W>*)(y + pack * W) = left;
    }
}

template <class T, class Rule>
__device__ void strided_kernel(const T* a, const T* b, typename Rule::Result* y, u64 count,
                               const Shape& shape, const Strides& a_strides, const Strides& b_strides,
                               int function, int activation) {
    const Strides* const strides[2] = {&a_strides, &b_strides};
    for (u64 index = first_index(); index < count; index += index_step()) {
        i64 at[2];
        offsets(index, shape, strides, at);
        Rule::apply(function, activation, a[at[0]], b[at[1]], y[index]);
    }
}

template <class T>
__device__ void affine_kernel(const T* x, T* y, const T* scale, const T* shift, u64 count, u64 channels,
                              u64 inner, int activation) {
    for (u64 index = first_index(); index < count; index += index_step()) {
        u64 channel = count >> 32 ? index / inner % channels
                                  : (u64)((u32)index / (u32)inner % (u32)channels);
        float factor = scale ? widen(scale[channel]) : 1.0f;
        float offset = shift ? widen(shift[channel]) : 0.0f;
        narrow(activate(activation, widen(x[index]) * factor + offset), y[index]);
    }
}

#define UNARY(NAME, T, W)                                                                             \
    extern "C" __global__ void unary_##NAME(const T* x, T* y, u64 count, int function, float p,       \
                                            float q) {                                                \
        unary_kernel<T, W>(x, y, count, function, p, q);                                              \
    }
#define BINARY(KIND, RULE, NAME, T)                                                                   \
    extern "C" __global__ void KIND##_##NAME(const T* a, const T* b, RULE<T>::Result* y, u64 count,   \
                                             Shape shape, Strides a_strides, Strides b_strides,       \
                                             int function, int activation) {                          \
        strided_kernel<T, RULE<T>>(a, b, y, count, shape, a_strides, b_strides, function, activation); \
    }
#define FLAT(NAME, T, W)                                                                              \
    extern "C" __global__ void arithmetic_flat_##NAME(const T* a, const T* b, T* y, u64 count,        \
                                                      u32 a_stride, u32 b_stride, int function,       \
                                                      int activation) {                               \
        flat_kernel<T, W>(a, b, y, count, a_stride, b_stride, function, activation);                  \
    }
#define PACKED(NAME, T, W)                                                                            \
    extern "C" __global__ void arithmetic_packed_##NAME(const T* a, const T* b, T* y, u64 packs,      \
                                                        Shape shape, Strides a_strides,               \
                                                        Strides b_strides, u32 a_stride,              \
                                                        u32 b_stride, int function, int activation) { \
        packed_kernel<T, W>(a, b, y, packs, shape, a_strides, b_strides, a_stride, b_stride,          \
                            function, activation);                                                    \
    }
#define AFFINE(NAME, T)                                                                               \
    extern "C" __global__ void affine_##NAME(const T* x, T* y, const T* scale, const T* shift,        \
                                             u64 count, u64 channels, u64 inner, int activation) {    \
        affine_kernel<T>(x, y, scale, shift, count, channels, inner, activation);                     \
    }
#define ELEMENTWISE(NAME, T)                                                                          \
    UNARY(NAME, T, 1)                                                                                 \
    BINARY(arithmetic, Arithmetic, NAME, T)                                                           \
    BINARY(comparison, Comparison, NAME, T)

FOR_FLOATS(ELEMENTWISE)
FOR_LONG_INTEGERS(ELEMENTWISE)
FOR_SHORT_INTEGERS(ELEMENTWISE)
FOR_FLOATS(AFFINE)
#define FLAT_SINGLE(NAME, T) FLAT(NAME, T, 1)
FOR_FLOATS(FLAT_SINGLE)

// 16 bytes at a time, if addresses allow it.
UNARY(f32_wide, float, 4)
UNARY(f16_wide, f16, 8)
UNARY(bf16_wide, bf16, 8)
FLAT(f32_wide, float, 4)
FLAT(f16_wide, f16, 8)
FLAT(bf16_wide, bf16, 8)
PACKED(f32, float, 4)
PACKED(f16, f16, 8)
PACKED(bf16, bf16, 8)
