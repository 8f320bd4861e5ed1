// Attention: y = softmax(alpha * q * k' + mask) * v for each head. Scores never reach memory.
//
// One block computes 64 queries of one head, and each of its four warps 16 of them. Keys and values pass through shared
// memory tile by tile; the next tile is copied while this one is computed. Each warp keeps in registers its queries,
// its part of the output and, for every row, the largest score and the sum of the exponentials so far. It rescales them
// when a later tile has a larger score (Milakov and Gimelshein, 2018; Dao et al., 2022). Products use tensor cores,
// sums and exponentials 32-bit floats.

#if defined(HOST_EMULATION) || __CUDA_ARCH__ >= 800
#define HAS_TENSOR_CORES
#endif

constexpr int WARPS = 4;
// Queries of a warp, and of a block.
constexpr int WARP_QUERIES = 16;
constexpr int QUERIES = WARPS * WARP_QUERIES;
constexpr float LOG2_E = 1.44269504f;

// Elements from one batch, head and row to the next.
struct Rows {
    i64 batch, head, row;
};
struct Scores {
    i64 batch, head, query, key;
};
struct Sizes {
    u64 batch, heads, queries, keys, depth;
};

// Eight neighbouring values, 16 bytes.
typedef Pack<u16, 8> Eight;

// === one instruction each ===

// Products of tiles. A lane holds rows `lane / 4` and `lane / 4 + 8` of the left factor and of the sum, in pairs of
// neighbouring columns `lane % 4 * 2`, and column `lane / 4` of the right factor in pairs of neighbouring rows.
template <class T> struct Tile;

#ifdef HOST_EMULATION

template <class T> struct Tile {
    // sum += a * b: 16 x 16 times 16 x 8.
    static void multiply(float (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1) {
        emulation::multiply(sum, a, b0, b1, [](u16 bits) { return widen(T{bits}); });
    }
    static u32 pair(float low, float high) {
        T values[2];
        narrow(low, values[0]);
        narrow(high, values[1]);
        return values[0].bits | (u32)values[1].bits << 16;
    }
};
inline void load_matrices(u32 (&to)[4], const Eight* row) { emulation::load_matrices(to, row, false); }
inline void load_turned(u32 (&to)[4], const Eight* row) { emulation::load_matrices(to, row, true); }
inline void copy_later(Eight* to, const void* from, bool there) { emulation::copy_later(to, from, there ? 16 : 0, 16); }
inline void end_group() { emulation::end_group(); }
inline void await_all_but_last_group() { emulation::await_groups(1); }

#elif defined(HAS_TENSOR_CORES)

template <> struct Tile<f16> {
    static __device__ void multiply(float (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1) {
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                     "{%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
    static __device__ u32 pair(float low, float high) {
        u32 both;
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
        return both;
    }
};
template <> struct Tile<bf16> {
    static __device__ void multiply(float (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1) {
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                     "{%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
    static __device__ u32 pair(float low, float high) {
        u32 both;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
        return both;
    }
};
__device__ inline u32 shared_address(const void* at) {
    u32 address;
    asm("{ .reg .u64 wide; cvta.to.shared.u64 wide, %1; cvt.u32.u64 %0, wide; }" : "=r"(address) : "l"(at));
    return address;
}
// Four matrices of 8 x 8; lane `i` names row `i % 8` of matrix `i / 8`.
__device__ inline void load_matrices(u32 (&to)[4], const Eight* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row))
                 : "memory");
}
// The same, with each matrix transposed.
__device__ inline void load_turned(u32 (&to)[4], const Eight* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row))
                 : "memory");
}
// Copies 16 bytes to shared memory asynchronously; writes zeros if there is nothing to copy.
__device__ inline void copy_later(Eight* to, const void* from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(shared_address(to)), "l"(from), "r"(there ? 16 : 0)
                 : "memory");
}
__device__ inline void end_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
__device__ inline void await_all_but_last_group() { asm volatile("cp.async.wait_group 1;" ::: "memory"); }

#endif

// === tiles ===

#ifdef HAS_TENSOR_CORES

// The limit of masks: a mask at or below it stands for numbers that the type cannot represent, and hides the score.
template <class T> __device__ inline float lowest();
template <> __device__ inline float lowest<f16>() { return -65504.0f; }
template <> __device__ inline float lowest<bf16>() { return float_of(0xff7f0000u); }

// The score after its mask.
template <class T> __device__ inline float masked(float score, float mask) {
    return mask <= lowest<T>() ? mask : score + mask;
}

