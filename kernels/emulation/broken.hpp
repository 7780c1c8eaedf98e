// Kernels with one mistake each: tests show that emulation notices it.

#include "../common.cuh"

// Each thread takes the value of the thread in the opposite warp, without waiting for it.
PLAIN_KERNEL(broken_barrier, (const float* x, float* y)) {
    __shared__ float values[MAX_THREADS];
    values[threadIdx.x] = x[threadIdx.x];
    y[threadIdx.x] = values[MAX_THREADS - 1 - threadIdx.x];
}

// Writes the places from 1 up to and including `count`.
PLAIN_KERNEL(broken_bound, (const float* x, float* y, int count)) {
    int i = static_cast<int>(threadIdx.x);
    if (i < count) y[i + 1] = x[i];
}

// Writes what it should only read.
PLAIN_KERNEL(broken_input, (float* x, float* y)) {
    x[threadIdx.x] = y[threadIdx.x] = 1.0f;
}

// Some lanes have left when the others exchange values.
PLAIN_KERNEL(broken_exchange, (const float* x, float* y)) {
    if (threadIdx.x % WARP == 3) return;
    y[threadIdx.x] = warp_sum(x[threadIdx.x]);
}

// Half of the threads wait for the others, which wait at another barrier.
PLAIN_KERNEL(broken_branch, (const float* x, float* y)) {
    if (threadIdx.x % WARP < 16) {
        __syncthreads();
    } else {
        __syncwarp();
    }
    y[threadIdx.x] = x[threadIdx.x];
}

// Nothing is wrong here.
PLAIN_KERNEL(sound, (const float* x, float* y)) {
    __shared__ float values[MAX_THREADS];
    values[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = values[MAX_THREADS - 1 - threadIdx.x];
}
