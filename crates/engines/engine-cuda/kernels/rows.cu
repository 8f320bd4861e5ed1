// Kernels along one dimension of [outer, length, inner]: reductions, extremes, softmax, normalisation.
//
// If the dimension is the innermost (`_rows`), one block processes one row: its threads read neighbouring values and
// combine their results with warp shuffles. Otherwise (`_columns`) one thread processes one line, and neighbouring
// threads read neighbouring lines.

enum ReduceFunction { SUM, MEAN, MAXIMUM, MINIMUM, PRODUCT, L2, SUM_SQUARE };

// === reduce ===

template <class V> struct Limits;
template <> struct Limits<float> {
    __device__ static float lowest() { return -infinity(); }
    __device__ static float highest() { return infinity(); }
    __device__ static float root(float value) { return sqrtf(value); }
};
template <> struct Limits<i64> {
    __device__ static i64 lowest() { return -0x7fffffffffffffffLL - 1; }
    __device__ static i64 highest() { return 0x7fffffffffffffffLL; }
    __device__ static i64 root(i64 value) { return value; }
};

// Whether the values are squared, the initial value, and how two values are combined.
struct Reduction {
    int function;
    template <class V> __device__ V identity() const {
        switch (function) {
        case MAXIMUM: return Limits<V>::lowest();
        case MINIMUM: return Limits<V>::highest();
        case PRODUCT: return (V)1;
        default: return (V)0;
        }
    }
    template <class V> __device__ V prepare(V value) const {
        return function == L2 || function == SUM_SQUARE ? value * value : value;
    }
    template <class V> __device__ V operator()(V a, V b) const {
        switch (function) {
        case MAXIMUM: return Larger()(a, b);
        case MINIMUM: return Smaller()(a, b);
        case PRODUCT: return a * b;
        default: return a + b;
        }
    }
    template <class V> __device__ V finish(V value, u64 length) const {
        switch (function) {
        case MEAN: return value / (V)length;
        case L2: return Limits<V>::root(value);
        default: return value;
        }
    }
};

template <class T>
__device__ void reduce_rows_kernel(const T* x, T* y, u64 rows, u64 length, int function) {
    typedef typename Wide<T>::type V;
    Reduction reduction = {function};
    for (u64 row = blockIdx.x; row < rows; row += gridDim.x) {
        V value = reduction.identity<V>();
        for (u64 i = threadIdx.x; i < length; i += blockDim.x)
            value = reduction(value, reduction.prepare(widen(x[row * length + i])));
        value = reduce_block(value, reduction.identity<V>(), reduction);
        if (threadIdx.x == 0) narrow(reduction.finish(value, length), y[row]);
    }
}

template <class T>
__device__ void reduce_columns_kernel(const T* x, T* y, u64 lines, u64 length, u64 inner, int function) {
    typedef typename Wide<T>::type V;
    Reduction reduction = {function};
    for (u64 line = first_index(); line < lines; line += index_step()) {
        const T* start = x + line / inner * length * inner + line % inner;
        V value = reduction.identity<V>();
        for (u64 i = 0; i < length; ++i)
            value = reduction(value, reduction.prepare(widen(start[i * inner])));
        narrow(reduction.finish(value, length), y[line]);
    }
}

// === arg ===

// A candidate: its value and index; a negative index means none.
template <class V> struct Extreme {
    V value;
    i64 index;
};

template <class V> __device__ inline Extreme<V> from_lane(const Extreme<V>& extreme, int distance) {
    Extreme<V> other;
    other.value = exchange(extreme.value, distance);
    other.index = exchange(extreme.index, distance);
    return other;
}

struct Better {
    int largest;
    int last;
    template <class V> __device__ Extreme<V> operator()(const Extreme<V>& a, const Extreme<V>& b) const {
        if (a.index < 0 || b.index < 0) return a.index < 0 ? b : a;
        if (a.value == b.value) return (a.index > b.index) == (last != 0) ? a : b;
        return (a.value > b.value) == (largest != 0) ? a : b;
    }
};

template <class T>
__device__ void arg_rows_kernel(const T* x, i64* y, u64 rows, u64 length, int largest, int last) {
    typedef typename Wide<T>::type V;
    Better better = {largest, last};
    Extreme<V> none = {0, -1};
    for (u64 row = blockIdx.x; row < rows; row += gridDim.x) {
        Extreme<V> best = none;
        for (u64 i = threadIdx.x; i < length; i += blockDim.x) {
            Extreme<V> here = {widen(x[row * length + i]), (i64)i};
            best = better(best, here);
        }
        best = reduce_block(best, none, better);
        if (threadIdx.x == 0) y[row] = best.index;
    }
}

