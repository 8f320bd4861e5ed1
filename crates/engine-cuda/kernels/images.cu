// Pooling, and convolution by definition: one thread for each element of the output, neighbouring
// threads at neighbouring pixels.

enum PoolFunction { POOL_MAX, POOL_AVERAGE, POOL_AVERAGE_WITH_PADDING };

template <class T>
__device__ void pool_kernel(const T* x, T* y, u64 count, const Window& window, int function) {
    u32 columns = (u32)window.out_size[1];
    u32 positions = (u32)window.out_size[0] * columns;
    u64 pixels = window.in_size[0] * window.in_size[1];
    for (u64 index = first_index(); index < count; index += index_step()) {
        u32 position = (u32)(index % positions);
        const T* image = x + index / positions * pixels;
        float value = function == POOL_MAX ? -infinity() : 0.0f;
        u32 inside = 0, padded = 0;
        for (u32 row = 0; row < window.kernel[0]; ++row) {
            for (u32 column = 0; column < window.kernel[1]; ++column) {
                Place place = window_place(window, position / columns, position % columns, row, column);
                padded += place.padded;
                if (!place.inside) continue;
                inside += 1;
                float pixel = widen(image[place.pixel]);
                value = function == POOL_MAX ? fmaxf(value, pixel) : value + pixel;
            }
        }
        if (function == POOL_AVERAGE) value /= (float)inside;
        if (function == POOL_AVERAGE_WITH_PADDING) value /= (float)padded;
        narrow(value, y[index]);
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

#define IMAGES(NAME, T)                                                                               \
    extern "C" __global__ void pool_##NAME(const T* x, T* y, u64 count, Window window,                \
                                           int function) {                                            \
        pool_kernel<T>(x, y, count, window, function);                                                \
    }                                                                                                 \
    extern "C" __global__ void convolution_##NAME(const T* x, const T* weights, const T* bias, T* y,  \
                                                  u64 count, u32 in_channels, u32 out_channels,       \
                                                  u32 groups, Window window, int activation) {        \
        convolution_kernel<T>(x, weights, bias, y, count, in_channels, out_channels, groups, window,  \
                              activation);                                                            \
    }

FOR_FLOATS(IMAGES)
