// CUDA's execution model on a host, enough to test kernels with: not fast, but strict.
//
// Blocks run one after the other. The threads of a block are fibers of one thread of the system,
// which change only at barriers; so a run is repeatable, and running them in another order shows
// what a missing barrier would hide. A barrier that not all threads reach is an error.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#define HOST_EMULATION
#define __device__
#define __global__
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(threads, blocks)
// One block runs at a time: what its threads share may be static.
#define __shared__ static

struct Dim3 {
    unsigned x, y, z;
};
inline Dim3 threadIdx, blockIdx, blockDim, gridDim;

// === numbers ===

template <class To, class From> inline To emulated_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "the sizes differ");
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}
inline unsigned __float_as_uint(float value) { return emulated_bits<unsigned>(value); }
inline float __uint_as_float(unsigned bits) { return emulated_bits<float>(bits); }

inline float emulated_half_to_float(unsigned short bits) {
    int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    float sign = bits >> 15 ? -1.0f : 1.0f;
    if (exponent == 31) return mantissa ? NAN : sign * INFINITY;
    return sign * (exponent ? std::ldexp(1024.0f + mantissa, exponent - 25)
                            : std::ldexp((float)mantissa, -24));
}

// Rounds to nearest, halves to even, which is how nearbyint rounds.
inline unsigned short emulated_float_to_half(float value) {
    unsigned short sign = std::signbit(value) ? 0x8000 : 0;
    float magnitude = std::fabs(value);
    if (std::isnan(value)) return sign | 0x7e00;
    if (magnitude >= 65520.0f) return sign | 0x7c00;
    if (magnitude < 6.103515625e-05f) return sign | (unsigned short)std::nearbyint(std::ldexp(magnitude, 24));
    int exponent;
    std::frexp(magnitude, &exponent);
    // The mantissa may round up to the next power of two; the sum carries into the exponent.
    unsigned mantissa = (unsigned)std::nearbyint(std::ldexp(magnitude, 11 - exponent));
    return (unsigned short)(sign | (((unsigned)(exponent + 13) << 10) + mantissa));
}

// === fibers ===

