#!/usr/bin/env python3
"""What schedules make of a long tail of lengths, on this machine: tables for docs/results.md.

usage: scripts/long_tail.py speed|resume|bias [--binary PATH] [--rounds 3] [--keep FOLDER]

speed   trained tokens a second of systems that cut rounds, against `sync`; systems take turns, the median counts
resume  the same of what an interrupted answer keeps: prefix computed again, KV kept, nothing (begun anew)
bias    length of what is learned from in the first updates of a pool that samples refill, against the steady length

All use configs/studies/long_tail.toml. Run it on an idle machine.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
CONFIG = ROOT / "configs/studies/long_tail.toml"
# Updates that are not counted: rounds are not what they will be.
FIRST = 10

# As many answers in flight and as short rounds as give updates of some 8 answers, which is what `sync` has.
K3 = ['system="kimi_k3"', "learner.prompts=3", "schedule.round_end.lambda=0.66"]
# Every token that is consumed is learned from.
K15 = ['system="kimi_k1_5"', "learner.max_token_age=1000000"]
SPEED = {
    "`sync`": ['system="sync"'],
    "`april`": ['system="april"'],
    "`kimi_k1_5`, 32 tokens a round": [*K15, "schedule.round_end.tokens=32", "schedule.admission.pool=12"],
    "`kimi_k1_5`, 16 tokens a round": [*K15, "schedule.round_end.tokens=16", "schedule.admission.pool=16"],
    "the same, KV kept": [*K15, "schedule.round_end.tokens=16", "schedule.admission.pool=16", 'schedule.resume.mode="keep_kv"'],
    "`kimi_k3`": K3,
    "`areal`": ['system="areal"'],
}
RESUME = {
    "reprefill": [*K3, 'schedule.resume.mode="reprefill"'],
    "keep_kv": [*K3, 'schedule.resume.mode="keep_kv"'],
    "restart": [*K3, 'schedule.resume.mode="reprefill"', 'schedule.on_update="discard"'],
}
# A pool of four batches that samples refill, rounds that end with a batch, whatever its age.
POOL = ['system="deepseek_v4_1"', 'schedule.resume.mode="keep_kv"', "schedule.round_end.max_old_fraction=1.0",
        "schedule.consume.short_drop.updates=0", "learner.max_token_age=100"]
SHORT, LONG = ('{{ name = "long_tail", source = "{0}", options = {{ median = {1}, prompts = 0.6, answers = 0.6, cap = 512 }} }}'.format(*part)
               for part in [("short", 8), ("long", 32)])
TWO = ['task.name="mixture"', f"task.options={{ parts = [{SHORT}, {LONG}] }}"]
BIAS = {
    "none": POOL,
    "short_drop": [*POOL, "schedule.consume.short_drop.updates=5"],
    "two sources": [*POOL, *TWO],
    "two sources, caps": [*POOL, *TWO, 'schedule.sources=[{ name = "short", cap = 16 }, { name = "long", cap = 16 }]'],
}


def train(binary, changes, folder):
    command = [str(binary), "train", str(CONFIG), "--trace", "--run-dir", str(folder)]
    command += [part for change in changes for part in ("--set", change)]
    process = subprocess.run(command, capture_output=True, text=True)
    if process.returncode:
        sys.exit(f"long_tail.py: {' '.join(command)} failed:\n{process.stderr}")
    lines = (folder / "trace.jsonl").read_text().splitlines()
    entries = [json.loads(line) for line in lines[1:]]
    return json.loads((folder / "summary.json").read_text()), entries, metrics(folder)


def metrics(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def measured(entries):
    """Figures of the updates that count."""
    updates = [(entry["at"], entry["update"]) for entry in entries if "update" in entry]
    (start, _), counted = updates[FIRST - 1], [update for _, update in updates[FIRST:]]
    seconds = updates[-1][0] - start
    engines = [entry["statistics"] for entry in entries if "engine" in entry and entry["at"] > start]
    total = lambda name: sum(engine[name] for engine in engines)
    steps = [engine[kind] for engine in engines for kind in ("alone", "beside")]
    tokens = sum(update["tokens"] for update in counted)
    return {
        "tokens_per_second": tokens / seconds,
        "seconds_per_update": seconds / len(counted),
        "learning_seconds": sum(update["learning_seconds"] for update in counted) / len(counted),
        "answers": sum(update["answers"] for update in counted) / len(counted),
        "old_fraction": sum(update["old_tokens"] for update in counted) / tokens,
        "lag_mean": sum(update["lag_mean"] * update["tokens"] for update in counted) / tokens,
        "lag_max": max(update["lag_max"] for update in counted),
        "batch": sum(step["sequences"] for step in steps) / max(1, sum(step["steps"] for step in steps)),
        "prefill_share": total("prefill_seconds") / max(1e-9, total("prefill_seconds") + sum(step["seconds"] for step in steps)),
        "sampled_per_trained": total("sampled") / tokens,
    }


def sensitivity(entries):
    """Seconds of a decode step as t0 + t1 n, by least squares over all steps."""
    steps = [entry["statistics"][kind] for entry in entries if "engine" in entry for kind in ("alone", "beside")]
    total = lambda name: sum(step[name] for step in steps)
    count, n, nn, s, ns = (total(name) for name in ("steps", "sequences", "squares", "seconds", "products"))
    slope = (count * ns - n * s) / (count * nn - n * n)
    return (s - slope * n) / count, slope


def rounds_of(variants, arguments, folder):
    """Every variant once in each round, so that a machine that grows slow is slow for all."""
    found = {name: [] for name in variants}
    for turn in range(arguments.rounds):
        for name, changes in variants.items():
            run = folder / f"{''.join(letter for letter in name.replace(' ', '_') if letter not in '`,')}-{turn}"
            found[name].append(train(arguments.binary, [*changes, f"seed={turn + 1}"], run))
            print(f"{name} {turn + 1}/{arguments.rounds}", file=sys.stderr, flush=True)
    return found


def middle(runs, name):
    return statistics.median(measured(entries)[name] for _, entries, _ in runs)


def speed(arguments, folder):
    found = rounds_of(SPEED, arguments, folder)
    reference = found["`sync`"]
    base = middle(reference, "tokens_per_second")
    t0, t1 = sensitivity([entry for _, entries, _ in reference for entry in entries])
    print(f"A decode step takes {1e6 * t0:.0f} us and {1e6 * t1:.2f} us for each sequence: one of 8 as long as "
          f"{(t0 + 8 * t1) / (t0 + t1):.1f} of 1.\n")
    print("| system | trained tokens/s | least and most | to `sync` | answers an update | s an update | of it learning "
          "| sequences a step | prefill | old tokens | lag, mean and greatest |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for name, runs in found.items():
        rates = sorted(measured(entries)["tokens_per_second"] for _, entries, _ in runs)
        print(f"| {name} | {middle(runs, 'tokens_per_second'):.0f} | {rates[0]:.0f}, {rates[-1]:.0f} "
              f"| {middle(runs, 'tokens_per_second') / base:.2f} | {middle(runs, 'answers'):.1f} "
              f"| {middle(runs, 'seconds_per_update'):.3f} | {middle(runs, 'learning_seconds'):.3f} "
              f"| {middle(runs, 'batch'):.1f} | {100 * middle(runs, 'prefill_share'):.0f} % | {100 * middle(runs, 'old_fraction'):.0f} % "
              f"| {middle(runs, 'lag_mean'):.2f}, {middle(runs, 'lag_max'):.0f} |")


def resume(arguments, folder):
    found = rounds_of(RESUME, arguments, folder)
    print("| an interrupted answer | trained tokens/s | sampled for each trained token | prefill, share of the engine's time "
          "| log-prob difference, one version | after a change of weights |")
    print("|---|---|---|---|---|---|")
    for name, runs in found.items():
        # The study learns a head alone, on which no key or value depends; here everything learns.
        changes = [*RESUME[name], "learner.check_every=5", "model.frozen=[]", "stop.updates=30"]
        _, _, records = train(arguments.binary, changes, folder / f"{name}-all")
        most = lambda field: max((record.get(field) or 0.0 for record in records), default=0.0)
        print(f"| `{name}` | {middle(runs, 'tokens_per_second'):.0f} | {middle(runs, 'sampled_per_trained'):.2f} "
              f"| {100 * middle(runs, 'prefill_share'):.1f} % | {most('log_prob_difference'):.1e} "
              f"| {most('kept_kv_log_prob_difference'):.1e} |")


def bias(arguments, folder):
    found = rounds_of(BIAS, arguments, folder)
    print("| control | mean length of updates 1, 2, 3, 4, 5 as a share of the steady one | steady, tokens |")
    print("|---|---|---|")
    for name, runs in found.items():
        # Steady: the last half of the updates of all rounds.
        lengths = [[record["response_length_mean"] for record in records if record.get("response_length_mean")]
                   for _, _, records in runs]
        steady = statistics.mean(length for run in lengths for length in run[len(run) // 2:])
        early = [statistics.mean(run[place] for run in lengths) / steady for place in range(5)]
        print(f"| {name} | {', '.join(f'{100 * share:.0f} %' for share in early)} | {steady:.0f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["speed", "resume", "bias"])
    parser.add_argument("--binary", type=pathlib.Path, default=ROOT / "target/release/forebay")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", type=pathlib.Path, help="folder for the runs, which stay; must not exist")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or pathlib.Path(temporary) / "runs"
        folder.mkdir(parents=True)
        {"speed": speed, "resume": resume, "bias": bias}[arguments.what](arguments, folder)


if __name__ == "__main__":
    main()
