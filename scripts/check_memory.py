#!/usr/bin/env python3
"""Shows that memory stays flat when the learner is far slower than the actors.

usage: scripts/check_memory.py [--binary PATH] [--seconds 300] [--delay 0.01]

Trains CartPole with every update delayed (about tenfold), samples the resident memory of the process from the tenth
second on, and demands: growth under 5 MB, producers that were blocked most of the time, a balanced ledger.
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
MOST_GROWTH = 5e6
WARM_UP_SECONDS = 10


def resident_bytes(pid):
    pages = pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=str(ROOT / "target/release/forebay"))
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--delay", type=float, default=0.01, help="delay of every update, seconds")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = pathlib.Path(folder) / "run"
        fault = f'[{{ kind = "slow_update", at = 1, every = 1, seconds = {arguments.delay} }}]'
        settings = [f"faults={fault}", f"stop={{ seconds = {arguments.seconds} }}", "telemetry.listen=off"]
        settings += ["telemetry.progress=off", "queue.capacity=4", "evaluation.final_episodes=0"]
        command = [arguments.binary, "train", str(ROOT / "configs/quickstart.toml"), "--run-dir", str(run)]
        command += [part for setting in settings for part in ("--set", setting)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        samples = []
        started = time.monotonic()
        while process.poll() is None:
            elapsed = time.monotonic() - started
            if elapsed >= WARM_UP_SECONDS:
                try:
                    samples.append(resident_bytes(process.pid))
                except (FileNotFoundError, IndexError):
                    break
            time.sleep(0.5)
        if process.wait() != 0:
            sys.exit("the run failed")
        summary = json.loads((run / "summary.json").read_text())
        blocked = sum(json.loads(line)["blocked_seconds"] for line in (run / "metrics.jsonl").open())
    growth = max(samples) - samples[0]
    ledger = summary["ledger"]
    parts = [ledger["live"], ledger["buffered"], ledger["consumed"], *ledger["dropped"].values()]
    balanced = all(ledger["submitted"][unit] == sum(part[unit] for part in parts) for unit in ("unrolls", "steps"))
    share = blocked / (2 * summary["wall_seconds"])
    print(
        f"{summary['wall_seconds']:.0f} s, {summary['updates']} updates, {summary['env_steps']} steps: resident memory"
        f" {samples[0] / 1e6:.1f} MB after {WARM_UP_SECONDS} s, growth {growth / 1e6:.2f} MB over"
        f" {len(samples)} samples; producers blocked {share:.0%} of their time;"
        f" ledger {'balanced' if balanced else 'NOT BALANCED'}"
    )
    if growth >= MOST_GROWTH or share < 0.5 or not balanced:
        sys.exit("failed")


main()