namespace emulation {

enum class State { Ready, AtBlockBarrier, AtWarpBarrier, Done };

// A copy to shared memory that nobody has waited for.
struct Later {
    void* to;
    const void* from;
    std::size_t bytes, room;
    unsigned group;
};

// Contexts begin a fiber; after that jumps, which need no call of the system, change between them.
struct Fiber {
    ucontext_t context;
    jmp_buf place;
    bool begun;
    std::vector<char> stack;
    State state;
    // Shuffles that it took part in.
    unsigned shuffles;
    std::vector<Later> copies;
    // Groups of copies that it has ended.
    unsigned groups;
};

// Contexts must stay where they are made.
inline Fiber fibers[1024];
inline jmp_buf scheduler;
inline unsigned current;
inline std::size_t (*body)(bool);
inline const char* parameters;
// What threads give to shuffles: odd and even ones apart, so that one barrier for each suffices.
inline std::uint64_t lanes[2][1024];
// The same for what takes more than a number.
constexpr std::size_t MOST_GIVEN = 48;
alignas(16) inline unsigned char given[2][1024 * MOST_GIVEN];
// Whether threads and blocks run from the last to the first.
inline bool backwards;

[[noreturn]] inline void fail(const char* problem) {
    std::fprintf(stderr, "block %u: %s\n", blockIdx.x, problem);
    std::exit(3);
}

// Runs the current fiber until it pauses.
inline void resume() {
    threadIdx.x = current;
    if (_setjmp(scheduler) != 0) return;
    Fiber& fiber = fibers[current];
    if (fiber.begun) _longjmp(fiber.place, 1);
    fiber.begun = true;
    setcontext(&fiber.context);
}

inline void pause(State state) {
    fibers[current].state = state;
    if (_setjmp(fibers[current].place) == 0) _longjmp(scheduler, 1);
}

// A fiber is a thread of one block after the other.
inline void entry() {
    for (;;) {
        body(true);
        pause(State::Done);
    }
}

inline void prepare(unsigned threads) {
    if (threads > 1024 || threads % 32 != 0) fail("a block of that size cannot be launched");
    for (unsigned thread = 0; thread < threads; ++thread) {
        Fiber& fiber = fibers[thread];
        fiber.state = State::Ready;
        fiber.shuffles = 0;
        fiber.groups = 0;
        fiber.copies.clear();
        if (!fiber.stack.empty()) continue;
        fiber.stack.resize(64 * 1024);
        fiber.begun = false;
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.data();
        fiber.context.uc_stack.ss_size = fiber.stack.size();
        fiber.context.uc_link = nullptr;
        makecontext(&fiber.context, entry, 0);
    }
}

// Lets the threads from `first` on go on if all of them stand at the barrier.
inline bool release(unsigned first, unsigned count, State barrier) {
    for (unsigned thread = first; thread < first + count; ++thread)
        if (fibers[thread].state != barrier) return false;
    for (unsigned thread = first; thread < first + count; ++thread) fibers[thread].state = State::Ready;
    return true;
}

inline bool all_done(unsigned threads) {
    for (unsigned thread = 0; thread < threads; ++thread)
        if (fibers[thread].state != State::Done) return false;
    return true;
}

// Runs one block. `reversed` starts with the last thread.
inline void run_block(unsigned threads, bool reversed) {
    prepare(threads);
    for (;;) {
        bool moved = false;
        for (unsigned turn = 0; turn < threads; ++turn) {
            current = reversed ? threads - 1 - turn : turn;
            if (fibers[current].state != State::Ready) continue;
            resume();
            moved = true;
        }
        for (unsigned warp = 0; warp < threads; warp += 32) moved |= release(warp, 32, State::AtWarpBarrier);
        moved |= release(0, threads, State::AtBlockBarrier);
        if (all_done(threads)) return;
        if (!moved) fail("threads wait at a barrier that others never reach");
    }
}

struct Shape {
    unsigned grid, block;
    bool reversed;
};

// One parameter in the buffer of all; `at` is where the ones before it end.
template <class T> inline std::size_t place(std::size_t at) {
    return (at + alignof(T) - 1) / alignof(T) * alignof(T);
}
template <class T> inline T take(const std::size_t& at) {
    T value;
    std::memcpy(&value, parameters + at, sizeof value);
    return value;
}

template <class... Parameters, std::size_t... Index>
void call(void (*kernel)(Parameters...), const std::size_t* places, std::index_sequence<Index...>) {
    kernel(take<Parameters>(places[Index])...);
}

// Calls a kernel with its parameters laid out as the driver's interface wants them: each at the next
// multiple of its alignment. Returns where they end.
template <class... Parameters> std::size_t invoke(void (*kernel)(Parameters...), bool run) {
    std::size_t places[sizeof...(Parameters)];
    std::size_t end = 0, count = 0;
    ((places[count] = place<Parameters>(end), end = places[count++] + sizeof(Parameters)), ...);
    if (run) call(kernel, places, std::index_sequence_for<Parameters...>());
    return end;
}

inline void launch(std::size_t (*kernel)(bool), const Shape& shape, const char* bytes) {
    body = kernel;
    parameters = bytes;
    gridDim = {shape.grid, 1, 1};
    blockDim = {shape.block, 1, 1};
    backwards = shape.reversed;
    for (unsigned block = 0; block < shape.grid; ++block) {
        blockIdx = {shape.reversed ? shape.grid - 1 - block : block, 0, 0};
        run_block(shape.block, shape.reversed);
    }
}

}  // namespace emulation

// === what kernels call ===

inline void __syncthreads() { emulation::pause(emulation::State::AtBlockBarrier); }

