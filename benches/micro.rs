//! Micro-benchmarks of the hot paths.

fn main() {
    divan::main();
}
