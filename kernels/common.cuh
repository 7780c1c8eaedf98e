// What all kernels share: the two value types, kernels made for both of them, and reductions in a fixed order.
//
// Values are f32 or bf16 in memory and always f32 in registers. A kernel is written once, as a body with the type T:
//
//     KERNEL(twice, (const T* x, T* y, int64_t count), (x, y, count)) { ... }
//
// makes `twice_f32` and `twice_bf16`. Every sum has an order that depends on shapes alone (no floating-point atomics),
// so results are the same bits in every run, and a row's result does not depend on the rows around it.
//
// The same files compile as plain C++ with FOREBAY_EMULATION defined (see emulation/emulation.hpp).
#pragma once

#include <cstdint>

#ifdef FOREBAY_EMULATION
#include "emulation/emulation.hpp"
#else
#include <cuda_bf16.h>
#define REGISTER_KERNEL(name)
// The shared memory whose size a launch gives, in floats; aligned for float4.
#define DYNAMIC_SHARED(name) extern __shared__ __align__(16) float name[]
#endif

// No kernel is launched with more threads in a block than this.
constexpr int MAX_THREADS = 256;
constexpr int WARP = 32;
constexpr unsigned FULL_WARP = 0xffffffffu;

#define KERNEL_OF_TYPE(suffix, type, name, parameters, arguments)                                    \
    namespace suffix {                                                                               \
    using T = type;                                                                                  \
    extern "C" __global__ void __launch_bounds__(MAX_THREADS) name##_##suffix parameters {           \
        name##_body<T> arguments;                                                                    \
    }                                                                                                \
    REGISTER_KERNEL(name##_##suffix)                                                                 \
    }

// A kernel for both value types; the body follows.
#define KERNEL(name, parameters, arguments)                                                          \
    template <typename T> __device__ __forceinline__ void name##_body parameters;                    \
    KERNEL_OF_TYPE(f32, float, name, parameters, arguments)                                          \
    KERNEL_OF_TYPE(bf16, __nv_bfloat16, name, parameters, arguments)                                 \
    template <typename T> __device__ __forceinline__ void name##_body parameters

// A kernel whose types are fixed; the body follows.
#define PLAIN_KERNEL(name, parameters)                                                               \
    extern "C" __global__ void __launch_bounds__(MAX_THREADS) name parameters;                       \
    REGISTER_KERNEL(name)                                                                            \
    extern "C" __global__ void __launch_bounds__(MAX_THREADS) name parameters

__device__ __forceinline__ float to_float(float value) { return value; }
__device__ __forceinline__ float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }

template <typename T> __device__ __forceinline__ T from_float(float value);
template <> __device__ __forceinline__ float from_float<float>(float value) { return value; }
template <> __device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float value) {
    return __float2bfloat16(value);
}

// Index of this thread among all threads of a one-dimensional grid.
__device__ __forceinline__ int64_t global_thread() {
    return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
// Index of this warp among all warps of a one-dimensional grid.
__device__ __forceinline__ int64_t global_warp() { return global_thread() / WARP; }
__device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % WARP; }

// The sum over WIDTH neighbouring lanes, the same bits in each of them.
template <int WIDTH> __device__ __forceinline__ float lanes_sum(float value) {
#pragma unroll
    for (int distance = WIDTH / 2; distance > 0; distance /= 2) {
        value += __shfl_xor_sync(FULL_WARP, value, distance);
    }
    return value;
}
__device__ __forceinline__ float warp_sum(float value) { return lanes_sum<WARP>(value); }

// The larger of both; `best` when `value` is NaN (a NaN comes out through the sums).
__device__ __forceinline__ float larger(float best, float value) { return value > best ? value : best; }

template <int WIDTH> __device__ __forceinline__ float lanes_max(float value) {
#pragma unroll
    for (int distance = WIDTH / 2; distance > 0; distance /= 2) {
        value = larger(value, __shfl_xor_sync(FULL_WARP, value, distance));
    }
    return value;
}
__device__ __forceinline__ float warp_max(float value) { return lanes_max<WARP>(value); }

// The sum over all threads of a block, the same bits in each. `scratch` holds one value a warp; all threads must call.
template <typename V> __device__ __forceinline__ V block_sum(V value, V* scratch) {
#pragma unroll
    for (int distance = WARP / 2; distance > 0; distance /= 2) {
        value += __shfl_xor_sync(FULL_WARP, value, distance);
    }
    __syncthreads();
    if (lane() == 0) scratch[threadIdx.x / WARP] = value;
    __syncthreads();
    V total = scratch[0];
    for (int warp = 1; warp < static_cast<int>(blockDim.x) / WARP; ++warp) total += scratch[warp];
    return total;
}

// As block_sum, for the maximum.
__device__ __forceinline__ float block_max(float value, float* scratch) {
    value = warp_max(value);
    __syncthreads();
    if (lane() == 0) scratch[threadIdx.x / WARP] = value;
    __syncthreads();
    float best = scratch[0];
    for (int warp = 1; warp < static_cast<int>(blockDim.x) / WARP; ++warp) best = larger(best, scratch[warp]);
    return best;
}

__device__ __forceinline__ float sigmoid(float value) { return 1.0f / (1.0f + expf(-value)); }
