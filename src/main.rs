//! The `forebay` binary: hands the command line to the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    forebay::cli::run(forebay::cli::Registries::builtin())
}
