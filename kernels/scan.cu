// Backward recursions over time, one thread a column of [T, B]: V-trace, generalised advantage estimation, discounted
// returns. The formulas and the rules at the ends of episodes are those of src/learner/advantage.

#include "common.cuh"

// What stands at a step for what follows it.
struct Ends {
    const uint8_t* terminated;
    const uint8_t* truncated;
    const float* final_values;

    __device__ __forceinline__ bool any(int64_t i) const { return terminated[i] != 0 || truncated[i] != 0; }
    __device__ __forceinline__ float discount(int64_t i, float discount) const {
        return terminated[i] != 0 ? 0.0f : discount;
    }
    __device__ __forceinline__ float successor(int64_t i, float next_row) const {
        return terminated[i] != 0 ? 0.0f : truncated[i] != 0 ? final_values[i] : next_row;
    }
};

// The smaller of both, except that NaN stays.
__device__ __forceinline__ float at_most(float value, float bound) { return value > bound ? bound : value; }

PLAIN_KERNEL(vtrace,
             (const float* log_rhos, const float* rewards, const float* values, const float* discounts,
              const uint8_t* terminated, const uint8_t* truncated, const float* final_values, const float* bootstrap,
              float* targets, float* advantages, int steps, int columns, float log_ratio_limit, float rho_bar,
              float c_bar, float pg_rho_bar, float lambda)) {
    int column = static_cast<int>(global_thread());
    if (column >= columns) return;
    Ends ends{terminated, truncated, final_values};
    float next_value = bootstrap[column], next_target = bootstrap[column], carried = 0.0f;
    for (int step = steps - 1; step >= 0; --step) {
        int64_t i = static_cast<int64_t>(step) * columns + column;
        float ratio = expf(at_most(log_rhos[i], log_ratio_limit));
        float discount = ends.discount(i, discounts[i]);
        float reward = rewards[i], value = values[i];
        float successor = ends.successor(i, next_value);
        bool end = ends.any(i);
        float delta = at_most(ratio, rho_bar) * (reward + discount * successor - value);
        float correction = delta + discount * lambda * at_most(ratio, c_bar) * (end ? 0.0f : carried);
        float successor_target = end ? successor : next_target;
        float target = value + correction;
        targets[i] = target;
        advantages[i] = at_most(ratio, pg_rho_bar) * (reward + discount * successor_target - value);
        carried = correction;
        next_value = value;
        next_target = target;
    }
}

PLAIN_KERNEL(gae,
             (const float* rewards, const float* values, const uint8_t* terminated, const uint8_t* truncated,
              const float* final_values, const float* bootstrap, float* advantages, float* returns, int steps,
              int columns, float gamma, float lambda)) {
    int column = static_cast<int>(global_thread());
    if (column >= columns) return;
    Ends ends{terminated, truncated, final_values};
    float next_value = bootstrap[column], carried = 0.0f;
    for (int step = steps - 1; step >= 0; --step) {
        int64_t i = static_cast<int64_t>(step) * columns + column;
        float value = values[i];
        float delta = rewards[i] + gamma * ends.successor(i, next_value) - value;
        carried = delta + gamma * lambda * (ends.any(i) ? 0.0f : carried);
        advantages[i] = carried;
        returns[i] = carried + value;
        next_value = value;
    }
}

PLAIN_KERNEL(discounted_returns,
             (const float* rewards, const float* discounts, const uint8_t* terminated, const uint8_t* truncated,
              const float* final_values, const float* bootstrap, float* returns, int steps, int columns)) {
    int column = static_cast<int>(global_thread());
    if (column >= columns) return;
    Ends ends{terminated, truncated, final_values};
    float following = bootstrap[column];
    for (int step = steps - 1; step >= 0; --step) {
        int64_t i = static_cast<int64_t>(step) * columns + column;
        following = rewards[i] + ends.discount(i, discounts[i]) * ends.successor(i, following);
        returns[i] = following;
    }
}
