#!/usr/bin/env python3
"""Reads a run's event files with TensorBoard itself and compares them with metrics.jsonl.

Usage: scripts/check_tensorboard.py RUN_DIR        (needs `pip install tensorboard`)

Every compared scalar must be there, at the same environment steps, with the same value as far as 32 bits go. Prints
one line and exits 0, or names the first difference and exits 1.
"""

import json
import pathlib
import struct
import sys

from tensorboard.backend.event_processing.event_accumulator import SCALARS, EventAccumulator

FIELD_OF_TAG = {
    "return/mean_of_100": "return_mean",
    "return/evaluation": "eval_mean",
    "loss/total": "loss",
    "policy/entropy": "entropy",
    "optimiser/gradient_norm": "gradient_norm",
    "lag/mean": "lag_mean",
    "time/update_seconds": "update_seconds",
}


def as_float32(value: float) -> float:
    return struct.unpack("<f", struct.pack("<f", value))[0]


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    run = pathlib.Path(sys.argv[1])
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    events = EventAccumulator(str(run), size_guidance={SCALARS: 0})
    events.Reload()
    tags = events.Tags()["scalars"]
    compared = 0
    for tag, field in FIELD_OF_TAG.items():
        expected = [(line["env_steps"], as_float32(line[field])) for line in lines if field in line]
        written = [(event.step, event.value) for event in events.Scalars(tag)] if tag in tags else []
        if written != expected:
            first = next((pair for pair in zip(written, expected) if pair[0] != pair[1]), None)
            print(f"{tag}: {len(written)} scalars for {len(expected)} lines; first difference {first}")
            return 1
        compared += len(expected)
    if compared == 0:
        print(f"{run}: nothing to compare")
        return 1
    print(f"{run}: {len(tags)} tags, {compared} scalars compared with {len(lines)} lines, all equal")
    return 0


if __name__ == "__main__":
    sys.exit(main())
