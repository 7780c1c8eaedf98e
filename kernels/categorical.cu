// The categorical distribution over A choices, and logits with forbidden choices.
//
// One warp a row. With m = max l and S = sum exp(l - m): log p_a = l_a - m - ln S, H = ln S - sum p (l - m).

#include "common.cuh"

struct Distribution {
    float max, sum, ln_sum, entropy;
};

template <typename T> __device__ __forceinline__ Distribution distribution(const T* logits, int choices) {
    float max = to_float(logits[0]);
    for (int i = lane(); i < choices; i += WARP) max = larger(max, to_float(logits[i]));
    max = warp_max(max);
    float sum = 0.0f, weighted = 0.0f;
    for (int i = lane(); i < choices; i += WARP) {
        float shifted = to_float(logits[i]) - max;
        float weight = expf(shifted);
        sum += weight;
        weighted = fmaf(weight, shifted, weighted);
    }
    sum = warp_sum(sum);
    weighted = warp_sum(weighted);
    float ln_sum = logf(sum);
    return {max, sum, ln_sum, ln_sum - weighted / sum};
}

// result [N, 2]: log-probability of the action, entropy. An action outside gives NaN.
KERNEL(categorical_forward, (const T* logits, const uint32_t* actions, T* result, int64_t rows, int choices),
       (logits, actions, result, rows, choices)) {
    int64_t row = global_warp();
    if (row >= rows) return;
    logits += row * choices;
    Distribution d = distribution(logits, choices);
    if (lane() != 0) return;
    uint32_t action = actions[row];
    float chosen = action < static_cast<uint32_t>(choices) ? to_float(logits[action]) : NAN;
    result[2 * row] = from_float<T>(chosen - d.max - d.ln_sum);
    result[2 * row + 1] = from_float<T>(d.entropy);
}

// d log p_a / d l_i = [i = a] - p_i, d H / d l_i = -p_i (log p_i + H).
KERNEL(categorical_backward,
       (const T* logits, const uint32_t* actions, const T* gradient, T* dlogits, int64_t rows, int choices),
       (logits, actions, gradient, dlogits, rows, choices)) {
    int64_t row = global_warp();
    if (row >= rows) return;
    logits += row * choices;
    dlogits += row * choices;
    Distribution d = distribution(logits, choices);
    float of_log_prob = to_float(gradient[2 * row]), of_entropy = to_float(gradient[2 * row + 1]);
    int64_t action = actions[row];
    for (int i = lane(); i < choices; i += WARP) {
        float shifted = to_float(logits[i]) - d.max;
        float probability = expf(shifted) / d.sum;
        float surprise = shifted - d.ln_sum + d.entropy;
        float value = -probability * (of_log_prob + of_entropy * surprise);
        if (i == action) value += of_log_prob;
        dlogits[i] = from_float<T>(value);
    }
}

// `fill` where the mask is 0. The gradient is the same with `fill` 0, of the gradient.
KERNEL(mask_logits, (const T* logits, const uint8_t* mask, T* result, int64_t count, float fill),
       (logits, mask, result, count, fill)) {
    int64_t i = global_thread();
    if (i >= count) return;
    result[i] = mask[i] != 0 ? logits[i] : from_float<T>(fill);
}
