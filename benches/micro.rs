//! Micro-benchmarks of the hot paths: actors, environments, operators, the learner's mathematics.

#[path = "micro/actors.rs"]
mod actors;
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