template <class T> inline T __shfl_xor_sync(unsigned mask, T value, int distance) {
    if (mask != 0xffffffffu) emulation::fail("a shuffle of less than a warp");
    static_assert(sizeof(T) <= sizeof(std::uint64_t), "too large for a lane");
    std::uint64_t* lanes = emulation::lanes[emulation::fibers[emulation::current].shuffles++ % 2];
    std::memcpy(&lanes[emulation::current], &value, sizeof value);
    emulation::pause(emulation::State::AtWarpBarrier);
    std::memcpy(&value, &lanes[emulation::current ^ (unsigned)distance], sizeof value);
    return value;
}

namespace emulation {

// What every lane of the warp gives, as the lanes are numbered.
template <class T> inline const T* exchange(const T& mine) {
    static_assert(sizeof(T) <= MOST_GIVEN, "too large for a lane");
    T* all = (T*)(given[fibers[current].shuffles++ % 2] + current / 32 * 32 * MOST_GIVEN);
    all[current % 32] = mine;
    pause(State::AtWarpBarrier);
    return all;
}

// mma.m16n8k16: PTX's layout of the fragments.
template <class Widen>
inline void multiply(float (&sum)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, Widen widen) {
    struct Factors {
        float a[4][2], b[2][2];
    };
    Factors mine;
    for (unsigned i = 0; i < 8; ++i) mine.a[i / 2][i % 2] = widen((unsigned short)(a[i / 2] >> i % 2 * 16));
    for (unsigned i = 0; i < 4; ++i) mine.b[i / 2][i % 2] = widen((unsigned short)((i / 2 ? b1 : b0) >> i % 2 * 16));
    const Factors* all = exchange(mine);
    unsigned lane = current % 32;
    for (unsigned i = 0; i < 4; ++i) {
        unsigned row = lane / 4, column = lane % 4 * 2 + i % 2, lower = i / 2;
        for (unsigned k = 0; k < 16; ++k) {
            unsigned back = k / 8, place = k % 8 / 2;
            float left = all[row * 4 + place].a[back * 2 + lower][k % 2];
            sum[i] += left * all[column * 4 + place].b[back][k % 2];
        }
    }
}

// ldmatrix.x4 of 16-bit elements.
inline void load_matrices(unsigned (&to)[4], const void* row, bool turned) {
    if ((std::uintptr_t)row % 16 != 0) fail("a row of a matrix that is not aligned");
    const unsigned short* const* all = exchange((const unsigned short*)row);
    unsigned lane = current % 32, along = lane / 4, across = lane % 4 * 2;
    auto at = [&](unsigned matrix, unsigned row, unsigned column) -> unsigned {
        return all[matrix * 8 + row][column];
    };
    for (unsigned matrix = 0; matrix < 4; ++matrix)
        to[matrix] = turned ? at(matrix, across, along) | at(matrix, across + 1, along) << 16
                            : at(matrix, along, across) | at(matrix, along, across + 1) << 16;
}

inline void land(const Later& copy) {
    std::memset(copy.to, 0, copy.room);
    std::memcpy(copy.to, copy.from, copy.bytes);
}

// cp.async: `bytes` of `room` come from memory, the others are 0. A copy may land at once or as late as it is
// waited for: forwards it does the one, backwards the other.
inline void copy_later(void* to, const void* from, std::size_t bytes, std::size_t room) {
    if ((std::uintptr_t)to % room != 0 || (std::uintptr_t)from % room != 0) fail("a copy that is not aligned");
    Later copy = {to, from, bytes, room, fibers[current].groups};
    if (backwards)
        fibers[current].copies.push_back(copy);
    else
        land(copy);
}

inline void end_group() { ++fibers[current].groups; }

// Waits for all groups but the last ones.
inline void await_groups(unsigned last) {
    Fiber& fiber = fibers[current];
    std::vector<Later> left;
    for (const Later& copy : fiber.copies) {
        if (copy.group + last < fiber.groups)
            land(copy);
        else
            left.push_back(copy);
    }
    fiber.copies.swap(left);
}

}  // namespace emulation
