// Draws one token from each row of logits [N, V]: temperature, then the k most probable, then the smallest set of those
// whose probability reaches p. One block a row; the draw inverts the cumulative sum of the set in order of token id.
//
// Sets are found without sorting: floats are mapped to unsigned keys of the same order, and the border is found bit by
// bit as the largest key at or above which enough tokens (for k) or enough mass (for p) lie. Of tokens on the border
// the lower ids are taken. Randomness is the Philox4x32-10 of src/random.rs; the key comes ready from the host.

#include "common.cuh"

// Of an impossible draw: a NaN among the logits, or none above minus infinity.
constexpr uint32_t NO_TOKEN = 0xffffffffu;
// The key of minus infinity, which no token may have that is drawn.
constexpr unsigned LOWEST_KEY = 0x007fffffu;

// Uniform in [0, 1) from the first two words of the Philox block, 53 bits.
__device__ __forceinline__ double philox_uniform(const uint32_t* counter, uint32_t key0, uint32_t key1) {
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    for (int round = 0; round < 10; ++round) {
        uint32_t high_a = __umulhi(0xD2511F53u, c0), low_a = 0xD2511F53u * c0;
        uint32_t high_b = __umulhi(0xCD9E8D57u, c2), low_b = 0xCD9E8D57u * c2;
        c0 = high_b ^ c1 ^ key0;
        c1 = low_b;
        c2 = high_a ^ c3 ^ key1;
        c3 = low_a;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    uint64_t random = c0 | static_cast<uint64_t>(c1) << 32;
    return static_cast<double>(random >> 11) * (1.0 / 9007199254740992.0);
}

// A key in the order of the floats; zeros of both signs have one.
__device__ __forceinline__ unsigned order_key(float value) {
    unsigned bits = __float_as_uint(value + 0.0f);
    return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float of_order_key(unsigned key) {
    return __uint_as_float((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key);
}

// One row, and what its block shares.
template <typename T> struct Row {
    const T* logits;
    int vocabulary;
    float inverse_temperature, max;
    double* mass_scratch;
    int* int_scratch;

    __device__ __forceinline__ float logit(int token) const { return to_float(logits[token]); }
    // exp(z - max z).
    __device__ __forceinline__ float weight(float logit) const { return expf((logit - max) * inverse_temperature); }

    // How many tokens have a key of at least `key`.
    __device__ __forceinline__ int count(unsigned key) const {
        int found = 0;
        for (int i = threadIdx.x; i < vocabulary; i += blockDim.x) found += order_key(logit(i)) >= key;
        return block_sum(found, int_scratch);
    }
    // The weight of the tokens with a key of at least `key`.
    __device__ __forceinline__ double mass(unsigned key) const {
        double found = 0.0;
        for (int i = threadIdx.x; i < vocabulary; i += blockDim.x) {
            float value = logit(i);
            if (order_key(value) >= key) found += weight(value);
        }
        return block_sum(found, mass_scratch);
    }
};

// The tokens above a key, and the first `ties` of those that have it.
struct Candidates {
    unsigned border;
    int above, ties;
};

template <typename T> __device__ __forceinline__ Candidates most_probable(const Row<T>& row, int k) {
    int all = row.count(LOWEST_KEY + 1);
    if (k <= 0 || k >= all) return {LOWEST_KEY, all, 0};
    unsigned border = 0;
    for (unsigned bit = 0x80000000u; bit != 0; bit >>= 1) {
        if (row.count(border | bit) >= k) border |= bit;
    }
    int above = row.count(border + 1);
    return {border, above, k - above};
}

template <typename T>
__device__ __forceinline__ Candidates reaching(const Row<T>& row, Candidates candidates, float p) {
    double total = row.mass(candidates.border + 1);
    if (candidates.ties > 0) total += candidates.ties * static_cast<double>(row.weight(of_order_key(candidates.border)));
    double target = p * total;
    unsigned border = 0;
    for (unsigned bit = 0x80000000u; bit != 0; bit >>= 1) {
        unsigned key = border | bit;
        double reached = key > candidates.border ? row.mass(key) : total;
        if (reached >= target) border = key;
    }
    int above = row.count(border + 1), most = candidates.ties;
    if (border != candidates.border) most = row.count(border) - above;
    double mass = row.mass(border + 1), weight = row.weight(of_order_key(border));
    int ties = 1;
    while (ties < most && mass + ties * weight < target) ++ties;
    return {border, above, ties < most ? ties : most};
}

// Row n draws with the Philox block of counters [N, 4], row n, under the key. The log-probability is that of the
// renormalised set; a temperature of 0 takes the first of the most probable tokens and gives its log-probability among
// all tokens at temperature 1. Results [N] each.
KERNEL(sample_tokens,
       (const T* logits, const uint32_t* counters, uint32_t* tokens, float* log_probs, uint32_t* candidate_counts,
        int vocabulary, float temperature, int top_k, float top_p, uint32_t key0, uint32_t key1),
       (logits, counters, tokens, log_probs, candidate_counts, vocabulary, temperature, top_k, top_p, key0, key1)) {
    __shared__ float max_scratch[MAX_THREADS / WARP];
    __shared__ double mass_scratch[MAX_THREADS / WARP];
    __shared__ int int_scratch[MAX_THREADS / WARP];
    __shared__ double masses[MAX_THREADS];
    __shared__ int ties_in[MAX_THREADS];
    __shared__ int chosen_run;
    __shared__ double mass_before, total_mass;
    const int64_t n = blockIdx.x;
    const int thread = threadIdx.x, threads = blockDim.x;
    logits += n * vocabulary;

    float max = -INFINITY;
    int broken = 0;
    for (int i = thread; i < vocabulary; i += threads) {
        float value = to_float(logits[i]);
        max = larger(max, value);
        broken |= value != value;
    }
    max = block_max(max, max_scratch);
    broken = block_sum(broken, int_scratch);
    if (broken != 0 || !(fabsf(max) < INFINITY)) {
        if (thread == 0) {
            tokens[n] = NO_TOKEN;
            log_probs[n] = NAN;
            candidate_counts[n] = 0;
        }
        return;
    }

    const bool greedy = temperature == 0.0f;
    Row<T> row{logits, vocabulary, greedy ? 1.0f : 1.0f / temperature, max, mass_scratch, int_scratch};
    Candidates candidates = greedy ? Candidates{order_key(max), 0, 1} : most_probable(row, top_k);
    if (!greedy && top_p < 1.0f) candidates = reaching(row, candidates, top_p);

    // Each thread has a run of neighbouring tokens. First the ties before each run, then the runs' masses.
    const int run = (vocabulary + threads - 1) / threads;
    const int first = thread * run < vocabulary ? thread * run : vocabulary;
    const int last = first + run < vocabulary ? first + run : vocabulary;
    int ties = 0;
    for (int i = first; i < last; ++i) ties += order_key(to_float(logits[i])) == candidates.border;
    __syncthreads();
    ties_in[thread] = ties;
    __syncthreads();
    int ties_before = 0;
    for (int i = 0; i < thread; ++i) ties_before += ties_in[i];
    double mass = 0.0;
    ties = ties_before;
    for (int i = first; i < last; ++i) {
        float value = to_float(logits[i]);
        unsigned key = order_key(value);
        bool taken = key > candidates.border || (key == candidates.border && ties++ < candidates.ties);
        if (taken) mass += row.weight(value);
    }
    masses[thread] = mass;
    __syncthreads();

    const double uniform = philox_uniform(counters + 4 * n, key0, key1);
    const double whole = greedy ? row.mass(LOWEST_KEY + 1) : 0.0;
    if (thread == 0) {
        double total = 0.0;
        for (int i = 0; i < threads; ++i) total += masses[i];
        double target = uniform * total, before = 0.0;
        int found = -1;
        for (int i = 0; i < threads; ++i) {
            if (masses[i] > 0.0) {
                // Rounding may leave the target at the end of all: then the last run that has any mass.
                found = i;
                mass_before = before;
                if (target < before + masses[i]) break;
            }
            before += masses[i];
        }
        chosen_run = found;
        total_mass = total;
    }
    __syncthreads();
    if (thread != chosen_run) return;
    const double target = uniform * total_mass;
    double cumulative = mass_before;
    int token = -1;
    ties = ties_before;
    for (int i = first; i < last; ++i) {
        float value = to_float(logits[i]);
        unsigned key = order_key(value);
        bool taken = key > candidates.border || (key == candidates.border && ties++ < candidates.ties);
        float weight = taken ? row.weight(value) : 0.0f;
        if (weight > 0.0f) {
            token = i;
            cumulative += weight;
            if (target < cumulative) break;
        }
    }
    tokens[n] = static_cast<uint32_t>(token);
    float ln_mass = static_cast<float>(log(greedy ? whole : total_mass));
    log_probs[n] = (to_float(logits[token]) - max) * row.inverse_temperature - ln_mass;
    candidate_counts[n] = static_cast<uint32_t>(candidates.above + candidates.ties);
}
