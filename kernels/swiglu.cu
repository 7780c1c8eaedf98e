// silu(gate) up (Shazeer 2020), forward and backward, one thread an entry.

#include "common.cuh"

KERNEL(swiglu_forward, (const T* gate, const T* up, T* y, int64_t count), (gate, up, y, count)) {
    int64_t i = global_thread();
    if (i >= count) return;
    float g = to_float(gate[i]);
    y[i] = from_float<T>(g * sigmoid(g) * to_float(up[i]));
}

// The slope of silu is s (1 + g (1 - s)), with s the logistic function of g.
KERNEL(swiglu_backward,
       (const T* gate, const T* up, const T* gradient, T* gate_gradient, T* up_gradient, int64_t count),
       (gate, up, gradient, gate_gradient, up_gradient, count)) {
    int64_t i = global_thread();
    if (i >= count) return;
    float g = to_float(gate[i]), given = to_float(gradient[i]);
    float s = sigmoid(g);
    gate_gradient[i] = from_float<T>(given * to_float(up[i]) * s * (1.0f + g * (1.0f - s)));
    up_gradient[i] = from_float<T>(given * g * s);
}
