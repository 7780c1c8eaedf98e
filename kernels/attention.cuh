// What the kernels of causal attention with grouped KV heads share: who works on what, tiles in shared memory.
//
// q [N, H, D], k and v [N, G, D], group = H / G. A *slot* is one query row under one head of a KV head's group; the slots
// of a sequence are numbered (row, head in group). Keys are walked in tiles of KEYS from position 0 of the sequence,
// whatever lies behind the positions (packed rows, a shared prefix, pages): a slot's result depends on its own keys
// only, bit for bit, and generation gives the bits that training computes.
//
// One block: SLOTS slots of one sequence and one KV head. Teams of TEAM neighbouring lanes serve slots: in the product
// with the keys a member has every TEAM-th key of the tile, in the product with the values every TEAM-th quadruple of
// columns. These are plain multiply-adds out of shared memory, which is read in quadruples so that it keeps up with the
// arithmetic; tensor cores are not used.

#pragma once

#include "common.cuh"

constexpr int KEYS = 32;
constexpr int TEAM = 8;
constexpr int TEAMS = MAX_THREADS / TEAM;
// Slots that a team serves, and those of a block; `src/ops/cuda/attention.rs` has the same numbers.
constexpr int SLOTS_OF_TEAM = 2;
constexpr int SLOTS = TEAMS * SLOTS_OF_TEAM;
constexpr int KEYS_OF_MEMBER = KEYS / TEAM;
// From row to row of a tile of scores.
constexpr int SCORES = KEYS + 4;
static_assert(TEAMS == KEYS, "the backward pass of the keys gives each team one key");

// Blocks of a multiprocessor that registers must suffice for; wide heads need more of them.
constexpr int blocks_at_once(int columns) { return columns > 16 ? 1 : 2; }

// A kernel for heads of at most 64, 128 and 256 columns (COLUMNS a member) and both value types; the body follows.
#define SIZED_OF_TYPE(suffix, type, name, size, columns, parameters, arguments)                      \
    namespace suffix {                                                                               \
    using T = type;                                                                                  \
    extern "C" __global__ void __launch_bounds__(MAX_THREADS, blocks_at_once(columns))               \
        name##_##size##_##suffix parameters {                                                        \
        name##_sized<T, columns> arguments;                                                          \
    }                                                                                                \
    REGISTER_KERNEL(name##_##size##_##suffix)                                                        \
    }
#define SIZED(name, size, columns, parameters, arguments)                                            \
    SIZED_OF_TYPE(f32, float, name, size, columns, parameters, arguments)                            \
    SIZED_OF_TYPE(bf16, __nv_bfloat16, name, size, columns, parameters, arguments)
#define SIZED_KERNEL(name, parameters, arguments)                                                    \
    template <typename T, int COLUMNS> __device__ __forceinline__ void name##_sized parameters;      \
    SIZED(name, 64, 8, parameters, arguments)                                                        \
    SIZED(name, 128, 16, parameters, arguments)                                                      \
    SIZED(name, 256, 32, parameters, arguments)                                                      \
    template <typename T, int COLUMNS> __device__ __forceinline__ void name##_sized parameters

// From row to row of a tile of queries, keys or values in shared memory: quadruples stay aligned, and those of
// neighbouring rows lie in different banks.
__device__ __forceinline__ int stride_of(int width) { return (width + 3) / 4 * 4 + 4; }

__device__ __forceinline__ float4 quadruple(const float* place) { return *reinterpret_cast<const float4*>(place); }

// Copies one row to a tile, a warp a row; zeros when it is not `there`, and behind the width up to a whole quadruple.
template <typename T> __device__ __forceinline__ void load_row(const T* from, bool there, int width, float* to) {
    for (int column = lane(); column < (width + 3) / 4 * 4; column += WARP) {
        to[column] = there && column < width ? to_float(from[column]) : 0.0f;
    }
}

// Continues a sum of products in the order of columns.
__device__ __forceinline__ float dot(float4 a, float4 b, float sum) {
    return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
}

// The column of a member's c-th value.
__device__ __forceinline__ int column_of(int member, int c) { return c / 4 * 4 * TEAM + member * 4 + c % 4; }

