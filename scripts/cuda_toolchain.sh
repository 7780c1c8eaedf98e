#!/usr/bin/env bash
# Sets up a CUDA compiler from PyPI wheels in a folder, for building with `--features cuda` on a machine without a
# CUDA toolkit and without a GPU. Needs python3, gcc and cargo.
#
# usage: scripts/cuda_toolchain.sh FOLDER
#
# The folder then is a CUDA_HOME. In place of the CUDA libraries it holds small archives whose functions open the real
# library at their first call, so the binary also starts where there is no CUDA.
set -euo pipefail
folder=${1:?usage: scripts/cuda_toolchain.sh FOLDER}
here=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)

# Compiler output must not be newer than the driver understands, and nvcc's own requirements are open-ended.
python3 -m pip install --quiet --no-deps --no-compile --upgrade --target "$folder/wheels" \
  nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88 \
  nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85
home=$folder/wheels/nvidia/cu13
ln -sf libcudart_static.a "$home/lib/libcudart.a"
mkdir -p "$home/lib/stubs"

(cd "$here" && cargo fetch --quiet)
cudarc=$(cd "$here" && cargo metadata --format-version 1 --features cuda |
  python3 -c 'import json,sys; print(next(p["manifest_path"] for p in json.load(sys.stdin)["packages"] if p["name"] == "cudarc"))')
python3 "$here/scripts/cuda_lazy_archives.py" "$(dirname "$cudarc")/src" "$home/lib/stubs"
echo "export CUDA_HOME=$home PATH=$home/bin:\$PATH CUDA_COMPUTE_CAP=\${CUDA_COMPUTE_CAP:-90} CUDAFORGE_THREADS=\${CUDAFORGE_THREADS:-2}" >"$folder/env.sh"
echo "ready: source $folder/env.sh"
