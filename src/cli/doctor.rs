//! `forebay doctor`: what this machine offers and what this binary makes of it.

use std::process::ExitCode;

use crate::actors::devices;

pub(super) fn run() -> ExitCode {
    println!("forebay {}", env!("CARGO_PKG_VERSION"));
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    println!("  processor cores    {cores}");
    println!("  vector units       {}", vector_units());
    println!("  feature cuda       {}", if cfg!(feature = "cuda") { "built in" } else { "not built in" });
    for name in ["cpu", "cuda:0"] {
        match devices::open(name) {
            Ok(_) => println!("  device {name:<12}usable"),
            Err(error) => println!("  device {name:<12}{error}"),
        }
    }
    if let Ok(threads) = std::env::var("RAYON_NUM_THREADS") {
        println!("  RAYON_NUM_THREADS  {threads} (the learner uses learner.threads instead)");
    }
    ExitCode::SUCCESS
}

fn vector_units() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    {
        if std::arch::is_x86_feature_detected!("avx512f") {
            return if cfg!(feature = "avx512") {
                "AVX-512 (used)"
            } else {
                "AVX2 and FMA (used); AVX-512 is there, but this build is without the feature avx512"
            };
        }
        if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
            return "AVX2 and FMA (used); no AVX-512";
        }
        "SSE2 only: matrix products will be slow"
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        "those of the target architecture"
    }
}
