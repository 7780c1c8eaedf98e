#!/usr/bin/env python3
"""Distils three domain experts, each of three efforts, into one student, and tells the reward of all nine cells.

usage: scripts/mopd.py [--binary PATH] [--seeds 1,2,3] [--work DIR] [--table]

For each seed, with configs/studies/mopd.toml:
  start     learns from demonstrations of all domains, which show as much of their work as the effort allows, or less, and
            takes a first small step of reinforcement learning
  sums, products, extremes
            an expert for each domain: reinforcement learning from the start, on that domain alone
  student   learns from the start by `mopd` on all domains, each answer taught by its domain's expert
  mixed     for comparison: reinforcement learning from the start on all domains, for as many updates as the student

A run adds one line of JSON to docs/studies/mopd.jsonl. Runs that have their line and, where a later run needs it, their
directory are skipped, so an interrupted study goes on where it stood. --table only prints the table of docs/results.md.
The reward of a cell is that of the study: 1 for a right answer, 0 for a wrong one, -1 for one over its budget; over greedy
answers to problems that nothing was learned from. Each run uses one core.
"""

import argparse
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
CONFIG = ROOT / "configs/studies/mopd.toml"
OUT = ROOT / "docs/studies/mopd.jsonl"
SETTINGS = tomllib.loads(CONFIG.read_text())
PARTS = {part["source"]: part for part in SETTINGS["task"]["options"]["parts"]}
EFFORTS = SETTINGS["learner"]["efforts"]
BASE = SETTINGS["learner"]["shaping"]["effort_budget"]["base"]
STAGES = ["start", *PARTS, "student", "mixed"]
# What demonstrations show of their work, and their shares.
STYLES = [(3, {"steps": True}), (2, {"steps": True, "every": 2}), (1, {"steps": False})]


def toml(value):
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {toml(item)}" for name, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def mixture(parts):
    return "task=" + toml({"name": "mixture", "options": {"parts": parts}})


def settings(stage, folder):
    """What a run has beside the configuration."""
    if stage == "start":
        shown = [
            {**part, "weight": weight, "options": {**part["options"], **style}}
            for part in PARTS.values()
            for weight, style in STYLES
        ]
        warmup = toml({"updates": 800, "batch": 128, "learning_rate": 5e-3})
        return [mixture(shown), f"warmup={warmup}", "stop.updates=1"]
    changes = [f"model={toml({'path': str(folder / 'start-model')})}"]
    if stage in PARTS:
        changes += [mixture([PARTS[stage]]), "evaluation.final_problems=600"]
    if stage == "student":
        teachers = [{"source": source, "path": str(folder / source)} for source in PARTS]
        changes += ['learner.loss.objective={ kind = "mopd" }', f"learner.teachers={toml(teachers)}"]
    return changes


def forebay(binary, *arguments):
    process = subprocess.run([binary, *map(str, arguments)], capture_output=True, text=True)
    if process.returncode != 0:
        sys.exit(f"mopd.py: forebay {' '.join(map(str, arguments))}\n{process.stdout}{process.stderr}")
    return process.stdout


def cells(answers):
    """Mean reward and length of each source and effort."""
    limits = {effort["name"]: effort["tau"] * BASE for effort in EFFORTS}
    found = {}
    for answer in answers:
        reward = -1.0 if answer["tokens"] > limits[answer["effort"]] else answer["reward"]
        found.setdefault((answer["source"], answer["effort"]), []).append((reward, answer["tokens"]))
    return [
        {
            "source": source,
            "effort": effort,
            "reward": statistics.fmean(reward for reward, _ in of_cell),
            "tokens": statistics.fmean(tokens for _, tokens in of_cell),
            "problems": len(of_cell),
        }
        for (source, effort), of_cell in sorted(found.items())
    ]


def run(binary, stage, seed, folder, changes):
    run_dir = folder / stage
    command = ["train", CONFIG, "--run-dir", run_dir, "--resume"]
    for change in [f"seed={seed}", "telemetry.listen=off", "telemetry.progress=off", *settings(stage, folder), *changes]:
        command += ["--set", change]
    forebay(binary, *command)
    summary = json.loads((run_dir / "summary.json").read_text())
    if summary["status"] != "completed":
        sys.exit(f"mopd.py: {run_dir}: {summary['cause']}")
    if stage == "start":
        model = folder / "start-model"
        shutil.rmtree(model, ignore_errors=True)
        forebay(binary, "export", run_dir, model)
    answers = json.loads(forebay(binary, "eval", run_dir, "--json"))["answers"]
    figures = ["updates", "warmup_updates", "wall_seconds", "reward_mean"]
    return {"run": stage, "seed": seed, **{name: summary[name] for name in figures}, "cells": cells(answers)}


def table(lines):
    """Mean reward over seeds, and the least and the greatest."""
    rewards = {}
    for line in lines:
        for cell in line["cells"]:
            rewards.setdefault((line["run"], cell["source"], cell["effort"]), []).append(cell["reward"])

    def shown(stage, source, effort):
        of_seeds = rewards.get((stage, source, effort))
        if not of_seeds:
            return ""
        spread = f" ({min(of_seeds):.2f} to {max(of_seeds):.2f})" if len(of_seeds) > 1 else ""
        return f"{statistics.fmean(of_seeds):.2f}{spread}"

    print("| domain | effort | start | its expert | student | all at once |\n|---|---|---|---|---|---|")
    for source in PARTS:
        for effort in (effort["name"] for effort in EFFORTS):
            row = [shown(stage, source, effort) for stage in ["start", source, "student", "mixed"]]
            print(f"| {source} | {effort} | {' | '.join(row)} |")
    means = []
    for stages in [["start"], list(PARTS), ["student"], ["mixed"]]:
        of_stage = [cell["reward"] for line in lines if line["run"] in stages for cell in line["cells"]]
        means.append(f"{statistics.fmean(of_stage):.2f}" if of_stage else "")
    print(f"| mean | | {' | '.join(means)} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=str(ROOT / "target/release/forebay"))
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--work", default=str(ROOT / "runs/mopd"), help="where run directories go")
    parser.add_argument("--set", action="append", default=[], help="a setting for all runs, to try something out")
    parser.add_argument("--out", default=str(OUT), help="another file than docs/studies/mopd.jsonl")
    parser.add_argument("--table", action="store_true", help="only print the table")
    arguments = parser.parse_args()
    out = pathlib.Path(arguments.out)
    lines = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    if arguments.table:
        table(lines)
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    for seed in map(int, arguments.seeds.split(",")):
        folder = pathlib.Path(arguments.work) / str(seed)
        done = {line["run"] for line in lines if line["seed"] == seed}
        complete = done >= set(STAGES)
        for stage in STAGES:
            if stage in done and (complete or (folder / stage / "summary.json").exists()):
                continue
            line = run(arguments.binary, stage, seed, folder, arguments.set)
            lines = [other for other in lines if (other["run"], other["seed"]) != (stage, seed)] + [line]
            out.write_text("".join(json.dumps(line) + "\n" for line in lines))
            print(f"seed {seed}, {stage}: {line['wall_seconds']:.0f} s", *(round(c["reward"], 2) for c in line["cells"]))
    table(lines)


if __name__ == "__main__":
    main()
