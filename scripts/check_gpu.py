#!/usr/bin/env python3
"""Checks placement on a CUDA device: the learner and central inference on `cuda:0` against the CPU, and how fast.

usage: scripts/check_gpu.py [--binary target/cuda/release/forebay] [--json FILE] [--seconds 25]

Agreement: a serial run of a few updates with the learner on the device must end with nearly the parameters of the
same run on the CPU. Training: whole runs with learner and inference on the device must learn. Needs numpy.
"""

import argparse
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import time

import numpy

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Largest difference of a parameter after the updates, relative to the largest parameter of its tensor.
TOLERANCE = 2e-3
UPDATES = 3
QUIET = ["telemetry.listen=off", "telemetry.progress=off", "telemetry.tensorboard=false"]
ON_DEVICE = ['devices.learner="cuda:0"']
CENTRAL = ['rollout.inference="central"', 'devices.inference=["cuda:0"]']


def train(binary, preset, run, settings, serial=False):
    command = [binary, "train", str(ROOT / f"configs/control/{preset}.toml"), "--run-dir", str(run)]
    command += ["--serial"] if serial else []
    command += [part for setting in QUIET + settings for part in ("--set", setting)]
    started = time.monotonic()
    process = subprocess.run(command, capture_output=True, text=True)
    if process.returncode != 0:
        return {"preset": preset, "error": process.stderr.strip().splitlines()[-1:]}
    summary = json.loads((run / "summary.json").read_text())
    summary["total_seconds"] = time.monotonic() - started
    return summary


def parameters(run):
    (checkpoint,) = sorted((run / "checkpoints").iterdir())[-1:]
    data = (checkpoint / "parameters.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        tensors[name] = numpy.frombuffer(data[8 + length + first : 8 + length + last], dtype="<f4")
    return tensors


def agreement(binary, preset, folder):
    short = [f"stop={{ updates = {UPDATES} }}", "evaluation.final_episodes=0", "learner.schedule.kind=constant"]
    runs = {}
    for name, settings in (("cpu", []), ("cuda", ON_DEVICE)):
        outcome = train(binary, preset, folder / f"{preset}-{name}", short + settings, serial=True)
        if "error" in outcome:
            return {"preset": preset, **outcome, "passed": False}
        runs[name] = parameters(folder / f"{preset}-{name}")
    worst = max(
        float(numpy.abs(runs["cpu"][name] - runs["cuda"][name]).max() / max(numpy.abs(runs["cpu"][name]).max(), 1e-3))
        for name in runs["cpu"]
    )
    return {"preset": preset, "largest_relative_difference": worst, "passed": worst <= TOLERANCE}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=str(ROOT / "target/cuda/release/forebay"))
    parser.add_argument("--json", help="file for the figures")
    parser.add_argument("--seconds", type=float, default=25, help="length of each training run")
    arguments = parser.parse_args()
    report = {"doctor": subprocess.run([arguments.binary, "doctor"], capture_output=True, text=True).stdout}
    print(report["doctor"])
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    report["card"] = subprocess.run(query, capture_output=True, text=True).stdout.strip()
    print(report["card"], flush=True)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        report["agreement"] = []
        for preset in ("cartpole", "minatar_breakout", "stateless_cartpole", "pendulum"):
            outcome = agreement(arguments.binary, preset, folder)
            report["agreement"].append(outcome)
            print("agreement", outcome, flush=True)
        report["training"] = []
        limit = [f"stop={{ seconds = {arguments.seconds} }}", "evaluation.final_episodes=20"]
        wide = ["rollout.actors=8", "rollout.envs_per_actor=128"]
        for name, preset, settings in (
            ("learner", "cartpole", ON_DEVICE),
            ("learner and central inference", "cartpole", ON_DEVICE + CENTRAL + wide),
            ("learner and central inference", "minatar_breakout", ON_DEVICE + CENTRAL + wide),
            ("learner and central inference", "stateless_cartpole", ON_DEVICE + CENTRAL + wide),
            ("cpu", "minatar_breakout", []),
        ):
            outcome = train(arguments.binary, preset, folder / f"run{len(report['training'])}", limit + settings)
            fields = ("error", "status", "env_steps", "updates", "steps_per_second", "return_mean", "eval_mean", "lag_mean")
            line = {"on_device": name, "preset": preset, **{key: outcome[key] for key in fields if key in outcome}}
            report["training"].append(line)
            print("training", line, flush=True)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(report, indent=2) + "\n")
    failed = [line for line in report["agreement"] if not line["passed"]]
    failed += [line for line in report["training"] if line.get("status") != "completed"]
    print(f"{len(report['agreement']) + len(report['training']) - len(failed)} passed, {len(failed)} failed")
    sys.exit(1 if failed else 0)


main()
