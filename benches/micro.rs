//! Micro-benchmarks of the hot paths: environments, operators, the learner's mathematics.

#[path = "micro/environments.rs"]
mod environments;
#[path = "micro/learner.rs"]
mod learner;
#[path = "micro/minatar.rs"]
mod minatar;
#[path = "micro/ops.rs"]
mod ops;

fn main() {
    divan::main();
}