// Which row of k and v holds a position of a sequence.
struct PackedRows {
    int prefix_start, prefix_length, rows_start;

    __device__ __forceinline__ int64_t operator()(int position) const {
        return position < prefix_length ? prefix_start + position : rows_start + position - prefix_length;
    }
};
struct PagedRows {
    const int* pages;
    int page_rows;

    __device__ __forceinline__ int64_t operator()(int position) const {
        return static_cast<int64_t>(pages[position / page_rows]) * page_rows + position % page_rows;
    }
};

// The queries of one sequence under one KV head.
struct Queries {
    // Position of the first row, where the rows lie in q, how many they are.
    int first_position, start, rows;
    int heads, group, head_of_kv, width;

    __device__ __forceinline__ int slots() const { return rows * group; }
    __device__ __forceinline__ int position(int slot) const { return first_position + slot / group; }
    // Row and head as one index.
    __device__ __forceinline__ int64_t place(int slot) const {
        return static_cast<int64_t>(start + slot / group) * heads + head_of_kv * group + slot % group;
    }
    // Copies `count` slots of q, or of something alike, to a tile; zeros past the last slot.
    template <typename T> __device__ __forceinline__ void load(const T* q, int first, int count, float* tile) const {
        for (int row = threadIdx.x / WARP; row < count; row += MAX_THREADS / WARP) {
            int slot = first + row;
            bool there = slot < slots();
            load_row(q + (there ? place(slot) * width : 0), there, width, tile + row * stride_of(width));
        }
    }
};

// Copies keys or values to a tile; zeros behind position `last`.
template <typename T, typename Rows>
__device__ __forceinline__ void load_keys(
    const T* k, Rows rows, int kv_heads, int kv_head, int width, int first, int last, float* tile) {
    for (int row = threadIdx.x / WARP; row < KEYS; row += MAX_THREADS / WARP) {
        int position = first + row;
        bool there = position <= last;
        int64_t place = there ? (rows(position) * kv_heads + kv_head) * width : 0;
        load_row(k + place, there, width, tile + row * stride_of(width));
    }
}

// Adds to each slot's columns its scores times the rows of a tile, in order of position. Columns behind the width read
// whatever lies there and are dropped at the end.
template <int COLUMNS>
__device__ __forceinline__ void accumulate(
    const float* score_tile, const float* row_tile, int stride, int team, int member, int first,
    const int (&limit)[SLOTS_OF_TEAM], float (&result)[SLOTS_OF_TEAM][COLUMNS]) {
    for (int keys = 0; keys < KEYS; keys += 4) {
        float scores[SLOTS_OF_TEAM][4];
#pragma unroll
        for (int r = 0; r < SLOTS_OF_TEAM; ++r) {
            float4 four = quadruple(score_tile + (team + r * TEAMS) * SCORES + keys);
            scores[r][0] = four.x, scores[r][1] = four.y, scores[r][2] = four.z, scores[r][3] = four.w;
        }
#pragma unroll
        for (int key = 0; key < 4; ++key) {
            const float* row = row_tile + (keys + key) * stride;
#pragma unroll
            for (int c = 0; c < COLUMNS; c += 4) {
                float4 four = quadruple(row + column_of(member, c));
                float values[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
                for (int r = 0; r < SLOTS_OF_TEAM; ++r) {
                    // Selected, not multiplied by 0: the values of a later row may be NaN.
                    bool visible = first + keys + key <= limit[r];
#pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        if (visible) result[r][c + i] = fmaf(scores[r][key], values[i], result[r][c + i]);
                    }
                }
            }
        }
    }
}

// A row of `sequences`: prefix start, prefix length, rows start, rows length. A row of `tasks`: sequence, first slot.
__device__ __forceinline__ PackedRows packed_rows(const int* sequence) {
    return {sequence[0], sequence[1], sequence[2]};
}
__device__ __forceinline__ Queries packed_queries(
    const int* sequence, int heads, int kv_heads, int width, int head_of_kv) {
    return {sequence[1], sequence[2], sequence[3], heads, heads / kv_heads, head_of_kv, width};
}