// Rows of a head as tiles in shared memory. Rows are padded by 16 bytes, so that eight of them in a column lie in
// different banks.
template <int DEPTH> struct Layout {
    // Keys of a tile. Two tiles of keys and values must fit into 48 KiB.
    static constexpr int KEYS = DEPTH <= 64 ? 64 : 32;
    static constexpr int PACKS = DEPTH / 8;
    static constexpr int PITCH = PACKS + 1;
};

// The number of keys in a tile, fewer in the last one.
template <int DEPTH> __device__ inline int keys_there(u64 first, const Sizes& sizes) {
    u64 left = sizes.keys - first;
    return left < Layout<DEPTH>::KEYS ? (int)left : Layout<DEPTH>::KEYS;
}

// Starts to copy the rows from `from` on. Behind the last row and beyond the depth there are zeros.
template <class T, int DEPTH>
__device__ inline void fetch(Eight* to, const T* from, i64 step, int there, const Sizes& sizes) {
    typedef Layout<DEPTH> L;
    // Rows that all threads together copy at once.
    constexpr int ROWS = WARPS * 32 / L::PACKS;
    int row = (int)threadIdx.x / L::PACKS, pack = (int)threadIdx.x % L::PACKS;
    if (row >= ROWS) return;
    bool beside = (u64)pack * 8 >= sizes.depth;
    const T* source = from + row * step + pack * 8;
    to += row * L::PITCH + pack;
    for (; row < L::KEYS; row += ROWS, source += ROWS * step, to += ROWS * L::PITCH) {
        bool some = row < there && !beside;
        copy_later(to, some ? source : from, some);
    }
}

// The value that is added to the scores of each key for all queries; it hides keys behind the last one.
template <class T>
__device__ inline float added(const T* mask, const Scores& steps, u64 key, const Sizes& sizes) {
    if (key >= sizes.keys) return -infinity();
    return mask && steps.query == 0 ? widen(mask[(i64)key * steps.key]) : 0.0f;
}

// The queries of a warp as left factors.
template <class T, int DEPTH>
__device__ inline void load_queries(u32 (&to)[DEPTH / 16][4], const T* q, i64 step, u64 first, const Sizes& sizes) {
    u32 lane = threadIdx.x % 32;
    UNROLL
    for (int at = 0; at < DEPTH / 16 * 4; ++at) {
        int part = at % 4;
        u64 row = first + lane / 4 + (u64)(part % 2 * 8), column = (u64)(at / 4 * 16 + part / 2 * 8) + lane % 4 * 2;
        bool there = row < sizes.queries && column < sizes.depth;
        to[at / 4][part] = there ? *(const u32*)(q + (i64)row * step + (i64)column) : 0u;
    }
}

// A warp's part of the output: two rows a lane.
template <int DEPTH> struct Sum {
    float values[DEPTH / 8][4];
    float largest[2], total[2];

    __device__ void clear() {
        UNROLL
        for (int at = 0; at < DEPTH / 8; ++at)
            for (int i = 0; i < 4; ++i) values[at][i] = 0.0f;
        for (int row = 0; row < 2; ++row) {
            largest[row] = -infinity();
            total[row] = 0.0f;
        }
    }
};

// Turns scores into exponentials relative to the largest score so far, and rescales the earlier sums to it.
template <int DEPTH, int TILES> __device__ inline void exponentials(float (&scores)[TILES][4], Sum<DEPTH>& sum) {
    float base[2];
    UNROLL
    for (int row = 0; row < 2; ++row) {
        float top = sum.largest[row];
        UNROLL
        for (int tile = 0; tile < TILES; ++tile)
            top = fmaxf(top, fmaxf(scores[tile][row * 2], scores[tile][row * 2 + 1]));
        top = fmaxf(top, exchange(top, 1));
        top = fmaxf(top, exchange(top, 2));
        // A row that is hidden so far adds nothing to the sums.
        base[row] = top == -infinity() ? 0.0f : top;
        float factor = exp2f((sum.largest[row] - base[row]) * LOG2_E);
        sum.largest[row] = top;
        sum.total[row] *= factor;
        UNROLL
        for (int at = 0; at < DEPTH / 8; ++at) {
            sum.values[at][row * 2] *= factor;
            sum.values[at][row * 2 + 1] *= factor;
        }
    }
    UNROLL
    for (int tile = 0; tile < TILES; ++tile) {
        UNROLL
        for (int i = 0; i < 4; ++i) {
            float power = exp2f((scores[tile][i] - base[i / 2]) * LOG2_E);
            scores[tile][i] = power;
            sum.total[i / 2] += power;
        }
    }
}

