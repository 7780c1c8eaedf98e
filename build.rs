//! Compiles `kernels/*.cu`: to PTX for the feature `cuda`, as plain C++ for the feature `kernel-emulation`. Without
//! either there is nothing to build.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=kernels");
    #[cfg(feature = "cuda")]
    compile_for_devices();
    #[cfg(feature = "kernel-emulation")]
    compile_for_this_machine();
}

/// `$OUT_DIR/ptx.rs` gets a constant with the PTX of each file.
#[cfg(feature = "cuda")]
fn compile_for_devices() {
    let folder = std::path::PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    cudaforge::KernelBuilder::new()
        .source_dir("kernels")
        .arg("-O3")
        .arg("-std=c++17")
        .build_ptx()
        .and_then(|kernels| kernels.write(folder.join("ptx.rs")))
        .expect("nvcc compiles the kernels (scripts/cuda_toolchain.sh sets it up)");
}

/// A static library of all kernels, with the scheduler that runs them. `CXX` chooses the compiler.
#[cfg(feature = "kernel-emulation")]
fn compile_for_this_machine() {
    use std::process::Command;
    let folder = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".into());
    println!("cargo:rerun-if-env-changed=CXX");
    let run = |command: &mut Command| {
        let status = command.status().unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
        assert!(status.success(), "{command:?} failed");
    };
    // The fibers jump between stacks, which fortified jumps take for an error; products are not contracted, so that the
    // figures do not depend on the compiler.
    let flags = "-std=c++17 -O2 -fPIC -ffp-contract=off -U_FORTIFY_SOURCE -Wall -Wextra \
                 -Wno-unknown-pragmas -Wno-unused-function -DFOREBAY_EMULATION";
    let object = format!("{folder}/emulation.o");
    run(Command::new(compiler).args(flags.split_whitespace()).args([
        "-c",
        "kernels/emulation/emulation.cpp",
        "-o",
        &object,
    ]));
    let library = format!("{folder}/libforebay_emulation.a");
    let _ = std::fs::remove_file(&library);
    run(Command::new("ar").args(["rcs", &library, &object]));
    println!("cargo:rustc-link-search=native={folder}");
    println!("cargo:rustc-link-lib=static=forebay_emulation");
    println!("cargo:rustc-link-lib=stdc++");
}