template <class T>
__device__ void arg_columns_kernel(const T* x, i64* y, u64 lines, u64 length, u64 inner, int largest,
                                   int last) {
    typedef typename Wide<T>::type V;
    Better better = {largest, last};
    for (u64 line = first_index(); line < lines; line += index_step()) {
        const T* start = x + line / inner * length * inner + line % inner;
        Extreme<V> best = {0, -1};
        for (u64 i = 0; i < length; ++i) {
            Extreme<V> here = {widen(start[i * inner]), (i64)i};
            best = better(best, here);
        }
        y[line] = best.index;
    }
}

// === softmax ===

__device__ inline float softmax_value(float value, float largest, float sum, int logarithm) {
    return logarithm ? value - largest - logf(sum) : expf(value - largest) / sum;
}

template <class T>
__device__ void softmax_rows_kernel(const T* x, T* y, u64 rows, u64 length, int logarithm) {
    for (u64 row = blockIdx.x; row < rows; row += gridDim.x) {
        const T* from = x + row * length;
        T* to = y + row * length;
        float largest = -infinity();
        for (u64 i = threadIdx.x; i < length; i += blockDim.x) largest = fmaxf(largest, widen(from[i]));
        largest = reduce_block(largest, -infinity(), Larger());
        float sum = 0.0f;
        for (u64 i = threadIdx.x; i < length; i += blockDim.x) sum += expf(widen(from[i]) - largest);
        sum = reduce_block(sum, 0.0f, Add());
        for (u64 i = threadIdx.x; i < length; i += blockDim.x)
            narrow(softmax_value(widen(from[i]), largest, sum, logarithm), to[i]);
    }
}

// Rows short enough for the registers of one warp: PACKS times 32 lanes of four neighbours.
constexpr u32 PACKS = 8;

// The first row of each warp; warps go on row by row. Whole blocks call it together.
__device__ inline u64 first_warp() { return first_index() / 32; }
__device__ inline u64 warp_step() { return index_step() / 32; }

// The part of a row that one lane holds.
template <class T> struct Held {
    float values[PACKS][4];
    u32 packs;

    __device__ void load(const T* row, u64 length) {
        packs = (u32)(length / 4);
        for (u32 at = 0; at < PACKS; ++at) {
            u32 pack = at * 32 + threadIdx.x % 32;
            if (pack >= packs) continue;
            Pack<T, 4> here = ((const Pack<T, 4>*)row)[pack];
            for (int i = 0; i < 4; ++i) values[at][i] = widen(here.values[i]);
        }
    }
    // Calls `change(value, index)` for each value; the index counts in the row.
    template <class Change> __device__ void each(const Change& change) {
        for (u32 at = 0; at < PACKS; ++at) {
            u32 pack = at * 32 + threadIdx.x % 32;
            if (pack >= packs) continue;
            for (int i = 0; i < 4; ++i) change(values[at][i], pack * 4 + i);
        }
    }
    __device__ void store(T* row) const {
        for (u32 at = 0; at < PACKS; ++at) {
            u32 pack = at * 32 + threadIdx.x % 32;
            if (pack >= packs) continue;
            Pack<T, 4> here;
            for (int i = 0; i < 4; ++i) narrow(values[at][i], here.values[i]);
            ((Pack<T, 4>*)row)[pack] = here;
        }
    }
};

template <class T>
__device__ void softmax_warps_kernel(const T* x, T* y, u64 rows, u64 length, int logarithm) {
    Held<T> held;
    for (u64 row = first_warp(); row < rows; row += warp_step()) {
        held.load(x + row * length, length);
        float largest = -infinity(), sum = 0.0f;
        held.each([&](float& value, u32) { largest = fmaxf(largest, value); });
        largest = reduce_warp(largest, Larger());
        held.each([&](float& value, u32) {
            float power = expf(value - largest);
            sum += power;
            if (!logarithm) value = power;
        });
        sum = reduce_warp(sum, Add());
        float shift = largest + logf(sum), factor = 1.0f / sum;
        held.each([&](float& value, u32) { value = logarithm ? value - shift : value * factor; });
        held.store(y + row * length);
    }
}

template <class T>
__device__ void softmax_columns_kernel(const T* x, T* y, u64 lines, u64 length, u64 inner,
                                       int logarithm) {
    for (u64 line = first_index(); line < lines; line += index_step()) {
        u64 start = line / inner * length * inner + line % inner;
        float largest = -infinity(), sum = 0.0f;
        for (u64 i = 0; i < length; ++i) largest = fmaxf(largest, widen(x[start + i * inner]));
        for (u64 i = 0; i < length; ++i) sum += expf(widen(x[start + i * inner]) - largest);
        for (u64 i = 0; i < length; ++i)
            narrow(softmax_value(widen(x[start + i * inner]), largest, sum, logarithm),
                   y[start + i * inner]);
    }
}

// === layer normalisation ===

