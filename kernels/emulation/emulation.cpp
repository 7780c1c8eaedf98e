// Runs the kernels on the CPU: the scheduler of emulation.hpp, and every kernel.

#include "emulation.hpp"

#include <setjmp.h>
#include <ucontext.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace emulation {

Index thread_index, block_index, block_size, grid_size;
float* shared_memory;

namespace {

constexpr size_t STACK_BYTES = 128 * 1024;
constexpr size_t SHARED_LIMIT = 227 * 1024;

enum class State { Ready, AtBlockBarrier, AtWarpBarrier, Ended };

struct Fiber {
    State state;
    bool started;
    jmp_buf place;
    ucontext_t entry;
    std::unique_ptr<char[]> stack;
};

// Volatile where a jump must not lose it.
std::vector<Fiber> fibers;
std::vector<uint64_t> exchanged;
jmp_buf scheduler;
volatile unsigned current;
void (*running)(void**);
void** running_arguments;
std::string error;

std::map<std::string, void (*)(void**)>& kernels() {
    static std::map<std::string, void (*)(void**)> all;
    return all;
}

void enter() {
    running(running_arguments);
    fibers[current].state = State::Ended;
    _longjmp(scheduler, 1);
}

void wait(State barrier) {
    fibers[current].state = barrier;
    if (_setjmp(fibers[current].place) == 0) _longjmp(scheduler, 1);
}

// Runs one fiber until it ends or waits.
void resume(unsigned index) {
    current = index;
    thread_index = {index, 0, 0};
    Fiber& fiber = fibers[index];
    if (_setjmp(scheduler) != 0) return;
    if (fiber.started) _longjmp(fiber.place, 1);
    fiber.started = true;
    setcontext(&fiber.entry);
}

// Opens the barrier of `[first, last)` when all of its threads that have not ended wait there.
bool release(unsigned first, unsigned last, State barrier) {
    unsigned waiting = 0, ended = 0;
    for (unsigned i = first; i < last; ++i) {
        waiting += fibers[i].state == barrier;
        ended += fibers[i].state == State::Ended;
    }
    if (waiting == 0 || waiting + ended < last - first) return false;
    if (barrier == State::AtWarpBarrier && (ended > 0 || last - first < 32)) {
        error = "a warp's exchange names lanes that have ended or do not exist";
        return false;
    }
    for (unsigned i = first; i < last; ++i) {
        if (fibers[i].state == barrier) fibers[i].state = State::Ready;
    }
    return true;
}

// Runs the warp that starts at a thread as far as it comes without the others: a barrier that is missing between warps
// shows most when one of them is far ahead. Whether it came any further.
bool run_warp(unsigned first, unsigned threads, bool backwards) {
    const unsigned last = std::min(first + 32, threads);
    bool any = false;
    for (bool progress = true; progress && error.empty(); any |= progress) {
        progress = false;
        for (unsigned step = 0; step < last - first; ++step) {
            unsigned index = backwards ? last - 1 - step : first + step;
            if (fibers[index].state != State::Ready) continue;
            resume(index);
            progress = true;
        }
        progress |= release(first, last, State::AtWarpBarrier);
    }
    return any;
}

void run_block(unsigned threads, bool backwards) {
    for (unsigned i = 0; i < threads; ++i) {
        Fiber& fiber = fibers[i];
        fiber.state = State::Ready;
        fiber.started = false;
        getcontext(&fiber.entry);
        fiber.entry.uc_stack.ss_sp = fiber.stack.get();
        fiber.entry.uc_stack.ss_size = STACK_BYTES;
        fiber.entry.uc_link = nullptr;
        makecontext(&fiber.entry, enter, 0);
    }
    const unsigned warps = (threads + 31) / 32;
    for (;;) {
        bool progress = false;
        for (unsigned step = 0; step < warps; ++step) {
            progress |= run_warp((backwards ? warps - 1 - step : step) * 32, threads, backwards);
        }
        progress |= release(0, threads, State::AtBlockBarrier);
        if (!error.empty()) return;
        if (progress) continue;
        for (unsigned i = 0; i < threads; ++i) {
            if (fibers[i].state != State::Ended) {
                error = "threads wait for each other at different barriers";
                return;
            }
        }
        return;
    }
}

}  // namespace

void block_barrier() { wait(State::AtBlockBarrier); }
void warp_barrier() { wait(State::AtWarpBarrier); }
uint64_t& exchange(unsigned lane) { return exchanged[thread_index.x / 32 * 32 + lane]; }
void add_kernel(const char* name, void (*call)(void**)) { kernels()[name] = call; }

}  // namespace emulation

// Runs a kernel; null, or what went wrong, until the next call. Not for two threads at once.
extern "C" const char* forebay_emulate(
    const char* name, const unsigned* grid, unsigned threads, unsigned shared_bytes, void** arguments, int backwards) {
    using namespace emulation;
    error.clear();
    auto found = kernels().find(name);
    if (found == kernels().end()) return "there is no such kernel";
    if (threads == 0 || threads > 1024 || shared_bytes > SHARED_LIMIT) return "the launch is outside a device's limits";
    if (grid[1] > 65535 || grid[2] > 65535) return "the grid is outside a device's limits";
    while (fibers.size() < threads) {
        fibers.emplace_back();
        fibers.back().stack.reset(new char[STACK_BYTES]);
    }
    exchanged.resize(1024);
    running = found->second;
    running_arguments = arguments;
    block_size = {threads, 1, 1};
    grid_size = {grid[0], grid[1], grid[2]};
    std::vector<float> shared(shared_bytes / sizeof(float));
    shared_memory = shared.data();
    for (unsigned z = 0; z < grid[2]; ++z) {
        for (unsigned y = 0; y < grid[1]; ++y) {
            for (unsigned x = 0; x < grid[0]; ++x) {
                std::fill(shared.begin(), shared.end(), NAN);
                block_index = {x, y, z};
                run_block(threads, backwards != 0);
                if (!error.empty()) return error.c_str();
            }
        }
    }
    return nullptr;
}

#include "../norm.cu"
#include "../rotary.cu"
#include "../swiglu.cu"
#include "../embedding.cu"
#include "../attention.cu"
#include "../attention_backward.cu"
#include "../categorical.cu"
#include "../log_prob.cu"
#include "../experts.cu"
#include "../sampling.cu"
#include "../scan.cu"
#include "../optimizer.cu"
#include "../lstm.cu"
#include "../gaussian.cu"
#include "broken.hpp"