// Processes the queries of a warp with one tile of keys and values.
template <class T, int DEPTH> struct Step {
    typedef Layout<DEPTH> L;
    static constexpr int TILES = L::KEYS / 8;

    const Eight* keys;
    const Eight* values;
    const float* hidden;

    __device__ void score(float (&scores)[TILES][4], const u32 (&queries)[DEPTH / 16][4]) const {
        u32 lane = threadIdx.x % 32;
        const Eight* start = keys + (lane / 16 * 8 + lane % 8) * L::PITCH + lane / 8 % 2;
        UNROLL
        for (int tile = 0; tile < TILES; ++tile)
            for (int i = 0; i < 4; ++i) scores[tile][i] = 0.0f;
        UNROLL
        for (int depth = 0; depth < DEPTH / 16; ++depth) {
            UNROLL
            for (int two = 0; two < TILES / 2; ++two) {
                u32 right[4];
                load_matrices(right, start + two * 16 * L::PITCH + depth * 2);
                Tile<T>::multiply(scores[two * 2], queries[depth], right[0], right[1]);
                Tile<T>::multiply(scores[two * 2 + 1], queries[depth], right[2], right[3]);
            }
        }
    }

    // `mask` and `steps` are for masks that differ by query; `mask` is the null pointer for others.
    __device__ void mask(float (&scores)[TILES][4], float alpha, const T* mask, const Scores& steps, u64 query, u64 key,
                         const Sizes& sizes) const {
        int first = (int)(threadIdx.x % 4) * 2;
        UNROLL
        for (int tile = 0; tile < TILES; ++tile) {
            UNROLL
            for (int i = 0; i < 4; ++i)
                scores[tile][i] = masked<T>(scores[tile][i] * alpha, hidden[tile * 8 + first + i % 2]);
        }
        if (!mask) return;
        u64 row = query + threadIdx.x % 32 / 4;
        int there = keys_there<DEPTH>(key, sizes) - first;
        const T* own = mask + ((i64)row * steps.query + (i64)(key + (u64)first) * steps.key);
        UNROLL
        for (int tile = 0; tile < TILES; ++tile, own += 8 * steps.key) {
            UNROLL
            for (int i = 0; i < 4; ++i) {
                if (row + (u64)(i / 2 * 8) < sizes.queries && tile * 8 + i % 2 < there)
                    scores[tile][i] = masked<T>(scores[tile][i], widen(own[i / 2 * 8 * steps.query + i % 2 * steps.key]));
            }
        }
    }

    __device__ void add(Sum<DEPTH>& sum, const float (&shares)[TILES][4]) const {
        u32 lane = threadIdx.x % 32;
        const Eight* start = values + (lane / 8 % 2 * 8 + lane % 8) * L::PITCH + lane / 16;
        UNROLL
        for (int two = 0; two < TILES / 2; ++two) {
            const float(&low)[4] = shares[two * 2];
            const float(&high)[4] = shares[two * 2 + 1];
            u32 left[4] = {Tile<T>::pair(low[0], low[1]), Tile<T>::pair(low[2], low[3]),
                           Tile<T>::pair(high[0], high[1]), Tile<T>::pair(high[2], high[3])};
            UNROLL
            for (int depth = 0; depth < DEPTH / 16; ++depth) {
                u32 right[4];
                load_turned(right, start + two * 16 * L::PITCH + depth * 2);
                Tile<T>::multiply(sum.values[depth * 2], left, right[0], right[1]);
                Tile<T>::multiply(sum.values[depth * 2 + 1], left, right[2], right[3]);
            }
        }
    }
};

// Stores the rows of a warp, divided by their sums. A row with only hidden keys gives NaN.
template <class T, int DEPTH>
__device__ inline void store(const Sum<DEPTH>& sum, T* y, i64 step, u64 first, const Sizes& sizes) {
    u32 lane = threadIdx.x % 32;
    UNROLL
    for (int row = 0; row < 2; ++row) {
        float total = sum.total[row];
        total += exchange(total, 1);
        total += exchange(total, 2);
        float factor = 1.0f / total;
        u64 query = first + lane / 4 + (u64)(row * 8);
        UNROLL
        for (int at = 0; at < DEPTH / 8; ++at) {
            u64 column = (u64)at * 8 + lane % 4 * 2;
            if (query >= sizes.queries || column >= sizes.depth) continue;
            u32 both = Tile<T>::pair(sum.values[at][row * 2] * factor, sum.values[at][row * 2 + 1] * factor);
            *(u32*)(y + (i64)query * step + (i64)column) = both;
        }
    }
}

