#!/usr/bin/env bash
# Compiles every kernel as the build does, then assembles it for the device: a table of the registers and the stack of
# each, and a failure when one spills registers to memory. Needs no GPU.
#
# usage: scripts/check_kernels.sh TOOLCHAIN_FOLDER     (made by scripts/cuda_toolchain.sh)
set -euo pipefail
folder=${1:?usage: scripts/check_kernels.sh TOOLCHAIN_FOLDER}
cd "$(dirname "$0")/.."
# shellcheck disable=SC1091
source "$folder/env.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for source in kernels/*.cu; do
    name=$(basename "$source" .cu)
    nvcc -gencode=arch=compute_90a,code=sm_90a --ptx -O3 -std=c++17 "$source" -o "$work/$name.ptx"
    ptxas -arch=sm_90a -v "$work/$name.ptx" -o /dev/null 2>>"$work/report"
done
python3 - "$work/report" <<'PYTHON'
import re, sys

kernels = []
for line in open(sys.argv[1]):
    if match := re.search(r"Compiling entry function '(\w+)'", line):
        kernels.append({"name": match[1], "registers": 0, "stack": 0, "spilled": 0})
    elif match := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
        kernels[-1]["stack"] = int(match[1])
        kernels[-1]["spilled"] = int(match[2]) + int(match[3])
    elif match := re.search(r"Used (\d+) registers", line):
        kernels[-1]["registers"] = int(match[1])
for kernel in sorted(kernels, key=lambda kernel: -kernel["registers"]):
    print("{name:44} {registers:4} registers {stack:5} bytes of stack {spilled:5} spilled".format(**kernel))
spilling = [kernel["name"] for kernel in kernels if kernel["spilled"]]
print(f"{len(kernels)} kernels, {len(spilling)} spill")
sys.exit(f"these spill: {spilling}" if spilling or not kernels else 0)
PYTHON
