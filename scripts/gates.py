#!/usr/bin/env python3
"""Learning gates: trains each preset on several seeds and demands a score of the final parameters.

usage: scripts/gates.py [fast | full | NAME...] [--binary PATH] [--seeds 1,2,3,4,5] [--keep DIR]

The score of a control run is the mean return of 100 greedy episodes with the final parameters (`eval_mean` of
summary.json); steps are those taken by the environments, dropped ones included. The score of a token run is the
accuracy of greedy answers to 500 problems that it did not learn from; it has to start below a bound, after the warm-up,
and to end above another, in time. Every seed must pass. Exits 1 when one does not.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent

# name: (configuration, extra arguments, least score or None, greatest score or None, most environment steps)
GATES = {
    "cartpole": ("configs/control/cartpole.toml", [], 475.0, None, 1_000_000),
    "catch": ("configs/control/catch.toml", [], 0.95, None, 200_000),
    "stateless_cartpole": ("configs/control/stateless_cartpole.toml", [], 400.0, None, 4_000_000),
    "stateless_cartpole_no_memory": (
        "configs/control/stateless_cartpole_no_memory.toml", [], None, 150.0, 4_000_000,
    ),
    "acrobot": ("configs/control/acrobot.toml", [], -100.0, None, 2_000_000),
    "pendulum": ("configs/control/pendulum.toml", [], -200.0, None, 3_000_000),
    "minatar_breakout": ("configs/control/minatar_breakout.toml", [], 8.0, None, 5_000_000),
}
# name: (configuration, extra arguments, accuracy that it starts below, least accuracy at its end, most seconds)
TOKEN_GATES = {
    "reverse": ("configs/token/quickstart.toml", [], 0.3, 0.9, 300.0),
    "experts": ("configs/token/experts.toml", [], 0.8, 0.85, 120.0),
}
FAST = {"cartpole": [1, 2], "catch": [1, 2], "acrobot": [1], "stateless_cartpole": [1], "experts": [1]}


def train(binary, name, config, extra, seed, keep):
    run_dir = pathlib.Path(keep) / f"{name}-{seed}"
    command = [binary, "train", str(ROOT / config), "--run-dir", str(run_dir), "--set", f"seed={seed}"]
    command += ["--set", "telemetry.listen=off", "--set", "telemetry.progress=off", *extra]
    started = time.monotonic()
    process = subprocess.run(command, capture_output=True, text=True)
    if process.returncode != 0:
        sys.exit(f"{' '.join(command)}\nfailed:\n{process.stdout}{process.stderr}")
    return json.loads((run_dir / "summary.json").read_text()), time.monotonic() - started


def run(binary, name, seed, keep):
    if name in TOKEN_GATES:
        return run_token(binary, name, seed, keep)
    config, extra, least, greatest, most_steps = GATES[name]
    summary, seconds = train(binary, name, config, extra, seed, keep)
    score = summary["eval_mean"]
    passed = (least is None or score >= least) and (greatest is None or score <= greatest)
    passed = passed and summary["env_steps"] <= most_steps and summary["status"] == "completed"
    bound = f">= {least}" if least is not None else f"<= {greatest}"
    print(
        f"{name:<30} seed {seed}  score {score:9.2f} ({bound})  {summary['env_steps']:>9} steps"
        f"  {summary['wall_seconds']:7.1f} s  {summary['steps_per_second']:>9.0f} steps/s"
        f"  lag {summary['lag_mean'] or 0:.2f}  total {seconds:.1f} s"
        f"  {'pass' if passed else 'FAIL'}",
        flush=True,
    )
    return passed


def run_token(binary, name, seed, keep):
    config, extra, below, least, most_seconds = TOKEN_GATES[name]
    summary, seconds = train(binary, name, config, extra, seed, keep)
    initial, score = summary["eval_initial"], summary["eval_mean"]
    passed = initial < below and score > least and seconds <= most_seconds and summary["status"] == "completed"
    print(
        f"{name:<30} seed {seed}  accuracy {initial:.3f} (< {below}) to {score:.3f} (> {least})"
        f"  {summary['updates']} updates  {summary['tokens']} tokens  {summary['tokens_per_second']:.0f} tokens/s"
        f"  total {seconds:.1f} s (<= {most_seconds:.0f})  {'pass' if passed else 'FAIL'}",
        flush=True,
    )
    return passed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gates", nargs="*", default=["full"])
    parser.add_argument("--binary", default=os.environ.get("FOREBAY", str(ROOT / "target/release/forebay")))
    parser.add_argument("--seeds", default="1,2,3,4,5")
    parser.add_argument("--keep", help="folder for the run directories (default: a temporary one)")
    arguments = parser.parse_args()
    seeds = [int(seed) for seed in arguments.seeds.split(",")]
    if arguments.gates == ["fast"]:
        plan = FAST
    elif arguments.gates == ["full"]:
        plan = {name: seeds for name in [*GATES, *TOKEN_GATES]}
    else:
        unknown = [name for name in arguments.gates if name not in GATES and name not in TOKEN_GATES]
        if unknown:
            parser.error(f"unknown gate {unknown[0]}; there are: {', '.join([*GATES, *TOKEN_GATES])}")
        plan = {name: seeds for name in arguments.gates}
    with tempfile.TemporaryDirectory() as temporary:
        keep = arguments.keep or temporary
        outcomes = [run(arguments.binary, name, seed, keep) for name, some in plan.items() for seed in some]
    print(f"{sum(outcomes)} passed, {len(outcomes) - sum(outcomes)} failed")
    sys.exit(0 if all(outcomes) else 1)


main()
