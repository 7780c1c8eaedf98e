// The backward pass of packed attention (Dao et al. 2022): probabilities are computed again from the kept log-sums; one
// pass over blocks of queries for the gradient of q, one over blocks of keys for those of k and v. attention.cuh says
// how the work is laid out.

#include "attention.cuh"

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
        // A team reads the scores that itself has written.
        __syncwarp();
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
    for (int row = threadIdx.x / WARP; row < KEYS; row += MAX_THREADS / WARP) {
        bool there = row < row_count;
        int64_t place = there ? (static_cast<int64_t>(first_row + row) * kv_heads + blockIdx.y) * width : 0;
        load_row(k + place, there, width, k_tile + row * stride);
        load_row(v + place, there, width, v_tile + row * stride);
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
            // A team reads the scores that itself has written.
            __syncwarp();
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
