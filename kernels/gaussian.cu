// The diagonal Gaussian squashed by tanh; formulas and source in src/ops/gaussian.rs. One warp a row.

#include "common.cuh"

constexpr float HALF_LN_TAU = 0.91893853320467274f;
constexpr float LN_2 = 0.69314718055994531f;

// result [N, 2]: log-density of the squashed action, entropy before squashing.
KERNEL(squashed_gaussian_forward,
       (const T* mean, const T* log_std, const T* before, T* result, int64_t rows, int width),
       (mean, log_std, before, result, rows, width)) {
    int64_t row = global_warp();
    if (row >= rows) return;
    float density = 0.0f, entropy = 0.0f;
    for (int i = lane(); i < width; i += WARP) {
        float log_deviation = to_float(log_std[row * width + i]), u = to_float(before[row * width + i]);
        float z = (u - to_float(mean[row * width + i])) * expf(-log_deviation);
        float twice = -2.0f * u;
        float softplus = (twice > 0.0f ? twice : 0.0f) + log1pf(expf(-2.0f * fabsf(u)));
        density += -0.5f * z * z - log_deviation - HALF_LN_TAU - 2.0f * (LN_2 - u - softplus);
        entropy += log_deviation + HALF_LN_TAU + 0.5f;
    }
    density = warp_sum(density);
    entropy = warp_sum(entropy);
    if (lane() != 0) return;
    result[2 * row] = from_float<T>(density);
    result[2 * row + 1] = from_float<T>(entropy);
}

// With a the log-density's gradient and b the entropy's: a z / σ, a (z² - 1) + b, a (2 tanh u - z / σ).
KERNEL(squashed_gaussian_backward,
       (const T* mean, const T* log_std, const T* before, const T* gradient, T* dmean, T* dlog_std, T* dbefore,
        int64_t rows, int width),
       (mean, log_std, before, gradient, dmean, dlog_std, dbefore, rows, width)) {
    int64_t i = global_thread();
    if (i >= rows * width) return;
    int64_t row = i / width;
    float of_density = to_float(gradient[2 * row]), of_entropy = to_float(gradient[2 * row + 1]);
    float u = to_float(before[i]), inverse = expf(-to_float(log_std[i]));
    float z = (u - to_float(mean[i])) * inverse;
    dmean[i] = from_float<T>(of_density * z * inverse);
    dlog_std[i] = from_float<T>(of_density * (z * z - 1.0f) + of_entropy);
    dbefore[i] = from_float<T>(of_density * (2.0f * tanhf(u) - z * inverse));
}