#endif

// === the kernel ===

template <class T, int DEPTH>
__device__ inline void attention_kernel(const T* q, const T* k, const T* v, T* y, const T* mask, const Rows& q_steps,
                                        const Rows& k_steps, const Rows& v_steps, const Rows& y_steps,
                                        const Scores& mask_steps, const Sizes& sizes, float alpha) {
#ifdef HAS_TENSOR_CORES
    typedef Layout<DEPTH> L;
    __shared__ Eight keys[2][L::KEYS * L::PITCH];
    __shared__ Eight values[2][L::KEYS * L::PITCH];
    __shared__ float hidden[2][L::KEYS];
    u64 blocks = (sizes.queries + QUERIES - 1) / QUERIES, tiles = (sizes.keys + L::KEYS - 1) / L::KEYS;
    for (u64 item = blockIdx.x; item < blocks * sizes.heads * sizes.batch; item += gridDim.x) {
        i64 head = (i64)(item / blocks % sizes.heads), batch = (i64)(item / blocks / sizes.heads);
        u64 query = item % blocks * QUERIES + threadIdx.x / 32 * WARP_QUERIES;
        const T* own_k = k + batch * k_steps.batch + head * k_steps.head;
        const T* own_v = v + batch * v_steps.batch + head * v_steps.head;
        const T* own_mask = mask ? mask + batch * mask_steps.batch + head * mask_steps.head : mask;
        auto fetch_tile = [&](u64 tile) {
            u64 first = tile * L::KEYS;
            int there = keys_there<DEPTH>(first, sizes);
            fetch<T, DEPTH>(keys[tile % 2], own_k + (i64)first * k_steps.row, k_steps.row, there, sizes);
            fetch<T, DEPTH>(values[tile % 2], own_v + (i64)first * v_steps.row, v_steps.row, there, sizes);
            if (threadIdx.x < L::KEYS)
                hidden[tile % 2][threadIdx.x] = added(own_mask, mask_steps, first + threadIdx.x, sizes);
        };
        fetch_tile(0);
        end_group();
        u32 queries[DEPTH / 16][4];
        const T* own_q = q + batch * q_steps.batch + head * q_steps.head;
        load_queries<T, DEPTH>(queries, own_q, q_steps.row, query, sizes);
        Sum<DEPTH> sum;
        sum.clear();
        for (u64 tile = 0; tile < tiles; ++tile) {
            if (tile + 1 < tiles) fetch_tile(tile + 1);
            end_group();
            await_all_but_last_group();
            __syncthreads();
            if (query < sizes.queries) {
                Step<T, DEPTH> step = {keys[tile % 2], values[tile % 2], hidden[tile % 2]};
                float scores[L::KEYS / 8][4];
                step.score(scores, queries);
                const T* by_query = mask_steps.query == 0 ? nullptr : own_mask;
                step.mask(scores, alpha, by_query, mask_steps, query, tile * L::KEYS, sizes);
                exponentials(scores, sum);
                step.add(sum, scores);
            }
            // The tile after the next one is copied to the place of this one.
            __syncthreads();
        }
        if (query < sizes.queries)
            store<T, DEPTH>(sum, y + batch * y_steps.batch + head * y_steps.head, y_steps.row, query, sizes);
    }
#endif
}

// The number of blocks for which a multiprocessor has enough registers: an ordinary batch then is one wave.
#define ATTENTION(NAME, T, DEPTH)                                                                              \
    extern "C" __global__ void __launch_bounds__(WARPS * 32, DEPTH <= 64 ? 3 : 2) attention_##NAME##_##DEPTH(  \
        const T* q, const T* k, const T* v, T* y, const T* mask, Rows q_steps, Rows k_steps, Rows v_steps,     \
        Rows y_steps, Scores mask_steps, Sizes sizes, float alpha) {                                           \
        attention_kernel<T, DEPTH>(q, k, v, y, mask, q_steps, k_steps, v_steps, y_steps, mask_steps, sizes,    \
                                   alpha);                                                                     \
    }
#define FOR_DEPTHS(NAME, T) ATTENTION(NAME, T, 32) ATTENTION(NAME, T, 64) ATTENTION(NAME, T, 128)

FOR_DEPTHS(f16, f16)
FOR_DEPTHS(bf16, bf16)
