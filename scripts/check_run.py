#!/usr/bin/env python3
"""Checks that a run completed and that its directory is whole.

Usage: scripts/check_run.py RUN_DIR

The run must have met its stop condition, its ledger must balance with nothing live or buffered, and the files that a
run leaves must be there and readable. Prints one line and exits 0, or names what is wrong and exits 1.
"""

import json
import math
import pathlib
import sys

FIELDS = [
    "status", "cause", "updates", "env_steps", "wall_seconds", "steps_per_second", "return_mean", "lag_mean",
    "lag_max", "ledger", "restarts",
]


def problems(run: pathlib.Path):
    summary = json.loads((run / "summary.json").read_text())
    for field in FIELDS:
        if field not in summary:
            yield f"summary.json has no {field}"
            return
    if summary["status"] != "completed":
        yield f"the run {summary['status']}: {summary['cause']}"
    ledger = summary["ledger"]
    for unit in ("unrolls", "steps"):
        kept = sum(ledger[part][unit] for part in ("live", "buffered", "consumed"))
        dropped = sum(amount[unit] for amount in ledger["dropped"].values())
        if kept + dropped != ledger["submitted"][unit]:
            yield f"the ledger does not balance in {unit}: {ledger}"
        if ledger["live"][unit] or ledger["buffered"][unit]:
            yield f"{unit} are live or buffered after the end: {ledger}"
    if summary["env_steps"] != ledger["submitted"]["steps"]:
        yield f"{summary['env_steps']} environment steps, but {ledger['submitted']['steps']} in the ledger"
    if summary["updates"] == 0 or ledger["consumed"]["steps"] == 0:
        yield "nothing was learned from"
    if summary["return_mean"] is None or not math.isfinite(summary["return_mean"]):
        yield f"the mean return is {summary['return_mean']}"

    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    updates = [line["update"] for line in lines]
    if not updates or updates != sorted(set(updates)) or updates[-1] != summary["updates"]:
        yield f"metrics.jsonl does not go through to update {summary['updates']} in order"

    if not (run / "report.html").read_text().rstrip().endswith("</html>"):
        yield "report.html is not whole"
    if not (run / "config.toml").read_text().strip():
        yield "config.toml is empty"
    checkpoints = sorted(path.name for path in (run / "checkpoints").iterdir() if not path.name.startswith("."))
    if not checkpoints or int(checkpoints[-1]) != summary["updates"]:
        yield f"no checkpoint of update {summary['updates']} among {checkpoints}"


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    run = pathlib.Path(sys.argv[1])
    found = list(problems(run))
    for problem in found:
        print(f"{run}: {problem}", file=sys.stderr)
    if found:
        return 1
    summary = json.loads((run / "summary.json").read_text())
    print(f"{run}: completed, {summary['env_steps']} steps all accounted for, return {summary['return_mean']:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
