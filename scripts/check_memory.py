#!/usr/bin/env python3
"""Shows that memory stays flat in long runs.

usage: scripts/check_memory.py [control|token] [--binary PATH] [--seconds 300] [--delay 0.01]

control: trains CartPole with every update delayed (about tenfold), samples the resident memory of the process from the
tenth second on, and demands: growth under 5 MB, producers that were blocked most of the time, a balanced ledger.

token: trains the language model of configs/token/quickstart.toml asynchronously, its KV cache kept over updates, samples
the resident memory from the thirtieth second on, and demands: growth under 20 MB, a balanced ledger.
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
CHECKS = {
    "control": {
        "config": "configs/quickstart.toml",
        "settings": ["queue.capacity=4", "evaluation.final_episodes=0"],
        "warm_up_seconds": 10,
        "most_growth": 5e6,
        "units": ("unrolls", "steps"),
    },
    "token": {
        "config": "configs/token/quickstart.toml",
        "settings": ['schedule={ kind = "async", lead = 2, resume = "keep_kv" }', "evaluation.final_problems=0"],
        "warm_up_seconds": 30,
        "most_growth": 20e6,
        "units": ("trajectories", "tokens"),
    },
}


def resident_bytes(pid):
    pages = pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def sampled(process, warm_up_seconds):
    """Resident memory twice a second until the process ends, what it does at first left out."""
    samples = []
    started = time.monotonic()
    while process.poll() is None:
        if time.monotonic() - started >= warm_up_seconds:
            try:
                samples.append(resident_bytes(process.pid))
            except (FileNotFoundError, IndexError):
                break
        time.sleep(0.5)
    if process.wait() != 0:
        sys.exit("the run failed")
    return samples


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", nargs="?", choices=CHECKS, default="control")
    parser.add_argument("--binary", default=str(ROOT / "target/release/forebay"))
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--delay", type=float, default=0.01, help="delay of every update of control, seconds")
    arguments = parser.parse_args()
    control = arguments.workload == "control"
    check = CHECKS[arguments.workload]
    with tempfile.TemporaryDirectory() as folder:
        run = pathlib.Path(folder) / "run"
        settings = [*check["settings"], f"stop={{ seconds = {arguments.seconds} }}", "telemetry.listen=off"]
        settings += ["telemetry.progress=off"]
        if control:
            fault = f'[{{ kind = "slow_update", at = 1, every = 1, seconds = {arguments.delay} }}]'
            settings.append(f"faults={fault}")
        command = [arguments.binary, "train", str(ROOT / check["config"]), "--run-dir", str(run)]
        command += [part for setting in settings for part in ("--set", setting)]
        samples = sampled(subprocess.Popen(command, stdout=subprocess.DEVNULL), check["warm_up_seconds"])
        summary = json.loads((run / "summary.json").read_text())
        lines = [json.loads(line) for line in (run / "metrics.jsonl").open()]
    growth = max(samples) - samples[0]
    ledger = summary["ledger"]
    parts = [ledger["live"], ledger["buffered"], ledger["consumed"], *ledger["dropped"].values()]
    balanced = all(ledger["submitted"][unit] == sum(part[unit] for part in parts) for unit in check["units"])
    thing, amount = check["units"]
    print(
        f"{summary['wall_seconds']:.0f} s, {summary['updates']} updates, {ledger['submitted'][thing]} {thing} of"
        f" {ledger['submitted'][amount]} {amount}: resident memory {samples[0] / 1e6:.1f} MB after"
        f" {check['warm_up_seconds']} s, growth {growth / 1e6:.2f} MB over {len(samples)} samples;"
        f" ledger {'balanced' if balanced else 'NOT BALANCED'}"
    )
    failed = growth >= check["most_growth"] or not balanced
    if control:
        share = sum(line["blocked_seconds"] for line in lines) / (2 * summary["wall_seconds"])
        print(f"producers blocked {share:.0%} of their time")
        failed |= share < 0.5
    if failed:
        sys.exit("failed")


main()
