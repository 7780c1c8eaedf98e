//! Micro-benchmarks of the hot paths.

#[path = "micro/learner.rs"]
mod learner;

fn main() {
    divan::main();
}
