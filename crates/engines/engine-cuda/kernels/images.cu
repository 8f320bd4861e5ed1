// Pooling, and convolution by definition. One thread computes one element of the output or a pack of them; neighbouring
// threads compute neighbouring elements.

enum PoolFunction { POOL_MAX, POOL_AVERAGE, POOL_AVERAGE_WITH_PADDING };

// Over [planes, image, inner], W neighbours of the innermost dimension at once.
template <class T, int W>
__device__ void pool_kernel(const T* x, T* y, u64 packs, u64 inner, const Window& window, int function) {
    u32 columns = (u32)window.out_size[1];
    u32 positions = (u32)window.out_size[0] * columns;
    u64 pixels = window.in_size[0] * window.in_size[1], across = inner / W;
    for (u64 pack = first_index(); pack < packs; pack += index_step()) {
        u64 rest = across == 1 ? pack : pack / across;
        u32 position = (u32)(rest % positions);
        const T* image = x + rest / positions * pixels * inner + (pack - rest * across) * W;
        float values[W];
        for (int i = 0; i < W; ++i) values[i] = function == POOL_MAX ? -infinity() : 0.0f;
        u32 inside = 0, padded = 0;
        for (u32 row = 0; row < window.kernel[0]; ++row) {
            for (u32 column = 0; column < window.kernel[1]; ++column) {
                Place place = window_place(window, position / columns, position % columns, row, column);
                padded += place.padded;
                if (!place.inside) continue;
                inside += 1;
                Pack<T, W> here = *(const Pack<T, W>*)(image + place.pixel * inner);
                for (int i = 0; i < W; ++i) {
                    float pixel = widen(here.values[i]);
                    values[i] = function == POOL_MAX ? fmaxf(values[i], pixel) : values[i] + pixel;
                }
            }
        }
        Pack<T, W> result;
        for (int i = 0; i < W; ++i) {
            if (function == POOL_AVERAGE) values[i] /= (float)inside;
            if (function == POOL_AVERAGE_WITH_PADDING) values[i] /= (float)padded;
            narrow(values[i], result.values[i]);
        }
        *(Pack<T, W>*)(y + pack * W) = result;
    }
}

template <class T>
__device__ void convolution_kernel(const T* x, const T* weights, const T* bias, T* y, u64 count,
                                   u32 in_channels, u32 out_channels, u32 groups, const Window& window,
                                   int activation) {
    u32 columns = (u32)window.out_size[1];
    u32 positions = (u32)window.out_size[0] * columns;
    u32 kernel_rows = (u32)window.kernel[0], kernel_columns = (u32)window.kernel[1];
    u64 kernel = (u64)kernel_rows * kernel_columns;
    u64 pixels = window.in_size[0] * window.in_size[1];
    u32 depth = in_channels / groups;
    for (u64 index = first_index(); index < count; index += index_step()) {
        u32 position = (u32)(index % positions);
        u32 channel = (u32)(index / positions % out_channels);
        u64 image = index / positions / out_channels;
        u32 group = channel / (out_channels / groups);
        const T* planes = x + (image * in_channels + (u64)group * depth) * pixels;
        const T* filter = weights + (u64)channel * depth * kernel;
        float sum = 0.0f;
        for (u32 row = 0; row < kernel_rows; ++row) {
            for (u32 column = 0; column < kernel_columns; ++column) {
                Place place = window_place(window, position / columns, position % columns, row, column);
                if (!place.inside) continue;
                const T* element = filter + row * kernel_columns + column;
                for (u32 plane = 0; plane < depth; ++plane)
                    sum += widen(planes[plane * pixels + place.pixel]) * widen(element[plane * kernel]);
            }
        }
        if (bias) sum += widen(bias[channel]);
        narrow(activate(activation, sum), y[index]);
    }
}

#define POOL(NAME, T, W)                                                                              \
    extern "C" __global__ void pool_##NAME(const T* x, T* y, u64 packs, u64 inner, Window window,     \
                                           int function) {                                            \
        pool_kernel<T, W>(x, y, packs, inner, window, function);                                      \
    }
#define IMAGES(NAME, T)                                                                               \
    extern "C" __global__ void convolution_##NAME(const T* x, const T* weights, const T* bias, T* y,  \
                                                  u64 count, u32 in_channels, u32 out_channels,       \
                                                  u32 groups, Window window, int activation) {        \
        convolution_kernel<T>(x, weights, bias, y, count, in_channels, out_channels, groups, window,  \
                              activation);                                                            \
    }

FOR_FLOATS(IMAGES)
POOL(f32, float, 1)
POOL(f16, f16, 1)
POOL(bf16, bf16, 1)
// 16 bytes at a time, if addresses allow it.
POOL(f32_wide, float, 4)
POOL(f16_wide, f16, 8)
POOL(bf16_wide, bf16, 8)
