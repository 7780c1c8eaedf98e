// Optimiser updates in place, one thread an entry, and the sum of squares of a gradient.
//
// Parameters and moments are f32 (the masters); the gradient may be bf16, and a bf16 copy of the parameter can be
// written beside it. The formulas are those of src/learner/optimizer; factors that do not depend on the entry come
// ready from the host, where they are computed in f64.

#include "common.cuh"

__device__ __forceinline__ void write_copy(__nv_bfloat16* copy, int64_t i, float value) {
    if (copy != nullptr) copy[i] = from_float<__nv_bfloat16>(value);
}

// m = keep1 m + take1 g; s = keep2 s + take2 (scale g)²; p = keep p - rate m / (sqrt(s) root_correction + epsilon).
KERNEL(adamw_update,
       (float* parameter, float* first, float* second, const T* gradient, __nv_bfloat16* copy, int64_t count,
        float keep_first, float take_first, float keep_second, float take_second, float scale, float keep, float rate,
        float root_correction, float epsilon),
       (parameter, first, second, gradient, copy, count, keep_first, take_first, keep_second, take_second, scale, keep,
        rate, root_correction, epsilon)) {
    int64_t i = global_thread();
    if (i >= count) return;
    float g = to_float(gradient[i]);
    float m = keep_first * first[i] + take_first * g;
    float scaled = scale * g;
    float s = keep_second * second[i] + take_second * scaled * scaled;
    float p = keep * parameter[i] - rate * m / (sqrtf(s) * root_correction + epsilon);
    first[i] = m;
    second[i] = s;
    parameter[i] = p;
    write_copy(copy, i, p);
}

// s = keep s + take (scale g)²; p = p - rate g / (sqrt(s + inside) + outside): epsilon stands at one of both places.
KERNEL(rmsprop_update,
       (float* parameter, float* second, const T* gradient, __nv_bfloat16* copy, int64_t count, float keep, float take,
        float scale, float rate, float inside, float outside),
       (parameter, second, gradient, copy, count, keep, take, scale, rate, inside, outside)) {
    int64_t i = global_thread();
    if (i >= count) return;
    float g = to_float(gradient[i]);
    float scaled = scale * g;
    float s = keep * second[i] + take * scaled * scaled;
    float p = parameter[i] - rate * g / (sqrtf(s + inside) + outside);
    second[i] = s;
    parameter[i] = p;
    write_copy(copy, i, p);
}

// Entries that one block sums; `src/ops/cuda/optimizer.rs` has the same.
constexpr int ENTRIES_IN_PART = 16384;

// The sum of squares, in f64, of the entries of part blockIdx.x.
KERNEL(square_parts, (const T* values, double* parts, int64_t count), (values, parts, count)) {
    __shared__ double scratch[MAX_THREADS / WARP];
    int64_t first = static_cast<int64_t>(blockIdx.x) * ENTRIES_IN_PART;
    int64_t last = first + ENTRIES_IN_PART < count ? first + ENTRIES_IN_PART : count;
    double sum = 0.0;
    for (int64_t i = first + threadIdx.x; i < last; i += blockDim.x) {
        double value = to_float(values[i]);
        sum += value * value;
    }
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

// One block: the sum of all parts.
PLAIN_KERNEL(sum_square_parts, (const double* parts, double* total, int count)) {
    __shared__ double scratch[MAX_THREADS / WARP];
    double sum = 0.0;
    for (int i = threadIdx.x; i < count; i += blockDim.x) sum += parts[i];
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) *total = sum;
}
