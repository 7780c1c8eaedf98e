#!/usr/bin/env python3
"""Runs the studies behind docs/results.md: one line of JSON for each run, in docs/studies/NAME.jsonl.

usage: scripts/study.py NAME [--binary PATH] [--jobs 1] [--seeds 1,2,3] [--list]

Runs that have their line already are skipped, so an interrupted study goes on where it stood, and a study grows by the
runs that are added to it. Each run uses one core, and what it learns does not depend on how fast the machine is.
"""

import argparse
import concurrent.futures
import json
import pathlib
import subprocess
import sys
import tempfile
import threading

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Objectives with what belongs to them; the rest is the configuration's.
OBJECTIVES = {
    "reinforce": ['learner.loss.objective={ kind = "reinforce" }'],
    "ppo": ['learner.loss.objective={ kind = "ppo" }'],
    "decoupled_ppo": ['learner.loss.objective={ kind = "decoupled_ppo" }'],
    "rloo": ['learner.loss.objective={ kind = "rloo" }', 'learner.advantage={ kind = "rloo" }'],
    "online_dpo": ['learner.loss.objective={ kind = "online_dpo" }'],
    "dis": ['learner.loss.objective={ kind = "dis" }'],
    "four_bound": ['learner.loss.objective={ kind = "four_bound" }'],
    "k3": ['learner.loss.objective={ kind = "k3" }'],
}
WIDER = "model.decoder={ width = 128, inner = 320, layers = 2, heads = 4, kv_heads = 4, head_size = 32, context = 24, rope_theta = 1000.0, tied = false }"


def off_policy():
    for objective, settings in OBJECTIVES.items():
        for staleness in [0, 1, 2, 4, 8, 16]:
            yield {"objective": objective, "staleness": staleness}, [*settings, f"learner.forced_lag={staleness}"]


def model_size():
    """The larger model; the smaller one's runs are those of `off_policy`."""
    for objective in ["ppo", "online_dpo"]:
        for staleness in [0, 4, 16]:
            changes = [WIDER, *OBJECTIVES[objective], f"learner.forced_lag={staleness}"]
            yield {"objective": objective, "staleness": staleness}, changes


def mismatch():
    objectives = {name: OBJECTIVES[name] for name in ["ppo", "dis"]}
    for name in ["tis", "icepop"]:
        objectives[name] = [f'learner.loss.objective={{ kind = "{name}" }}']
    for objective, settings in objectives.items():
        for noise in [0.0, 0.1, 0.3, 1.0]:
            changes = [*settings, f"generate.engine.log_prob_noise={noise}"]
            yield {"objective": objective, "noise": noise}, changes


def value_pretraining():
    """What a critic explains at the first update of the policy, by the answers that it was pretrained on."""
    critic = ['learner.advantage={ kind = "skip_observation_gae" }', 'learner.critic={ trunk = "separate", learning_rate = 1e-3 }']
    for answers in [0, 250, 1000, 4000, 16000]:
        yield {"answers": answers}, [*critic, "learner.group_size=1", "learner.prompts=1024", "stop.updates=1"]


# name: (configuration, runs)
STUDIES = {
    "off_policy": ("configs/studies/off_policy.toml", off_policy),
    "model_size": ("configs/studies/off_policy.toml", model_size),
    "mismatch": ("configs/studies/off_policy.toml", mismatch),
    "value_pretraining": ("configs/studies/off_policy.toml", value_pretraining),
}


def forebay(arguments, changes, result=None):
    command = [*arguments, *(part for change in changes for part in ("--set", change))]
    process = subprocess.run(command, capture_output=True, text=True)
    # A run that failed has a summary that says so.
    if process.returncode != 0 and not (result and result.exists()):
        sys.exit(f"study.py: {' '.join(command)} failed:\n{process.stderr}")


def pretrained(binary, config, folder, answers, changes):
    """A critic that was trained on so many answers of the policy that a run begins with."""
    corpus, critic = f"{folder}/corpus", f"{folder}/critic"
    forebay([binary, "collect", config, "--out", corpus, "--trajectories", "18000"], changes)
    command = [binary, "pretrain-value", config, corpus, "--out", critic, "--trajectories", str(answers), "--epochs", "4"]
    forebay(command, [*changes, "learner.prompts=64"])
    return f'learner.critic.path="{critic}"'


def run(binary, config, labels, changes):
    config = str(ROOT / config)
    changes = [*changes, f"seed={labels['seed']}", "telemetry.listen=off", "telemetry.progress=off"]
    with tempfile.TemporaryDirectory() as folder:
        if labels.get("answers"):
            changes.append(pretrained(binary, config, folder, labels["answers"], changes))
        result = pathlib.Path(folder, "run", "summary.json")
        forebay([binary, "train", config, "--run-dir", f"{folder}/run"], changes, result)
        summary = json.loads(result.read_text())
    figures = ["status", "eval_initial", "eval_mean", "reward_mean", "updates", "lag_mean", "wall_seconds"]
    if "answers" in labels:
        figures.append("explained_variance_initial")
    return {**labels, **{name: summary.get(name) for name in figures}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--binary", default=str(ROOT / "target/release/forebay"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--set", action="append", default=[], help="a setting for all runs, to try something out")
    parser.add_argument("--out", help="another file than docs/studies/NAME.jsonl")
    parser.add_argument("--list", action="store_true", help="only list the runs that are missing")
    arguments = parser.parse_args()
    config, runs = STUDIES[arguments.study]
    out = pathlib.Path(arguments.out or ROOT / "docs" / "studies" / f"{arguments.study}.jsonl")
    out.parent.mkdir(parents=True, exist_ok=True)
    done = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    missing = []
    for seed in map(int, arguments.seeds.split(",")):
        for labels, changes in runs():
            labels = {**labels, "seed": seed}
            if not any(labels.items() <= line.items() for line in done):
                missing.append((labels, [*changes, *arguments.set]))
    print(f"{arguments.study}: {len(done)} runs done, {len(missing)} to do")
    if arguments.list:
        for labels, changes in missing:
            print(labels, changes)
        return
    writing = threading.Lock()

    def one(labels, changes):
        line = json.dumps(run(arguments.binary, config, labels, changes))
        with writing, out.open("a") as file:
            print(line, file=file, flush=True)
            print(line, flush=True)

    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for outcome in [pool.submit(one, *parts) for parts in missing]:
            outcome.result()


if __name__ == "__main__":
    main()
