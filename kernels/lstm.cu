// The pointwise part of an LSTM step (Hochreiter and Schmidhuber 1997, Gers et al. 2000), one thread a hidden unit.
//
// Gates [N, 4H]: input, forget, candidate, output, before their squashing; state [N, 2H]: h, c.
// c' = s(f) c + s(i) tanh(g), h' = s(o) tanh(c').

#include "common.cuh"

struct Gates {
    float input, forget, candidate, output;
};

template <typename T>
__device__ __forceinline__ Gates squashed_gates(const T* gates, int64_t row, int unit, int hidden) {
    const T* of_row = gates + row * 4 * hidden + unit;
    return {sigmoid(to_float(of_row[0])), sigmoid(to_float(of_row[hidden])), tanhf(to_float(of_row[2 * hidden])),
            sigmoid(to_float(of_row[3 * hidden]))};
}

KERNEL(lstm_cell_forward, (const T* gates, const T* state, T* next, int64_t rows, int hidden),
       (gates, state, next, rows, hidden)) {
    int64_t i = global_thread();
    if (i >= rows * hidden) return;
    int64_t row = i / hidden;
    int unit = static_cast<int>(i % hidden);
    Gates g = squashed_gates(gates, row, unit, hidden);
    int64_t place = row * 2 * hidden + unit;
    float cell = fmaf(g.forget, to_float(state[place + hidden]), g.input * g.candidate);
    next[place] = from_float<T>(g.output * tanhf(cell));
    next[place + hidden] = from_float<T>(cell);
}

// Of the gates and of the state before (whose h has no part here: 0).
KERNEL(lstm_cell_backward,
       (const T* gates, const T* state, const T* next, const T* gradient, T* gates_gradient, T* state_gradient,
        int64_t rows, int hidden),
       (gates, state, next, gradient, gates_gradient, state_gradient, rows, hidden)) {
    int64_t i = global_thread();
    if (i >= rows * hidden) return;
    int64_t row = i / hidden;
    int unit = static_cast<int>(i % hidden);
    Gates g = squashed_gates(gates, row, unit, hidden);
    int64_t place = row * 2 * hidden + unit;
    float squashed = tanhf(to_float(next[place + hidden]));
    float dh = to_float(gradient[place]);
    float dc = fmaf(dh * g.output, 1.0f - squashed * squashed, to_float(gradient[place + hidden]));
    T* out = gates_gradient + row * 4 * hidden + unit;
    out[0] = from_float<T>(dc * g.candidate * g.input * (1.0f - g.input));
    out[hidden] = from_float<T>(dc * to_float(state[place + hidden]) * g.forget * (1.0f - g.forget));
    out[2 * hidden] = from_float<T>(dc * g.input * (1.0f - g.candidate * g.candidate));
    out[3 * hidden] = from_float<T>(dh * squashed * g.output * (1.0f - g.output));
    state_gradient[place] = from_float<T>(0.0f);
    state_gradient[place + hidden] = from_float<T>(dc * g.forget);
}
