//! The `forebay` binary: parses the command line and calls the library.

fn main() {}
