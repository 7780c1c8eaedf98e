// Rows of a table by index, and the gradient of the table: for each row of the table the sum of the gradients of the
// places that read it, in order of place.
//
// The backward pass finds the places without sorting: `embedding_first` marks the first place of each index (a minimum
// of integers does not depend on order), `embedding_next` links each place to the next with the same index, and
// `embedding_backward` walks the chain, one block a first place.

#include "common.cuh"

// y[n, :] = table[ids[n], :], NaN for an index outside the table; one thread an entry.
KERNEL(gather_rows, (const T* table, const uint32_t* ids, T* y, int64_t places, int width, uint32_t table_rows),
       (table, ids, y, places, width, table_rows)) {
    int64_t i = global_thread();
    if (i >= places * width) return;
    uint32_t id = ids[i / width];
    y[i] = id < table_rows ? table[static_cast<int64_t>(id) * width + i % width] : from_float<T>(NAN);
}

// out[places[n], :] = x[n, :]; places must be distinct, and those outside are left out.
KERNEL(scatter_rows, (const T* x, const uint32_t* places, T* out, int64_t rows, int width, int64_t out_rows),
       (x, places, out, rows, width, out_rows)) {
    int64_t i = global_thread();
    if (i >= rows * width) return;
    int64_t place = places[i / width];
    if (place < out_rows) out[place * width + i % width] = x[i];
}

PLAIN_KERNEL(embedding_clear, (int* first, int table_rows)) {
    int64_t row = global_thread();
    if (row < table_rows) first[row] = INT32_MAX;
}

PLAIN_KERNEL(embedding_first, (const uint32_t* ids, int* first, int places, uint32_t table_rows)) {
    int64_t place = global_thread();
    if (place >= places || ids[place] >= table_rows) return;
    atomicMin(first + ids[place], static_cast<int>(place));
}

// The next place with the same index, -1 at the last.
PLAIN_KERNEL(embedding_next, (const uint32_t* ids, int* next, int places)) {
    int64_t place = global_thread();
    if (place >= places) return;
    uint32_t id = ids[place];
    int found = -1;
    for (int later = static_cast<int>(place) + 1; later < places; ++later) {
        if (ids[later] == id) {
            found = later;
            break;
        }
    }
    next[place] = found;
}

// One block a row of the table; rows that nothing read become 0.
KERNEL(embedding_backward,
       (const T* gradient, const int* first, const int* next, T* table_gradient, int width),
       (gradient, first, next, table_gradient, width)) {
    int64_t row = blockIdx.x;
    int start = first[row];
    if (start == INT32_MAX) start = -1;
    for (int column = threadIdx.x; column < width; column += blockDim.x) {
        float sum = 0.0f;
        for (int place = start; place >= 0; place = next[place]) {
            sum += to_float(gradient[static_cast<int64_t>(place) * width + column]);
        }
        table_gradient[row * width + column] = from_float<T>(sum);
    }
}
