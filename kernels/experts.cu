// Rows to experts and back. Each of N rows goes to k experts; the N k dispatched rows are grouped by expert.
//
// `places` [N, k] says where a row's copies lie, in order of expert id; `slots` [N, k] which of the row's k choices each
// of them is. Dispatching is gather_rows (embedding.cu). Sums run in order of expert id.

#include "common.cuh"

// y[n, :] = sum over j of weights[n, slots[n, j]] values[places[n, j], :], or without weights; one thread an entry.
KERNEL(combine_rows,
       (const T* values, const T* weights, const uint32_t* places, const uint32_t* slots, T* y, int64_t rows,
        int choices, int width),
       (values, weights, places, slots, y, rows, choices, width)) {
    int64_t i = global_thread();
    if (i >= rows * width) return;
    int64_t row = i / width;
    int column = static_cast<int>(i % width);
    float sum = 0.0f;
    for (int j = 0; j < choices; ++j) {
        float value = to_float(values[static_cast<int64_t>(places[row * choices + j]) * width + column]);
        float weight = weights != nullptr ? to_float(weights[row * choices + slots[row * choices + j]]) : 1.0f;
        sum = fmaf(weight, value, sum);
    }
    y[i] = from_float<T>(sum);
}

// Gradients of `values` and `weights`; one warp a copy.
KERNEL(combine_rows_backward,
       (const T* values, const T* weights, const uint32_t* places, const uint32_t* slots, const T* gradient, T* dvalues,
        T* dweights, int64_t rows, int choices, int width),
       (values, weights, places, slots, gradient, dvalues, dweights, rows, choices, width)) {
    int64_t copy = global_warp();
    if (copy >= rows * choices) return;
    int64_t row = copy / choices, place = places[copy], choice = row * choices + slots[copy];
    float weight = to_float(weights[choice]), sum = 0.0f;
    for (int column = lane(); column < width; column += WARP) {
        float given = to_float(gradient[row * width + column]);
        sum = fmaf(given, to_float(values[place * width + column]), sum);
        dvalues[place * width + column] = from_float<T>(weight * given);
    }
    sum = warp_sum(sum);
    if (lane() == 0) dweights[choice] = from_float<T>(sum);
}
