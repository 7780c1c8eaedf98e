// Causal attention with grouped KV heads, by the online softmax (Milakov and Gimelshein 2018, Dao et al. 2022): over
// packed sequences, forward and backward, and over pages for generation.
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
    // Copies `count` slots of q, or of something alike, to a tile; 0 past the last slot and the last column.
    template <typename T> __device__ __forceinline__ void load(const T* q, int first, int count, float* tile) const {
        const int stride = stride_of(width);
        for (int i = threadIdx.x; i < count * stride; i += MAX_THREADS) {
            int slot = first + i / stride, column = i % stride;
            bool there = slot < slots() && column < width;
            tile[i] = there ? to_float(q[place(slot) * width + column]) : 0.0f;
        }
    }
};

// Copies keys or values to a tile; 0 behind position `last` and the last column.
template <typename T, typename Rows>
__device__ __forceinline__ void load_keys(
    const T* k, Rows rows, int kv_heads, int kv_head, int width, int first, int last, float* tile) {
    const int stride = stride_of(width);
    for (int i = threadIdx.x; i < KEYS * stride; i += MAX_THREADS) {
        int position = first + i / stride, column = i % stride;
        float value = 0.0f;
        if (position <= last && column < width) {
            value = to_float(k[(rows(position) * kv_heads + kv_head) * width + column]);
        }
        tile[i] = value;
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

template <typename T, int COLUMNS, typename Rows>
__device__ __forceinline__ void attend(
    const T* q, const T* k, const T* v, T* out, float* log_sums, Rows rows, Queries queries, int first_slot,
    int kv_heads, float scale) {
    DYNAMIC_SHARED(shared);
    const int width = queries.width, stride = stride_of(width);
    float* q_tile = shared;
    float* kv_tile = q_tile + SLOTS * stride;
    float* p_tile = kv_tile + KEYS * stride;
    const int team = threadIdx.x / TEAM, member = threadIdx.x % TEAM;
    const int slots = queries.slots();

    int limit[SLOTS_OF_TEAM];
    float max[SLOTS_OF_TEAM], sum[SLOTS_OF_TEAM], result[SLOTS_OF_TEAM][COLUMNS];
#pragma unroll
    for (int r = 0; r < SLOTS_OF_TEAM; ++r) {
        int slot = first_slot + team + r * TEAMS;
        limit[r] = slot < slots ? queries.position(slot) : 0;
        max[r] = -INFINITY;
        sum[r] = 0.0f;
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) result[r][c] = 0.0f;
    }
    const int last_slot = first_slot + SLOTS < slots ? first_slot + SLOTS - 1 : slots - 1;
    const int last = queries.position(last_slot);
    queries.load(q, first_slot, SLOTS, q_tile);

    for (int first = 0; first <= last; first += KEYS) {
        __syncthreads();
        load_keys(k, rows, kv_heads, queries.head_of_kv, width, first, last, kv_tile);
        __syncthreads();
        float scores[SLOTS_OF_TEAM][KEYS_OF_MEMBER] = {};
        for (int column = 0; column < width; column += 4) {
            float4 query[SLOTS_OF_TEAM];
#pragma unroll
            for (int r = 0; r < SLOTS_OF_TEAM; ++r) query[r] = quadruple(q_tile + (team + r * TEAMS) * stride + column);
#pragma unroll
            for (int j = 0; j < KEYS_OF_MEMBER; ++j) {
                float4 key = quadruple(kv_tile + (member + j * TEAM) * stride + column);
#pragma unroll
                for (int r = 0; r < SLOTS_OF_TEAM; ++r) scores[r][j] = dot(query[r], key, scores[r][j]);
            }
        }
#pragma unroll
        for (int r = 0; r < SLOTS_OF_TEAM; ++r) {
            float tile_max = -INFINITY;
#pragma unroll
            for (int j = 0; j < KEYS_OF_MEMBER; ++j) {
                bool visible = first + member + j * TEAM <= limit[r];
                scores[r][j] = visible ? scores[r][j] * scale : -INFINITY;
                tile_max = larger(tile_max, scores[r][j]);
            }
            float new_max = larger(max[r], lanes_max<TEAM>(tile_max));
            float kept = expf(max[r] - new_max);
            float tile_sum = 0.0f;
#pragma unroll
            for (int j = 0; j < KEYS_OF_MEMBER; ++j) {
                float p = expf(scores[r][j] - new_max);
                tile_sum += p;
                p_tile[(team + r * TEAMS) * SCORES + member + j * TEAM] = p;
            }
            sum[r] = fmaf(sum[r], kept, lanes_sum<TEAM>(tile_sum));
            max[r] = new_max;
#pragma unroll
            for (int c = 0; c < COLUMNS; ++c) result[r][c] *= kept;
        }
        __syncthreads();
        load_keys(v, rows, kv_heads, queries.head_of_kv, width, first, last, kv_tile);
        __syncthreads();
        accumulate<COLUMNS>(p_tile, kv_tile, stride, team, member, first, limit, result);
    }

#pragma unroll
    for (int r = 0; r < SLOTS_OF_TEAM; ++r) {
        int slot = first_slot + team + r * TEAMS;
        if (slot >= slots) continue;
        int64_t place = queries.place(slot);
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) {
            int column = column_of(member, c);
            if (column < width) out[place * width + column] = from_float<T>(result[r][c] / sum[r]);
        }
        if (log_sums != nullptr && member == 0) log_sums[place] = max[r] + logf(sum[r]);
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

// Block (task, KV head). out [N, H, D], log_sums [N, H]: the logarithm of each slot's sum of exponentials.
SIZED_KERNEL(attention_forward,
             (const T* q, const T* k, const T* v, const int* sequences, const int* tasks, T* out, float* log_sums,
              int heads, int kv_heads, int width, float scale),
             (q, k, v, sequences, tasks, out, log_sums, heads, kv_heads, width, scale)) {
    const int* sequence = sequences + 4 * tasks[2 * blockIdx.x];
    Queries queries = packed_queries(sequence, heads, kv_heads, width, blockIdx.y);
    attend<T, COLUMNS>(q, k, v, out, log_sums, packed_rows(sequence), queries, tasks[2 * blockIdx.x + 1], kv_heads,
                       scale);
}

// The same where keys and values lie in pages [pages, page_rows, G, D]. A row of `requests`: position of the first
// query row, where the rows lie in q, how many they are, where the request's pages stand in `pages`.
SIZED_KERNEL(attention_paged,
             (const T* q, const T* k, const T* v, const int* requests, const int* pages, const int* tasks, T* out,
              int page_rows, int heads, int kv_heads, int width, float scale),
             (q, k, v, requests, pages, tasks, out, page_rows, heads, kv_heads, width, scale)) {
    const int* request = requests + 4 * tasks[2 * blockIdx.x];
    Queries queries{request[0], request[1], request[2], heads, heads / kv_heads, static_cast<int>(blockIdx.y), width};
    PagedRows rows{pages + request[3], page_rows};
    attend<T, COLUMNS>(q, k, v, out, static_cast<float*>(nullptr), rows, queries, tasks[2 * blockIdx.x + 1], kv_heads,
                       scale);
}

// The product of result and gradient of each slot, [N, H]; one warp a slot.
KERNEL(attention_delta, (const T* out, const T* gradient, float* delta, int64_t count, int width),
       (out, gradient, delta, count, width)) {
    int64_t place = global_warp();
    if (place >= count) return;
    float sum = 0.0f;
    for (int column = lane(); column < width; column += WARP) {
        sum = fmaf(to_float(out[place * width + column]), to_float(gradient[place * width + column]), sum);
    }
    sum = warp_sum(sum);
    if (lane() == 0) delta[place] = sum;
}

// With p the probability of a key and u = gradient · value: the score's gradient is p (u - delta), q's is the sum of
// that times scale times the key, in order of position. Block as in the forward pass.
SIZED_KERNEL(attention_backward_queries,
             (const T* q, const T* k, const T* v, const int* sequences, const int* tasks, const T* gradient,
              const float* log_sums, const float* delta, T* dq, int heads, int kv_heads, int width, float scale),
             (q, k, v, sequences, tasks, gradient, log_sums, delta, dq, heads, kv_heads, width, scale)) {
    DYNAMIC_SHARED(shared);
    const int stride = stride_of(width);
    float* q_tile = shared;
    float* gradient_tile = q_tile + SLOTS * stride;
    float* k_tile = gradient_tile + SLOTS * stride;
    float* v_tile = k_tile + KEYS * stride;
    float* score_tile = v_tile + KEYS * stride;
    const int team = threadIdx.x / TEAM, member = threadIdx.x % TEAM;

    const int* sequence = sequences + 4 * tasks[2 * blockIdx.x];
    const int first_slot = tasks[2 * blockIdx.x + 1];
    const PackedRows rows = packed_rows(sequence);
    const Queries queries = packed_queries(sequence, heads, kv_heads, width, blockIdx.y);
    const int slots = queries.slots();

    int limit[SLOTS_OF_TEAM];
    float log_sum[SLOTS_OF_TEAM], slot_delta[SLOTS_OF_TEAM], result[SLOTS_OF_TEAM][COLUMNS];
#pragma unroll
    for (int r = 0; r < SLOTS_OF_TEAM; ++r) {
        int slot = first_slot + team + r * TEAMS;
        limit[r] = slot < slots ? queries.position(slot) : 0;
        log_sum[r] = slot < slots ? log_sums[queries.place(slot)] : 0.0f;
        slot_delta[r] = slot < slots ? delta[queries.place(slot)] : 0.0f;
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) result[r][c] = 0.0f;
    }
    const int last_slot = first_slot + SLOTS < slots ? first_slot + SLOTS - 1 : slots - 1;
    const int last = queries.position(last_slot);
    queries.load(q, first_slot, SLOTS, q_tile);
    queries.load(gradient, first_slot, SLOTS, gradient_tile);

    for (int first = 0; first <= last; first += KEYS) {
        __syncthreads();
        load_keys(k, rows, kv_heads, queries.head_of_kv, width, first, last, k_tile);
        load_keys(v, rows, kv_heads, queries.head_of_kv, width, first, last, v_tile);
        __syncthreads();
        float scores[SLOTS_OF_TEAM][KEYS_OF_MEMBER] = {}, products[SLOTS_OF_TEAM][KEYS_OF_MEMBER] = {};
        for (int column = 0; column < width; column += 4) {
            float4 query[SLOTS_OF_TEAM], given[SLOTS_OF_TEAM];
#pragma unroll
            for (int r = 0; r < SLOTS_OF_TEAM; ++r) {
                query[r] = quadruple(q_tile + (team + r * TEAMS) * stride + column);
                given[r] = quadruple(gradient_tile + (team + r * TEAMS) * stride + column);
            }
#pragma unroll
            for (int j = 0; j < KEYS_OF_MEMBER; ++j) {
                float4 key = quadruple(k_tile + (member + j * TEAM) * stride + column);
                float4 value = quadruple(v_tile + (member + j * TEAM) * stride + column);
#pragma unroll
                for (int r = 0; r < SLOTS_OF_TEAM; ++r) {
                    scores[r][j] = dot(query[r], key, scores[r][j]);
                    products[r][j] = dot(given[r], value, products[r][j]);
                }
            }
        }
#pragma unroll
        for (int r = 0; r < SLOTS_OF_TEAM; ++r) {
#pragma unroll
            for (int j = 0; j < KEYS_OF_MEMBER; ++j) {
                float p = expf(scores[r][j] * scale - log_sum[r]);
                score_tile[(team + r * TEAMS) * SCORES + member + j * TEAM] =
                    p * (products[r][j] - slot_delta[r]) * scale;
            }
        }
        __syncthreads();
        accumulate<COLUMNS>(score_tile, k_tile, stride, team, member, first, limit, result);
    }

#pragma unroll
    for (int r = 0; r < SLOTS_OF_TEAM; ++r) {
        int slot = first_slot + team + r * TEAMS;
        if (slot >= slots) continue;
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) {
            int column = column_of(member, c);
            if (column < width) dq[queries.place(slot) * width + column] = from_float<T>(result[r][c]);
        }
    }
}

