#!/usr/bin/env python3
"""Makes static archives that stand for the CUDA libraries at link time and open them at the first call.

usage: cuda_lazy_archives.py CUDARC_SOURCE_FOLDER OUTPUT_FOLDER

Every function that cudarc declares becomes a jump through a table. The table first points at a resolver, which opens
the library, looks the function up and patches the table; where the library or the function is missing, the call
returns an error code, as a call on a machine without a device would. x86-64 Linux only.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

# archive, cudarc module, library, error code of a missing function
LIBRARIES = [
    ("cuda", "driver", "libcuda.so.1", 100),
    ("cublas", "cublas", "libcublas.so.13", 1),
    ("cublasLt", "cublaslt", "libcublasLt.so.13", 1),
    ("curand", "curand", "libcurand.so.10", 203),
    ("nvrtc", "nvrtc", "libnvrtc.so.13", 11),
]
INTEGER_REGISTERS = ["rdi", "rsi", "rdx", "rcx", "r8", "r9", "rax"]


def jumps(prefix, functions):
    """Assembly: a table, one jump through it for each function, and the slow path that keeps all arguments."""
    lines = [
        f".hidden {prefix}_table",
        f".globl {prefix}_table",
        '.section .data.rel.local,"aw",@progbits',
        ".align 8",
        f"{prefix}_table:",
        *(f".quad {prefix}_first_{i}" for i in range(len(functions))),
        ".text",
    ]
    for i, name in enumerate(functions):
        # Hidden: the real libraries must not find these names.
        lines += [f".globl {name}", f".hidden {name}", f".type {name},@function"]
        lines += [f"{name}: endbr64", f"jmpq *{prefix}_table+{8 * i}(%rip)"]
        lines += [f"{prefix}_first_{i}: movl ${i},%r11d", f"jmp {prefix}_slow"]
    integers = [(f"%{name}", 8 * i) for i, name in enumerate(INTEGER_REGISTERS)]
    vectors = [(f"%xmm{i}", 64 + 16 * i) for i in range(8)]
    lines += [f"{prefix}_slow: pushq %rbp", "movq %rsp,%rbp", "andq $-16,%rsp", "subq $192,%rsp"]
    lines += [f"movq {register},{at}(%rsp)" for register, at in integers]
    lines += [f"movups {register},{at}(%rsp)" for register, at in vectors]
    lines += ["movl %r11d,%edi", f"call {prefix}_resolve", "movq %rax,%r11"]
    lines += [f"movups {at}(%rsp),{register}" for register, at in vectors]
    lines += [f"movq {at}(%rsp),{register}" for register, at in integers]
    lines += ["movq %rbp,%rsp", "popq %rbp", "jmpq *%r11", '.section .note.GNU-stack,"",@progbits', ""]
    return "\n".join(lines)


def resolver(prefix, library, code, functions):
    """C: opens the library once and patches the table."""
    names = ",".join(f'"{name}"' for name in functions)
    return f"""
#include <dlfcn.h>
#include <pthread.h>
extern void *{prefix}_table[] __attribute__((visibility("hidden")));
static const char *const names[] = {{{names}}};
static void *handle;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static void open_library(void) {{ handle = dlopen("{library}", RTLD_NOW | RTLD_GLOBAL); }}
static int missing(void) {{ return {code}; }}
__attribute__((visibility("hidden"))) void *{prefix}_resolve(int i) {{
  pthread_once(&once, open_library);
  void *found = handle ? dlsym(handle, names[i]) : 0;
  if (!found) found = (void *)missing;
  __atomic_store_n(&{prefix}_table[i], found, __ATOMIC_RELEASE);
  return found;
}}
"""


def main():
    source, output = map(pathlib.Path, sys.argv[1:3])
    output.mkdir(parents=True, exist_ok=True)
    for archive, module, library, code in LIBRARIES:
        functions = set()
        for file in (source / module / "sys").rglob("*.rs"):
            functions |= set(re.findall(r"pub unsafe fn (\w+)", file.read_text()))
        functions = sorted(functions - {"culib", "is_culib_present"})
        prefix = f"lazy_{archive.lower()}"
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "jumps.S").write_text(jumps(prefix, functions))
            (folder / "resolver.c").write_text(resolver(prefix, library, code, functions))
            for name in ("jumps.S", "resolver.c"):
                subprocess.run(["gcc", "-c", "-O1", "-fPIC", name], cwd=folder, check=True)
            target = output.resolve() / f"lib{archive}.a"
            target.unlink(missing_ok=True)
            subprocess.run(["ar", "rcs", str(target), "jumps.o", "resolver.o"], cwd=folder, check=True)
        print(f"lib{archive}.a: {len(functions)} functions")


main()
