// Normalisation of rows: RMSNorm (Zhang and Sennrich 2019) and LayerNorm (Ba et al. 2016), forward and backward.
//
// One warp a row. Parameter gradients: each block of ROWS_IN_PART rows gives one partial sum, and partial sums are added
// in order. The mean of RMSNorm is 0.

#include "common.cuh"

// Rows whose parameter gradients are summed by one thread; `src/ops/cuda/norm.rs` has the same.
constexpr int ROWS_IN_PART = 64;

struct Moments {
    float mean, inverse;
};

// Mean and 1 / sqrt(variance + epsilon) of a row; all lanes of a warp must call.
template <typename T, bool CENTRED>
__device__ __forceinline__ Moments row_moments(const T* row, int width, float epsilon) {
    float mean = 0.0f;
    if (CENTRED) {
        float sum = 0.0f;
        for (int i = lane(); i < width; i += WARP) sum += to_float(row[i]);
        mean = warp_sum(sum) / width;
    }
    float squares = 0.0f;
    for (int i = lane(); i < width; i += WARP) {
        float value = to_float(row[i]) - mean;
        squares = fmaf(value, value, squares);
    }
    return {mean, 1.0f / sqrtf(warp_sum(squares) / width + epsilon)};
}

// y = (x - mean) inverse weight (+ bias).
template <typename T, bool CENTRED>
__device__ __forceinline__ void norm_forward(
    const T* x, const T* weight, const T* bias, T* y, int64_t rows, int width, float epsilon) {
    int64_t row = global_warp();
    if (row >= rows) return;
    x += row * width;
    y += row * width;
    Moments moments = row_moments<T, CENTRED>(x, width, epsilon);
    for (int i = lane(); i < width; i += WARP) {
        float value = (to_float(x[i]) - moments.mean) * moments.inverse * to_float(weight[i]);
        if (CENTRED) value += to_float(bias[i]);
        y[i] = from_float<T>(value);
    }
}

// With n = (x - mean) inverse and h = gradient weight: dx = inverse (h - mean(h) - n mean(h n)), without mean(h) for
// RMSNorm. `moments` [rows, 2] is kept for the gradients of the parameters.
template <typename T, bool CENTRED>
__device__ __forceinline__ void norm_backward(
    const T* x, const T* weight, const T* gradient, T* dx, float* moments_out, int64_t rows, int width, float epsilon) {
    int64_t row = global_warp();
    if (row >= rows) return;
    x += row * width;
    gradient += row * width;
    dx += row * width;
    Moments moments = row_moments<T, CENTRED>(x, width, epsilon);
    float sum = 0.0f, weighted = 0.0f;
    for (int i = lane(); i < width; i += WARP) {
        float h = to_float(gradient[i]) * to_float(weight[i]);
        sum += h;
        weighted = fmaf(h, (to_float(x[i]) - moments.mean) * moments.inverse, weighted);
    }
    float mean_h = CENTRED ? warp_sum(sum) / width : 0.0f;
    float mean_weighted = warp_sum(weighted) / width;
    for (int i = lane(); i < width; i += WARP) {
        float h = to_float(gradient[i]) * to_float(weight[i]);
        float normed = (to_float(x[i]) - moments.mean) * moments.inverse;
        dx[i] = from_float<T>(moments.inverse * (h - mean_h - normed * mean_weighted));
    }
    if (lane() == 0) {
        moments_out[2 * row] = moments.mean;
        moments_out[2 * row + 1] = moments.inverse;
    }
}

KERNEL(rms_norm_forward, (const T* x, const T* weight, T* y, int64_t rows, int width, float epsilon),
       (x, weight, y, rows, width, epsilon)) {
    norm_forward<T, false>(x, weight, nullptr, y, rows, width, epsilon);
}

KERNEL(layer_norm_forward,
       (const T* x, const T* weight, const T* bias, T* y, int64_t rows, int width, float epsilon),
       (x, weight, bias, y, rows, width, epsilon)) {
    norm_forward<T, true>(x, weight, bias, y, rows, width, epsilon);
}

KERNEL(rms_norm_backward,
       (const T* x, const T* weight, const T* gradient, T* dx, float* moments, int64_t rows, int width, float epsilon),
       (x, weight, gradient, dx, moments, rows, width, epsilon)) {
    norm_backward<T, false>(x, weight, gradient, dx, moments, rows, width, epsilon);
}

KERNEL(layer_norm_backward,
       (const T* x, const T* weight, const T* gradient, T* dx, float* moments, int64_t rows, int width, float epsilon),
       (x, weight, gradient, dx, moments, rows, width, epsilon)) {
    norm_backward<T, true>(x, weight, gradient, dx, moments, rows, width, epsilon);
}

// Gradients of weight and bias over the rows of part blockIdx.y, for one column a thread; `parts` [part, 2, width].
KERNEL(norm_parameter_parts,
       (const T* x, const T* gradient, const float* moments, float* parts, int64_t rows, int width),
       (x, gradient, moments, parts, rows, width)) {
    int column = static_cast<int>(global_thread());
    if (column >= width) return;
    int64_t first = static_cast<int64_t>(blockIdx.y) * ROWS_IN_PART;
    int64_t last = first + ROWS_IN_PART < rows ? first + ROWS_IN_PART : rows;
    float weight = 0.0f, bias = 0.0f;
    for (int64_t row = first; row < last; ++row) {
        float g = to_float(gradient[row * width + column]);
        float normed = (to_float(x[row * width + column]) - moments[2 * row]) * moments[2 * row + 1];
        weight = fmaf(g, normed, weight);
        bias += g;
    }
    float* part = parts + 2 * static_cast<int64_t>(blockIdx.y) * width;
    part[column] = weight;
    part[width + column] = bias;
}

// Sums parts [count, columns] in order.
KERNEL(sum_parts, (const float* parts, T* sums, int count, int columns), (parts, sums, count, columns)) {
    int column = static_cast<int>(global_thread());
    if (column >= columns) return;
    float sum = 0.0f;
    for (int part = 0; part < count; ++part) sum += parts[static_cast<int64_t>(part) * columns + column];
    sums[column] = from_float<T>(sum);
}