// Block (task, KV head): the gradients of at most KEYS neighbouring rows of k and v, one a team.
//
// A row of `tasks`: first row, number of rows, first user, number of users. A row of `users`, the sequences that see
// some of the rows, in order: prefix length, rows start, rows length, then the first and the past-the-end row that it
// sees, and what has to be added to a row to get its position. Sums run over users, then over slots, in order.
SIZED_KERNEL(attention_backward_keys,
             (const T* q, const T* k, const T* v, const int* tasks, const int* users, const T* gradient,
              const float* log_sums, const float* delta, T* dk, T* dv, int heads, int kv_heads, int width, float scale),
             (q, k, v, tasks, users, gradient, log_sums, delta, dk, dv, heads, kv_heads, width, scale)) {
    DYNAMIC_SHARED(shared);
    const int stride = stride_of(width);
    float* k_tile = shared;
    float* v_tile = k_tile + KEYS * stride;
    float* q_tile = v_tile + KEYS * stride;
    float* gradient_tile = q_tile + KEYS * stride;
    float* p_tile = gradient_tile + KEYS * stride;
    float* score_tile = p_tile + KEYS * SCORES;
    const int key = threadIdx.x / TEAM, member = threadIdx.x % TEAM;

    const int* task = tasks + 4 * blockIdx.x;
    const int first_row = task[0], row_count = task[1];
    for (int i = threadIdx.x; i < KEYS * stride; i += MAX_THREADS) {
        int row = i / stride, column = i % stride;
        int64_t place = (static_cast<int64_t>(first_row + row) * kv_heads + blockIdx.y) * width + column;
        bool there = row < row_count && column < width;
        k_tile[i] = there ? to_float(k[place]) : 0.0f;
        v_tile[i] = there ? to_float(v[place]) : 0.0f;
    }
    float key_result[COLUMNS], value_result[COLUMNS];
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) key_result[c] = value_result[c] = 0.0f;

    for (int index = 0; index < task[3]; ++index) {
        const int* user = users + 6 * (task[2] + index);
        const Queries queries{user[0], user[1], user[2], heads, heads / kv_heads, static_cast<int>(blockIdx.y), width};
        const int row = first_row + key, offset = user[5];
        const bool seen = row >= user[3] && row < user[4];
        // The first slot that sees this team's key, and the first that sees any key of the block.
        const int delay = row + offset - queries.first_position;
        const int own_first = delay > 0 ? delay * queries.group : 0;
        const int earliest = (first_row > user[3] ? first_row : user[3]) + offset - queries.first_position;
        const int first = earliest > 0 ? earliest * queries.group : 0;
        const int slots = queries.slots();
        for (int tile = first; tile < slots; tile += KEYS) {
            __syncthreads();
            queries.load(q, tile, KEYS, q_tile);
            queries.load(gradient, tile, KEYS, gradient_tile);
            __syncthreads();
            float scores[KEYS_OF_MEMBER] = {}, products[KEYS_OF_MEMBER] = {};
            for (int column = 0; column < width; column += 4) {
                float4 key_four = quadruple(k_tile + key * stride + column);
                float4 value_four = quadruple(v_tile + key * stride + column);
#pragma unroll
                for (int j = 0; j < KEYS_OF_MEMBER; ++j) {
                    int place = (member + j * TEAM) * stride + column;
                    scores[j] = dot(quadruple(q_tile + place), key_four, scores[j]);
                    products[j] = dot(quadruple(gradient_tile + place), value_four, products[j]);
                }
            }
#pragma unroll
            for (int j = 0; j < KEYS_OF_MEMBER; ++j) {
                int slot = tile + member + j * TEAM;
                int64_t place = queries.place(slot < slots ? slot : tile);
                float p = expf(scores[j] * scale - log_sums[place]);
                p_tile[key * SCORES + member + j * TEAM] = p;
                score_tile[key * SCORES + member + j * TEAM] = p * (products[j] - delta[place]) * scale;
            }
            __syncthreads();
            for (int i = 0; i < KEYS; ++i) {
                bool visible = seen && tile + i >= own_first && tile + i < slots;
                float p = p_tile[key * SCORES + i], of_score = score_tile[key * SCORES + i];
#pragma unroll
                for (int c = 0; c < COLUMNS; c += 4) {
                    float4 query = quadruple(q_tile + i * stride + column_of(member, c));
                    float4 given = quadruple(gradient_tile + i * stride + column_of(member, c));
                    float of_key[4] = {query.x, query.y, query.z, query.w};
                    float of_value[4] = {given.x, given.y, given.z, given.w};
#pragma unroll
                    for (int part = 0; part < 4; ++part) {
                        if (visible) {
                            key_result[c + part] = fmaf(of_score, of_key[part], key_result[c + part]);
                            value_result[c + part] = fmaf(p, of_value[part], value_result[c + part]);
                        }
                    }
                }
            }
        }
    }

    if (key >= row_count) return;
    int64_t place = (static_cast<int64_t>(first_row + key) * kv_heads + blockIdx.y) * width;
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) {
        int column = column_of(member, c);
        if (column >= width) continue;
        dk[place + column] = from_float<T>(key_result[c]);
        dv[place + column] = from_float<T>(value_result[c]);
    }
}
