// Rotary position embedding (Su et al. 2021) in the half-split convention: entry i of a head turns with entry i + D/2.
//
// x [N, H, D], tables f32 [P, D/2], positions u32 [N]. One thread a pair. `direction` 1 turns forward; -1 is both the
// inverse and the backward pass. A position outside the tables gives NaN.

#include "common.cuh"

KERNEL(rotary,
       (const T* x, const float* cosine, const float* sine, const uint32_t* positions, T* y, int64_t rows, int heads,
        int half, uint32_t table_rows, float direction),
       (x, cosine, sine, positions, y, rows, heads, half, table_rows, direction)) {
    int64_t pair = global_thread();
    if (pair >= rows * heads * half) return;
    int i = static_cast<int>(pair % half);
    int64_t head = pair / half;
    uint32_t position = positions[head / heads];
    float c = NAN, s = NAN;
    if (position < table_rows) {
        c = cosine[static_cast<int64_t>(position) * half + i];
        s = direction * sine[static_cast<int64_t>(position) * half + i];
    }
    int64_t first = head * 2 * half + i;
    float a = to_float(x[first]), b = to_float(x[first + half]);
    y[first] = from_float<T>(a * c - b * s);
    y[first + half] = from_float<T>(b * c + a * s);
}
