// The part of CUDA that our kernels use, as plain C++, so that they run on a machine without a GPU.
//
// Blocks run one after another. The threads of a block are fibers on one thread of the host: each warp runs until all its
// threads have ended or wait for other warps, forwards or backwards in order of index, as do the threads within it. A
// kernel whose barriers suffice gives the same bits in both orders; one that lacks a barrier most likely does not. Shared
// memory whose size the launch decides is filled with NaN before each block. A barrier that not all threads reach, and a
// shuffle with a lane that has ended, are errors.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static

namespace emulation {

struct Index {
    unsigned x, y, z;
};

// Of the running thread.
extern Index thread_index, block_index, block_size, grid_size;
extern float* shared_memory;

// Until all threads of the block, or of the running thread's warp, have come here.
void block_barrier();
void warp_barrier();
// What each lane of the running thread's warp gives to the others.
uint64_t& exchange(unsigned lane);

void add_kernel(const char* name, void (*call)(void**));

template <typename... Parameters, size_t... I>
void call_with(void (*kernel)(Parameters...), void** arguments, std::index_sequence<I...>) {
    kernel(*static_cast<std::remove_reference_t<Parameters>*>(arguments[I])...);
}

template <auto kernel> struct Caller;
template <typename... Parameters, void (*kernel)(Parameters...)> struct Caller<kernel> {
    static void call(void** arguments) {
        call_with(kernel, arguments, std::index_sequence_for<Parameters...>{});
    }
};

struct Registration {
    Registration(const char* name, void (*call)(void**)) { add_kernel(name, call); }
};

template <typename V> V shuffle(V value, unsigned from) {
    static_assert(sizeof(V) <= sizeof(uint64_t));
    std::memcpy(&exchange(thread_index.x % 32), &value, sizeof(V));
    warp_barrier();
    V result;
    std::memcpy(&result, &exchange(from % 32), sizeof(V));
    warp_barrier();
    return result;
}

}  // namespace emulation

#define REGISTER_KERNEL(name)                                                                        \
    static const emulation::Registration name##_registration(#name, emulation::Caller<name>::call);
#define DYNAMIC_SHARED(name) float* name = emulation::shared_memory

#define threadIdx emulation::thread_index
#define blockIdx emulation::block_index
#define blockDim emulation::block_size
#define gridDim emulation::grid_size

inline void __syncthreads() { emulation::block_barrier(); }
inline void __syncwarp() { emulation::warp_barrier(); }
template <typename V> V __shfl_sync(unsigned, V value, int from) { return emulation::shuffle(value, from); }
template <typename V> V __shfl_xor_sync(unsigned, V value, int distance) {
    return emulation::shuffle(value, (threadIdx.x % 32) ^ distance);
}

inline int atomicMin(int* place, int value) {
    int before = *place;
    *place = std::min(before, value);
    return before;
}

struct alignas(16) float4 {
    float x, y, z, w;
};

struct __nv_bfloat16 {
    uint16_t bits;
};
inline float __bfloat162float(__nv_bfloat16 value) {
    uint32_t bits = static_cast<uint32_t>(value.bits) << 16;
    float result;
    std::memcpy(&result, &bits, sizeof(result));
    return result;
}
// To the nearest, ties to even.
inline __nv_bfloat16 __float2bfloat16(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    if (value != value) return {0x7fff};
    return {static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16)};
}

inline unsigned __float_as_uint(float value) {
    unsigned bits;
    std::memcpy(&bits, &value, sizeof(bits));
    return bits;
}
inline float __uint_as_float(unsigned bits) {
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
}
inline unsigned __umulhi(unsigned a, unsigned b) {
    return static_cast<unsigned>((static_cast<uint64_t>(a) * b) >> 32);
}
