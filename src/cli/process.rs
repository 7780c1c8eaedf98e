//! Settings of the whole process, made before anything else runs.

/// Makes candle and the allocator fit many small updates on threads of our own.
///
/// candle's element-wise operators would share their work over a pool of spinning threads, as many as there are
/// cores, beside the actors that own those cores. And the C allocator would return the memory of each update to the
/// system, to ask for it again at the next.
pub(super) fn prepare() {
    if std::env::var_os("CANDLE_NUM_THREADS").is_none() {
        // SAFETY: this is the first thing the process does, so no other thread can be reading the environment.
        unsafe { std::env::set_var("CANDLE_NUM_THREADS", "1") };
    }
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        const KEEP: i32 = 256 << 20;
        // SAFETY: `mallopt` only sets thresholds of the allocator and may be called at any time.
        unsafe {
            libc::mallopt(libc::M_TRIM_THRESHOLD, KEEP);
            libc::mallopt(libc::M_MMAP_THRESHOLD, KEEP);
        }
    }
}

/// Makes threads that are started from now on share one pool of freed memory.
///
/// The allocator would give each thread a pool of its own, which keeps the activations of a language model, hundreds of
/// megabytes, where other threads cannot use them, or gives them back to the system with every micro-batch. Small
/// networks lose by it, since their threads then wait for each other's many small allocations.
pub(super) fn share_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // SAFETY: `mallopt` only sets a limit of the allocator and may be called at any time.
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, 1);
        }
    }
}

/// Lets the process end quietly when whoever reads its output does, as in `forebay objectives | head`. For commands that
/// only print: a run that writes files and answers sockets goes on.
pub(super) fn end_with_reader() {
    #[cfg(unix)]
    {
        // SAFETY: no handler is installed, only what the system does by default is put back.
        unsafe {
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        }
    }
}
