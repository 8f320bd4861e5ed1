// Products of matrices for which cuBLASLt has no algorithm: odd strides, empty sums.
//
// A block of 16 x 16 threads computes a tile of the product. Both factors pass through shared memory in tiles of the
// same size, whether or not they are stored transposed.

constexpr u32 TILE = 16;

struct Matrix {
    u64 row_stride;
    u64 batch_stride;
    u64 transposed;
};

template <class T>
__device__ inline float element(const T* values, const Matrix& matrix, u64 row, u64 column, bool inside) {
    if (!inside) return 0.0f;
    u64 at = matrix.transposed ? column * matrix.row_stride + row : row * matrix.row_stride + column;
    return widen(values[at]);
}

template <class T>
__device__ void gemm_kernel(const T* a, const T* b, const T* bias, const T* addend, T* c, u64 m, u64 n, u64 k, u64 batch,
                            const Matrix& a_matrix, const Matrix& b_matrix, const Matrix& c_matrix,
                            float alpha, int activation) {
    __shared__ float left[TILE][TILE + 1];
    __shared__ float right[TILE][TILE + 1];
    u32 x = threadIdx.x % TILE, y = threadIdx.x / TILE;
    u64 tile_columns = (n + TILE - 1) / TILE, tile_rows = (m + TILE - 1) / TILE;
    for (u64 tile = blockIdx.x; tile < batch * tile_rows * tile_columns; tile += gridDim.x) {
        u64 matrix = tile / (tile_rows * tile_columns);
        u64 row = tile / tile_columns % tile_rows * TILE + y;
        u64 column = tile % tile_columns * TILE + x;
        float sum = 0.0f;
        for (u64 start = 0; start < k; start += TILE) {
            left[y][x] = element(a + matrix * a_matrix.batch_stride, a_matrix, row, start + x,
                                 row < m && start + x < k);
            right[y][x] = element(b + matrix * b_matrix.batch_stride, b_matrix, start + y, column,
                                  start + y < k && column < n);
            __syncthreads();
            for (u32 i = 0; i < TILE; ++i) sum += left[y][i] * right[i][x];
            __syncthreads();
        }
        if (row >= m || column >= n) continue;
        u64 at = matrix * c_matrix.batch_stride + row * c_matrix.row_stride + column;
        float value = alpha * sum + (bias ? widen(bias[column]) : 0.0f) + (addend ? widen(addend[at]) : 0.0f);
        narrow(activate(activation, value), c[at]);
    }
}

#define GEMM(NAME, T)                                                                                 \
    extern "C" __global__ void gemm_##NAME(const T* a, const T* b, const T* bias, const T* addend,    \
                                           T* c, u64 m, u64 n, u64 k, u64 batch, Matrix a_matrix,     \
                                           Matrix b_matrix, Matrix c_matrix, float alpha,             \
                                           int activation) {                                          \
        gemm_kernel<T>(a, b, bias, addend, c, m, n, k, batch, a_matrix, b_matrix, c_matrix, alpha,    \
                       activation);                                                                   \
    }

FOR_FLOATS(GEMM)
