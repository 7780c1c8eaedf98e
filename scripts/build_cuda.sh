#!/usr/bin/env bash
# Builds stripped binaries with the `cuda` feature: target/cuda/release/forebay, which also runs where there is no CUDA,
# and target/cuda/release/gpu_check, which checks the build on a device.
#
# usage: scripts/build_cuda.sh TOOLCHAIN_FOLDER     (made by scripts/cuda_toolchain.sh)
set -euo pipefail
folder=${1:?usage: scripts/build_cuda.sh TOOLCHAIN_FOLDER}
cd "$(dirname "$0")/.."
# shellcheck disable=SC1091
source "$folder/env.sh"
export CARGO_PROFILE_RELEASE_STRIP=true
cargo build --release --features cuda --target-dir target/cuda "${@:2}"
ls -l target/cuda/release/forebay target/cuda/release/gpu_check
