//! Rows that `compare.py` beside this file times against PyTorch, and `compare_model.py` against transformers: the same
//! networks, sizes and work on both sides.
//!
//! usage: cargo bench --bench peers -- ROW THREADS SECONDS, or model MODEL ROW THREADS PASSES, or save MODEL
//! FOLDER, or peak, or product THREADS
//!
//! Prints as JSON the median, the least and the greatest seconds of a pass, the memory held before the first pass and the
//! greatest held since. A training pass is forward and the gradient of every parameter, from ones for every output; no
//! loss, no optimiser. Rows of a whole model (`language_model.rs`) print what the parts of the fastest pass took.

mod language_model;
mod networks;
mod peak;
mod product;
mod transformer;

use std::time::{Duration, Instant};

use candle_core::Result;
use forebay::ops::with_threads;

/// One timed thing: does one pass.
type Pass = Box<dyn Fn() -> Result<()> + Send>;

fn pass(row: &str) -> Option<Result<Pass>> {
    Some(match row {
        "mlp_forward_64" => networks::mlp(64, false),
        "mlp_forward_512" => networks::mlp(512, false),
        "mlp_training_64" => networks::mlp(64, true),
        "mlp_training_512" => networks::mlp(512, true),
        "minatar_forward_320" => networks::minatar(320, false),
        "minatar_training_320" => networks::minatar(320, true),
        "atari_shallow_160" => networks::atari_shallow(160),
        "atari_shallow_640" => networks::atari_shallow(640),
        "atari_deep_160" => networks::atari_deep(160),
        "atari_deep_640" => networks::atari_deep(640),
        "lstm_training" => networks::lstm(),
        "block_training_64" => transformer::block(8, 64),
        "block_training_256" => transformer::block(8, 256),
        "head_training_1024" => transformer::head(1024),
        "head_training_4096" => transformer::head(4096),
        _ => return None,
    })
}

/// Freed memory is kept for the next pass instead of going back to the system. Beyond what the binary does, all threads
/// share one arena, since those of their own do not keep large blocks.
fn keep_freed_memory() {
    // SAFETY: called before any other thread is started; it only sets limits of the allocator.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 1 << 30);
        libc::mallopt(libc::M_TRIM_THRESHOLD, i32::MAX);
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Memory that the process held when this was made.
struct Memory {
    held: u64,
}

impl Memory {
    /// Forgets the greatest memory so far, which was held while the inputs were made.
    fn held() -> Self {
        let held = status("VmRSS:");
        let _ = std::fs::write("/proc/self/clear_refs", "5");
        Self { held }
    }

    /// Fields of an object: held then, and the greatest held since, in bytes.
    fn json(&self) -> String {
        format!("\"held_bytes\": {}, \"peak_bytes\": {}", self.held, status("VmHWM:"))
    }
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// A line of the process's status, in bytes; 0 where the system does not say.
fn status(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    1024 * kilobytes.unwrap_or(0)
}

fn main() -> anyhow::Result<()> {
    keep_freed_memory();
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    if arguments == ["peak"] {
        peak::print();
        return Ok(());
    }
    if let [product, threads] = arguments.as_slice()
        && product == "product"
    {
        return product::print(threads.parse()?);
    }
    if let [model, path, row, threads, passes] = arguments.as_slice()
        && model == "model"
    {
        return language_model::print(path, row, threads.parse()?, passes.parse()?);
    }
    if let [save, path, folder] = arguments.as_slice()
        && save == "save"
    {
        return language_model::save(path, folder);
    }
    let [row, threads, seconds] = arguments.as_slice() else {
        // `cargo test --benches` calls without arguments.
        println!("usage: cargo bench --bench peers -- ROW THREADS SECONDS (see benches/peers/compare.py)");
        return Ok(());
    };
    let pass = pass(row).ok_or_else(|| anyhow::anyhow!("no row `{row}`"))??;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.parse()?).build()?;
    let limit = Duration::from_secs_f64(seconds.parse()?);
    let memory = Memory::held();
    let times = with_threads(&pool, move || -> Result<Vec<f64>> {
        pass()?;
        let begin = Instant::now();
        let mut times = Vec::new();
        while times.len() < 3 || begin.elapsed() < limit {
            let start = Instant::now();
            pass()?;
            times.push(start.elapsed().as_secs_f64());
        }
        Ok(times)
    });
    let mut times = times?;
    let median = median(&mut times);
    println!(
        "{{\"median\": {median:e}, \"least\": {:e}, \"greatest\": {:e}, \"passes\": {}, {}}}",
        times[0],
        times[times.len() - 1],
        times.len(),
        memory.json()
    );
    Ok(())
}
