#!/usr/bin/env python3
"""Prints the evaluations of token runs as lines of JSON, for scripts/plot.py.

usage: scripts/curves.py LABEL=RUN_DIRECTORY ...

Each line has the run's label, the update, the minutes since its start (a warm-up included) and the accuracy. The first is
that of the initial policy. The evaluation of the final parameters, which is of other problems, has a line only where the
run ended between two evaluations.
"""

import json
import pathlib
import sys


def evaluations(run):
    """(update, seconds, accuracy) of a run, the earliest of each update."""
    summary = json.loads((run / "summary.json").read_text())
    records = [json.loads(line) for line in (run / "metrics.jsonl").open()]
    records = [record for record in records if record["update"] > 0]
    found = {}
    if summary.get("eval_initial") is not None:
        first = records[0]
        found[0] = (first["wall_seconds"] - first["update_seconds"] - first["starved_seconds"], summary["eval_initial"])
    for record in records:
        accuracy = record.get("eval_mean")
        # The first record also carries what was evaluated before it.
        if accuracy is not None and not (record is records[0] and 0 in found):
            found[record["update"]] = (record["wall_seconds"], accuracy)
    if summary.get("eval_mean") is not None:
        found.setdefault(summary["updates"], (summary["wall_seconds"], summary["eval_mean"]))
    return [(update, *point) for update, point in sorted(found.items())]


def main():
    if len(sys.argv) < 2 or any("=" not in argument for argument in sys.argv[1:]):
        sys.exit(__doc__)
    for label, run in (argument.split("=", 1) for argument in sys.argv[1:]):
        for update, seconds, accuracy in evaluations(pathlib.Path(run)):
            line = {"run": label, "update": update, "minutes": round(seconds / 60, 2), "accuracy": accuracy}
            print(json.dumps(line))


if __name__ == "__main__":
    main()
