#!/bin/sh
# Stands in for nvcc where the `cuda` feature is type-checked without a CUDA compiler: answers questions about versions
# and writes empty outputs. What is linked from them is of no use.
#
# usage: scripts/standin_nvcc.sh --install FOLDER     makes FOLDER a CUDA_HOME with this as bin/nvcc
if [ "$1" = --install ]; then
    mkdir -p "$2/bin" "$2/include"
    cp "$0" "$2/bin/nvcc"
    chmod +x "$2/bin/nvcc"
    exit
fi
for argument; do
    case $argument in
        --version)
            printf 'nvcc: stand-in\n\n\nCuda compilation tools, release 13.0, V13.0.88\n'
            exit
            ;;
        --list-gpu-code) echo sm_90; exit ;;
        --ptx) ptx=1 ;;
        *.cu) source=$argument ;;
    esac
done
while [ $# -gt 0 ]; do
    case $1 in
        -o) output=$2; shift ;;
        --output-directory) folder=$2; shift ;;
    esac
    shift
done
if [ "$ptx" ]; then
    : >"${output:-${folder:-.}/$(basename "$source" .cu).ptx}"
else
    case $output in
        *.a) ar rcs "$output" ;;
        *) cc -x c -c /dev/null -o "$output" ;;
    esac
fi
