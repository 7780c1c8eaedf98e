#!/usr/bin/env python3
"""Tells what the steps of token runs were made of, as rows of a table: over the second half of each run's updates, the time
that generation computed and that an update took, passes and answers, and how many updates were made a second.

usage: scripts/steps.py NAME=RUN_DIRECTORY ...
"""

import json
import pathlib
import sys

COLUMNS = ["run", "T_generate, s", "T_train, s", "passes", "answers", "learned from", "updates/s", "evaluation"]


def row(name, run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    lines = [line for line in lines if "passes" in line]
    last = lines[-1]["update"]
    begin = max((line for line in lines if line["update"] <= last // 2), key=lambda line: line["update"])
    lines = [line for line in lines if line["update"] > begin["update"]]
    updates = lines[-1]["update"] - begin["update"]
    seconds = lines[-1]["wall_seconds"] - begin["wall_seconds"]
    total = lambda field: sum(line.get(field, 0) for line in lines)
    passes = sum(line["passes"] * line["merged_updates"] for line in lines) / total("merged_updates")
    groups = total("groups")
    evaluation = json.loads((run / "summary.json").read_text()).get("eval_mean")
    return [
        name,
        f"{total('generate_seconds') / updates:.3f}",
        f"{total('update_seconds') / updates:.3f}",
        f"{passes:.2f}",
        f"{total('answers') / groups:.2f}",
        f"{total('trajectories') / groups:.2f}",
        f"{updates / seconds:.2f}",
        "" if evaluation is None else f"{100 * evaluation:.1f} %",
    ]


def main():
    if len(sys.argv) < 2 or not all("=" in argument for argument in sys.argv[1:]):
        sys.exit(__doc__)
    print("| " + " | ".join(COLUMNS) + " |")
    print("|" + "---|" * len(COLUMNS))
    for argument in sys.argv[1:]:
        name, run = argument.split("=", 1)
        print("| " + " | ".join(row(name, pathlib.Path(run))) + " |")


if __name__ == "__main__":
    main()
