// Kernels that move values without computing: strided copies, conversion, selection, gathering, filling, unfolding of
// images.
//
// If the type does not change, only its size matters.

template <class T>
__device__ void copy_kernel(const T* x, T* y, u64 count, const Shape& shape, const Strides& x_strides,
                            const Strides& y_strides) {
    const Strides* const strides[2] = {&x_strides, &y_strides};
    for (u64 index = first_index(); index < count; index += index_step()) {
        i64 at[2];
        offsets(index, shape, strides, at);
        y[at[1]] = x[at[0]];
    }
}

// Copies contiguous values, 16 bytes at a time.
extern "C" __global__ void copy_wide(const Pack<u64, 2>* x, Pack<u64, 2>* y, u64 count) {
    for (u64 index = first_index(); index < count; index += index_step()) y[index] = x[index];
}

// Runs of 16 bytes.
extern "C" __global__ void copy_16(const Pack<u64, 2>* x, Pack<u64, 2>* y, u64 count, Shape shape, Strides x_strides,
                                   Strides y_strides) {
    copy_kernel<Pack<u64, 2>>(x, y, count, shape, x_strides, y_strides);
}

// Transposes matrices: neighbours in a row of x become neighbours in a column of y. Tiles pass through shared memory,
// so that both sides are accessed along neighbours. x has `columns` rows of `rows` elements that begin `x_step` apart,
// y has `rows` rows of `columns` elements that begin `y_step` apart; `shape` counts matrices.
template <class T>
__device__ void transpose_kernel(const T* x, T* y, u64 rows, u64 columns, i64 x_step, i64 y_step, u64 matrices,
                                 const Shape& shape, const Strides& x_strides, const Strides& y_strides) {
    constexpr u32 SIDE = 32, STRIPES = 8;
    __shared__ T tile[SIDE][SIDE + 1];
    const Strides* const strides[2] = {&x_strides, &y_strides};
    u32 across = threadIdx.x % SIDE, down = threadIdx.x / SIDE;
    u64 tile_rows = (rows + SIDE - 1) / SIDE, tile_columns = (columns + SIDE - 1) / SIDE;
    u64 tiles = matrices * tile_rows * tile_columns;
    for (u64 index = blockIdx.x; index < tiles; index += gridDim.x) {
        u64 row = index / tile_columns % tile_rows * SIDE, column = index % tile_columns * SIDE;
        i64 at[2];
        offsets(index / tile_columns / tile_rows, shape, strides, at);
        for (u32 stripe = down; stripe < SIDE; stripe += STRIPES)
            if (row + across < rows && column + stripe < columns)
                tile[stripe][across] = x[at[0] + (i64)(column + stripe) * x_step + (i64)(row + across)];
        __syncthreads();
        for (u32 stripe = down; stripe < SIDE; stripe += STRIPES)
            if (row + stripe < rows && column + across < columns)
                y[at[1] + (i64)(row + stripe) * y_step + (i64)(column + across)] = tile[across][stripe];
        __syncthreads();
    }
}

__device__ inline bool is_float(int element) { return element <= BF16; }

__device__ inline float load_float(const u8* from, int element, i64 at) {
    switch (element) {
    case F32: return ((const float*)from)[at];
    case F16: return widen(((const f16*)from)[at]);
    default: return widen(((const bf16*)from)[at]);
    }
}

__device__ inline i64 load_integer(const u8* from, int element, i64 at) {
    switch (element) {
    case I64: return ((const i64*)from)[at];
    case I32: return ((const i32*)from)[at];
    case I8: return ((const i8*)from)[at];
    case U8: return from[at];
    default: return from[at] != 0;
    }
}

__device__ inline void store_float(u8* to, int element, i64 at, float value) {
    switch (element) {
    case F32: narrow(value, ((float*)to)[at]); break;
    case F16: narrow(value, ((f16*)to)[at]); break;
    default: narrow(value, ((bf16*)to)[at]); break;
    }
}

__device__ inline void store_integer(u8* to, int element, i64 at, i64 value) {
    switch (element) {
    case I64: narrow(value, ((i64*)to)[at]); break;
    case I32: narrow(value, ((i32*)to)[at]); break;
    case I8: narrow(value, ((i8*)to)[at]); break;
    case U8: narrow(value, to[at]); break;
    default: to[at] = value != 0; break;
    }
}

extern "C" __global__ void convert(const u8* x, u8* y, u64 count, Shape shape, Strides x_strides,
                                   Strides y_strides, int x_element, int y_element) {
    const Strides* const strides[2] = {&x_strides, &y_strides};
    for (u64 index = first_index(); index < count; index += index_step()) {
        i64 at[2];
        offsets(index, shape, strides, at);
        if (is_float(x_element)) {
            float value = load_float(x, x_element, at[0]);
            if (is_float(y_element))
                store_float(y, y_element, at[1], value);
            else if (y_element == BOOL)
                y[at[1]] = value != 0.0f;
            else
                store_integer(y, y_element, at[1], float_to_integer(value));
        } else {
            i64 value = load_integer(x, x_element, at[0]);
            if (is_float(y_element))
                store_float(y, y_element, at[1], (float)value);
            else
                store_integer(y, y_element, at[1], value);
        }
    }
}