// Computes the mean first, then the squares of the differences from it: one pass over both would lose precision by
// cancellation.
template <class T>
__device__ void layer_norm_kernel(const T* x, T* y, const T* scale, const T* shift, u64 rows, u64 length,
                                  float epsilon) {
    for (u64 row = blockIdx.x; row < rows; row += gridDim.x) {
        const T* from = x + row * length;
        float sum = 0.0f, squares = 0.0f;
        for (u64 i = threadIdx.x; i < length; i += blockDim.x) sum += widen(from[i]);
        float mean = reduce_block(sum, 0.0f, Add()) / (float)length;
        for (u64 i = threadIdx.x; i < length; i += blockDim.x) {
            float difference = widen(from[i]) - mean;
            squares += difference * difference;
        }
        float variance = reduce_block(squares, 0.0f, Add()) / (float)length;
        float factor = 1.0f / sqrtf(variance + epsilon);
        for (u64 i = threadIdx.x; i < length; i += blockDim.x) {
            float value = (widen(from[i]) - mean) * factor;
            if (scale) value *= widen(scale[i]);
            if (shift) value += widen(shift[i]);
            narrow(value, y[row * length + i]);
        }
    }
}

template <class T>
__device__ void layer_norm_warps_kernel(const T* x, T* y, const T* scale, const T* shift, u64 rows, u64 length,
                                        float epsilon) {
    Held<T> held;
    for (u64 row = first_warp(); row < rows; row += warp_step()) {
        held.load(x + row * length, length);
        float sum = 0.0f, squares = 0.0f;
        held.each([&](float& value, u32) { sum += value; });
        float mean = reduce_warp(sum, Add()) / (float)length;
        held.each([&](float& value, u32) {
            value -= mean;
            squares += value * value;
        });
        float variance = reduce_warp(squares, Add()) / (float)length;
        float factor = 1.0f / sqrtf(variance + epsilon);
        held.each([&](float& value, u32 at) {
            value *= factor;
            if (scale) value *= widen(scale[at]);
            if (shift) value += widen(shift[at]);
        });
        held.store(y + row * length);
    }
}

#define REDUCE(NAME, T)                                                                               \
    extern "C" __global__ void reduce_rows_##NAME(const T* x, T* y, u64 rows, u64 length,             \
                                                  int function) {                                     \
        reduce_rows_kernel<T>(x, y, rows, length, function);                                          \
    }                                                                                                 \
    extern "C" __global__ void reduce_columns_##NAME(const T* x, T* y, u64 lines, u64 length,         \
                                                     u64 inner, int function) {                       \
        reduce_columns_kernel<T>(x, y, lines, length, inner, function);                               \
    }                                                                                                 \
    extern "C" __global__ void arg_rows_##NAME(const T* x, i64* y, u64 rows, u64 length, int largest, \
                                               int last) {                                            \
        arg_rows_kernel<T>(x, y, rows, length, largest, last);                                        \
    }                                                                                                 \
    extern "C" __global__ void arg_columns_##NAME(const T* x, i64* y, u64 lines, u64 length,          \
                                                  u64 inner, int largest, int last) {                 \
        arg_columns_kernel<T>(x, y, lines, length, inner, largest, last);                             \
    }
#define NORMALIZE(NAME, T)                                                                            \
    extern "C" __global__ void softmax_rows_##NAME(const T* x, T* y, u64 rows, u64 length,            \
                                                   int logarithm) {                                   \
        softmax_rows_kernel<T>(x, y, rows, length, logarithm);                                        \
    }                                                                                                 \
    extern "C" __global__ void softmax_warps_##NAME(const T* x, T* y, u64 rows, u64 length,           \
                                                    int logarithm) {                                  \
        softmax_warps_kernel<T>(x, y, rows, length, logarithm);                                       \
    }                                                                                                 \
    extern "C" __global__ void softmax_columns_##NAME(const T* x, T* y, u64 lines, u64 length,        \
                                                      u64 inner, int logarithm) {                     \
        softmax_columns_kernel<T>(x, y, lines, length, inner, logarithm);                             \
    }                                                                                                 \
    extern "C" __global__ void layer_norm_##NAME(const T* x, T* y, const T* scale, const T* shift,    \
                                                 u64 rows, u64 length, float epsilon) {               \
        layer_norm_kernel<T>(x, y, scale, shift, rows, length, epsilon);                              \
    }                                                                                                 \
    extern "C" __global__ void layer_norm_warps_##NAME(const T* x, T* y, const T* scale,              \
                                                       const T* shift, u64 rows, u64 length,          \
                                                       float epsilon) {                               \
        layer_norm_warps_kernel<T>(x, y, scale, shift, rows, length, epsilon);                        \
    }

FOR_FLOATS(REDUCE)
FOR_LONG_INTEGERS(REDUCE)
FOR_FLOATS(NORMALIZE)
