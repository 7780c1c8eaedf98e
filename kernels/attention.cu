// Causal attention by the online softmax (Milakov and Gimelshein 2018, Dao et al. 2022): over packed sequences, and over
// pages for generation. attention.cuh says how the work is laid out.

#include "attention.cuh"

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
