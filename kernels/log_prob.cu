// Log-probability and entropy under a vocabulary of which only a chunk of logits is there at a time.
//
// Logits come chunk by chunk from matrix products; z = logit / temperature. Each row keeps a state [4]: the maximum m
// so far, S = sum exp(z - m), W = sum exp(z - m) (z - m), and the target's z. One block a row; chunks are added in
// order of the vocabulary, so a row's result depends on its own logits and the chunk width alone.

#include "common.cuh"

PLAIN_KERNEL(vocabulary_start, (float* states, int64_t rows)) {
    int64_t row = global_thread();
    if (row >= rows) return;
    states[4 * row] = -INFINITY;
    states[4 * row + 1] = 0.0f;
    states[4 * row + 2] = 0.0f;
    // A target that no chunk holds gives NaN.
    states[4 * row + 3] = NAN;
}

// Adds a chunk [rows, width], which starts at entry `first` of the vocabulary.
KERNEL(vocabulary_add,
       (const T* chunk, const uint32_t* targets, float* states, int width, uint32_t first, float inverse_temperature),
       (chunk, targets, states, width, first, inverse_temperature)) {
    __shared__ float scratch[MAX_THREADS / WARP];
    int64_t row = blockIdx.x;
    chunk += row * width;
    float* state = states + 4 * row;
    float old_max = state[0];
    float max = -INFINITY;
    for (int i = threadIdx.x; i < width; i += blockDim.x) max = larger(max, to_float(chunk[i]) * inverse_temperature);
    max = larger(old_max, block_max(max, scratch));
    float sum = 0.0f, weighted = 0.0f;
    for (int i = threadIdx.x; i < width; i += blockDim.x) {
        float z = to_float(chunk[i]) * inverse_temperature;
        // A logit of minus infinity weighs nothing, also where all that were seen so far are.
        if (z == -INFINITY) continue;
        float shifted = z - max, weight = expf(shifted);
        sum += weight;
        weighted = fmaf(weight, shifted, weighted);
    }
    sum = block_sum(sum, scratch);
    weighted = block_sum(weighted, scratch);
    if (threadIdx.x != 0) return;
    if (old_max != -INFINITY) {
        float shift = old_max - max, kept = expf(shift);
        weighted += kept * fmaf(state[1], shift, state[2]);
        sum += kept * state[1];
    }
    state[0] = max;
    state[1] = sum;
    state[2] = weighted;
    uint32_t target = targets[row] - first;
    if (target < static_cast<uint32_t>(width)) state[3] = to_float(chunk[target]) * inverse_temperature;
}

// result [rows, 2]: log-probability and entropy, from complete states; in f32 whatever the logits are, since a
// log-probability in bf16 would be off by half a percent and more.
PLAIN_KERNEL(vocabulary_finish, (const float* states, float* result, int64_t rows)) {
    int64_t row = global_thread();
    if (row >= rows) return;
    const float* state = states + 4 * row;
    float ln_sum = logf(state[1]);
    result[2 * row] = state[3] - state[0] - ln_sum;
    result[2 * row + 1] = ln_sum - state[2] / state[1];
}

// Turns a chunk of logits into their gradients, in place:
// (of_log_prob ([i = target] - p_i) - of_entropy p_i (log p_i + H)) / temperature.
KERNEL(vocabulary_gradient,
       (T* chunk, const uint32_t* targets, const float* states, const float* gradient, int width, uint32_t first,
        float inverse_temperature),
       (chunk, targets, states, gradient, width, first, inverse_temperature)) {
    int64_t row = blockIdx.x;
    chunk += row * width;
    const float* state = states + 4 * row;
    float ln_sum = logf(state[1]);
    float entropy = ln_sum - state[2] / state[1];
    float of_log_prob = gradient[2 * row], of_entropy = gradient[2 * row + 1];
    uint32_t target = targets[row] - first;
    for (int i = threadIdx.x; i < width; i += blockDim.x) {
        float log_p = to_float(chunk[i]) * inverse_temperature - state[0] - ln_sum;
        float p = expf(log_p);
        float value = p != 0.0f ? -p * (of_log_prob + of_entropy * (log_p + entropy)) : 0.0f;
        if (static_cast<uint32_t>(i) == target) value += of_log_prob;
        chunk[i] = from_float<T>(value * inverse_temperature);
    }
}