// Between contiguous tensors of floats, four values at a time.
template <class From, class To>
__device__ void convert_flat_kernel(const From* x, To* y, u64 count) {
    constexpr int W = 4;
    for (u64 pack = first_index(); pack * W < count; pack += index_step()) {
        u64 start = pack * W;
        if (start + W <= count) {
            Pack<From, W> from = *(const Pack<From, W>*)(x + start);
            Pack<To, W> to;
            for (int i = 0; i < W; ++i) narrow(widen(from.values[i]), to.values[i]);
            *(Pack<To, W>*)(y + start) = to;
        } else {
            for (u64 i = start; i < count; ++i) narrow(widen(x[i]), y[i]);
        }
    }
}

#define CONVERT(NAME, FROM, TO)                                                                       \
    extern "C" __global__ void convert_##NAME(const FROM* x, TO* y, u64 count) {                      \
        convert_flat_kernel<FROM, TO>(x, y, count);                                                   \
    }
CONVERT(f32_f16, float, f16)
CONVERT(f32_bf16, float, bf16)
CONVERT(f16_f32, f16, float)
CONVERT(bf16_f32, bf16, float)

template <class T>
__device__ void fill_kernel(T* y, u64 count, const Shape& shape, const Strides& y_strides, u64 bits) {
    const Strides* const strides[1] = {&y_strides};
    for (u64 index = first_index(); index < count; index += index_step()) {
        i64 at[1];
        offsets(index, shape, strides, at);
        y[at[0]] = (T)bits;
    }
}

template <class T>
__device__ void select_kernel(const u8* condition, const T* a, const T* b, T* y, u64 count,
                              const Shape& shape, const Strides& condition_strides,
                              const Strides& a_strides, const Strides& b_strides) {
    const Strides* const strides[3] = {&condition_strides, &a_strides, &b_strides};
    for (u64 index = first_index(); index < count; index += index_step()) {
        i64 at[3];
        offsets(index, shape, strides, at);
        y[index] = condition[at[0]] ? a[at[1]] : b[at[2]];
    }
}

template <class T>
__device__ void gather_kernel(const T* table, const u8* indices, T* y, u64 outer, u64 rows, u64 inner,
                              u64 count, u64 first_row, u64 all_rows, int index_element) {
    u64 elements = outer * count * inner;
    for (u64 at = first_index(); at < elements; at += index_step()) {
        u64 column = at % inner, position = at / inner % count, block = at / inner / count;
        i64 index = load_integer(indices, index_element, (i64)position);
        if (index < 0) index += (i64)all_rows;
        if (index < 0 || index >= (i64)all_rows) {
            if (first_row == 0) y[at] = 0;
        } else if ((u64)index >= first_row && (u64)index - first_row < rows) {
            y[at] = table[(block * rows + (u64)index - first_row) * inner + column];
        }
    }
}

template <class T>
__device__ void im2col_kernel(const T* x, T* y, u64 count, const Window& window) {
    u32 columns = (u32)window.out_size[1], kernel_columns = (u32)window.kernel[1];
    u32 positions = (u32)window.out_size[0] * columns;
    u32 kernel = (u32)window.kernel[0] * kernel_columns;
    u64 pixels = window.in_size[0] * window.in_size[1];
    for (u64 index = first_index(); index < count; index += index_step()) {
        u32 position = (u32)(index % positions);
        u64 rest = index / positions;
        u32 element = (u32)(rest % kernel);
        u64 plane = rest / kernel;
        Place place = window_place(window, position / columns, position % columns,
                                   element / kernel_columns, element % kernel_columns);
        y[index] = place.inside ? x[plane * pixels + place.pixel] : (T)0;
    }
}

#define MOVEMENT(NAME, T)                                                                             \
    extern "C" __global__ void copy_##NAME(const T* x, T* y, u64 count, Shape shape,                  \
                                           Strides x_strides, Strides y_strides) {                    \
        copy_kernel<T>(x, y, count, shape, x_strides, y_strides);                                     \
    }                                                                                                 \
    extern "C" __global__ void transpose_##NAME(const T* x, T* y, u64 rows, u64 columns, i64 x_step,  \
                                                i64 y_step, u64 matrices, Shape shape,                \
                                                Strides x_strides, Strides y_strides) {               \
        transpose_kernel<T>(x, y, rows, columns, x_step, y_step, matrices, shape, x_strides,          \
                            y_strides);                                                               \
    }                                                                                                 \
    extern "C" __global__ void fill_##NAME(T* y, u64 count, Shape shape, Strides y_strides,           \
                                           u64 bits) {                                                \
        fill_kernel<T>(y, count, shape, y_strides, bits);                                             \
    }                                                                                                 \
    extern "C" __global__ void select_##NAME(const u8* condition, const T* a, const T* b, T* y,       \
                                             u64 count, Shape shape, Strides condition_strides,       \
                                             Strides a_strides, Strides b_strides) {                  \
        select_kernel<T>(condition, a, b, y, count, shape, condition_strides, a_strides, b_strides);  \
    }                                                                                                 \
    extern "C" __global__ void gather_##NAME(const T* table, const u8* indices, T* y, u64 outer,      \
                                             u64 rows, u64 inner, u64 count, u64 first_row,           \
                                             u64 all_rows, int index_element) {                       \
        gather_kernel<T>(table, indices, y, outer, rows, inner, count, first_row, all_rows,           \
                         index_element);                                                              \
    }                                                                                                 \
    extern "C" __global__ void im2col_##NAME(const T* x, T* y, u64 count, Window window) {            \
        im2col_kernel<T>(x, y, count, window);                                                        \
    }

FOR_SIZES(MOVEMENT)
