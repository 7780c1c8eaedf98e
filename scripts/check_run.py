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

FIELDS = ["status", "cause", "updates", "wall_seconds", "lag_mean", "lag_max", "ledger", "restarts"]
# What a run of each workload counts, and what it scores.
CONTROL = {"produced": "env_steps", "rate": "steps_per_second", "score": "return_mean", "units": ("unrolls", "steps")}
TOKEN = {"produced": "tokens", "rate": "tokens_per_second", "score": "reward_mean", "units": ("trajectories", "tokens")}


def problems(run: pathlib.Path):
    summary = json.loads((run / "summary.json").read_text())
    words = TOKEN if "tokens" in summary else CONTROL
    for field in FIELDS + [words["produced"], words["rate"], words["score"]]:
        if field not in summary:
            yield f"summary.json has no {field}"
            return
    if summary["status"] != "completed":
        yield f"the run {summary['status']}: {summary['cause']}"
    ledger = summary["ledger"]
    for unit in words["units"]:
        kept = sum(ledger[part][unit] for part in ("live", "buffered", "consumed"))
        dropped = sum(amount[unit] for amount in ledger["dropped"].values())
        if kept + dropped != ledger["submitted"][unit]:
            yield f"the ledger does not balance in {unit}: {ledger}"
        if ledger["live"][unit] or ledger["buffered"][unit]:
            yield f"{unit} are live or buffered after the end: {ledger}"
    produced, unit = summary[words["produced"]], words["units"][1]
    if produced != ledger["submitted"][unit]:
        yield f"{produced} {words['produced']}, but {ledger['submitted'][unit]} in the ledger"
    if summary["updates"] == 0 or ledger["consumed"][unit] == 0:
        yield "nothing was learned from"
    score = summary[words["score"]]
    if score is None or not math.isfinite(score):
        yield f"{words['score']} is {score}"

    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    updates = [line["update"] for line in lines]
    # A warm-up's updates are no versions: its lines stay at 0.
    counted = [update for update in updates if update > 0]
    if not counted or counted != sorted(set(counted)) or counted[-1] != summary["updates"]:
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
    words = TOKEN if "tokens" in summary else CONTROL
    produced, score = summary[words["produced"]], summary[words["score"]]
    print(f"{run}: completed, {produced} {words['units'][1]} all accounted for, {words['score']} {score:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
