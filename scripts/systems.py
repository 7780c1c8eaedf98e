#!/usr/bin/env python3
"""Trains every preset of configs/systems, asserts what its system promises, and prints the table of docs/results.md.

usage: scripts/systems.py [--binary PATH] [--seeds 1,2,3] [--only NAME,...] [--work DIR] [--jobs 1] [--table]

`impala` is CartPole, with its own table: the return of 100 greedy episodes, of which 475 are asked.

A run adds one line of JSON to docs/studies/systems.jsonl. Runs that have their line already are skipped, so an
interrupted study goes on where it stood; --table only prints the tables. What a system promises is asserted from the
run's own books (metrics.jsonl, one line for each update, and summary.json); a run that breaks it ends the study with the
numbers.

The synchronous schedule of a preset's own model is its baseline: `sync` for the dense model, `sync_experts` and
`sync_mixture` for those with experts, which are the presets of deepseek_v4_1 and mimo_v2_6 with `system = "sync"`, the
latter without its quotas.
"""

import argparse
import collections
import concurrent.futures
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
CONFIGS = ROOT / "configs/systems"
OUT = ROOT / "docs/studies/systems.jsonl"

# run: (preset, changes, model)
RUNS = {
    "impala": ("impala", [], "control"),
    "sync": ("sync", [], "dense"),
    "one_step": ("one_step", [], "dense"),
    "kimi_k1_5": ("kimi_k1_5", [], "dense"),
    "april": ("april", [], "dense"),
    "areal": ("areal", [], "dense"),
    "kimi_k3": ("kimi_k3", [], "dense"),
    "sync_experts": ("deepseek_v4_1", ['system="sync"'], "experts"),
    "deepseek_v4_1": ("deepseek_v4_1", [], "experts"),
    "glm_sao": ("glm_sao", [], "experts"),
    "sync_mixture": ("mimo_v2_6", ['system="sync"', "schedule.sources=[]"], "mixture"),
    "mimo_v2_6": ("mimo_v2_6", [], "mixture"),
}
# Mean reward of an evaluation that every system has to reach, by model.
THRESHOLDS = {"control": 475.0, "dense": 0.64, "experts": 0.62, "mixture": 0.60}
# Every update a line of its own.
COMMON = ['telemetry.listen="off"', 'telemetry.progress="off"', "telemetry.tensorboard=false", "telemetry.lines_per_second=1000000"]


class Books:
    """What a finished run says of itself."""

    def __init__(self, run_dir):
        self.summary = json.loads((run_dir / "summary.json").read_text())
        lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
        self.evaluations = [(line["update"], line["eval_mean"]) for line in lines if "eval_mean" in line]
        self.updates = [line for line in lines if line.get("trajectories", 0) > 0]
        self.warm = max((line["wall_seconds"] for line in lines if "warmup_loss" in line), default=0.0)
        self.config = tomllib.loads((run_dir / "config.toml").read_text())

    def lags(self):
        """Consumed tokens by lag, over the run."""
        found = collections.Counter()
        for line in self.updates:
            found.update(dict(map(tuple, line["lag"])))
        return found

    def older(self, lag):
        return sum(tokens for age, tokens in self.lags().items() if age > lag)

    def mean(self, field, lines=None):
        found = [line[field] for line in (lines or self.updates) if line.get(field) is not None]
        return statistics.fmean(found) if found else None

    def dropped(self):
        return {reason: amount["trajectories"] for reason, amount in self.summary["ledger"]["dropped"].items()}


def lag_is(of_update):
    def check(books):
        for index, line in enumerate(books.updates):
            found = {lag for lag, _ in line["lag"]}
            if found != {of_update(index)}:
                return f"update {line['update']} consumed tokens of lags {sorted(found)}"

    return check


def lag_at_most(most):
    return lambda books: None if (found := max(books.lags())) <= most else f"a consumed token is {found} updates old"


def none_learned_older(lag):
    """Tokens left out of the loss for their age are exactly those that are too old."""

    def check(books):
        older, masked = books.older(lag), books.summary["token_fates"].get("age", 0)
        return None if older == masked else f"{older} consumed tokens are older than {lag}, {masked} were masked for their age"

    return check


def whole_batches(books):
    size = (books.config["learner"]["prompts"], books.config["learner"]["group_size"])
    for line in books.updates:
        if (line["groups"], line["answers"]) != (size[0], size[0] * size[1]):
            return f"update {line['update']} took {line['groups']} groups and {line['answers']} answers"


def quotas(books):
    wanted = {source["name"]: source["quota"] for source in books.config["schedule"]["sources"]}
    for line in books.updates:
        if line["sources"] != wanted:
            return f"update {line['update']} took {line['sources']} groups, and the quotas are {wanted}"


def nothing_thrown_away(books):
    other = {reason: count for reason, count in books.dropped().items() if reason != "shutdown"}
    return f"dropped: {other}" if other else None


def within_pool(books):
    pool, most = books.config["schedule"]["admission"]["pool"], max(line["in_flight_max"] for line in books.updates)
    return None if most <= pool else f"{most} answers were in flight, and the pool has {pool} places"


INVARIANTS = {
    "impala": [],
    "sync": [lag_is(lambda _: 0), whole_batches],
    "one_step": [lag_is(lambda index: min(index, 1)), whole_batches],
    "kimi_k1_5": [none_learned_older(0), within_pool],
    "april": [whole_batches, nothing_thrown_away],
    "areal": [lag_at_most(8), whole_batches],
    "deepseek_v4_1": [none_learned_older(4), within_pool, whole_batches],
    "glm_sao": [lag_at_most(8), within_pool, whole_batches],
    "mimo_v2_6": [lag_at_most(4), within_pool, whole_batches, quotas],
    "kimi_k3": [within_pool],
}


def balanced(books):
    ledger = books.summary["ledger"]
    for unit in ledger["submitted"]:
        left = sum(amount[unit] for amount in ledger["dropped"].values())
        parts = [ledger[state][unit] for state in ("live", "buffered", "consumed")]
        if ledger["submitted"][unit] != sum(parts) + left:
            return f"the ledger's {unit} do not add up: {ledger}"


def check(run, books):
    system = "sync" if run.startswith("sync") else run
    for invariant in [balanced, *INVARIANTS[system]]:
        if why := invariant(books):
            sys.exit(f"systems.py: {run} broke its promise: {why}")


def figures(run, books):
    model = RUNS[run][2]
    summary, updates = books.summary, books.updates
    seconds = updates[-1]["wall_seconds"] - books.warm
    busy = {name: sum(line[f"{name}_seconds"] for line in updates) for name in ("generate", "update")}
    reached = next((update for update, reward in books.evaluations if reward >= THRESHOLDS[model]), None)
    at = dict(books.evaluations)
    tokens = sum(books.lags().values())
    learned = updates[-max(len(updates) // 4, 1) :]
    return {
        "updates": summary["updates"],
        "seconds": seconds,
        "overlap": max(busy.values()) / seconds,
        "answers_per_update": books.mean("answers"),
        "consumed_tokens": tokens,
        "lag_mean": summary["lag_mean"],
        "lag_max": summary["lag_max"],
        "old_tokens": books.older(0) / tokens,
        "learned": summary["token_fates"]["learned"] / tokens,
        "dropped": {reason: count for reason, count in books.dropped().items() if reason != "shutdown"},
        "initial": summary["eval_initial"],
        "final": summary["eval_mean"],
        "reached": reached,
        "at_100": at.get(100),
        "distinct": books.mean("distinct_answer_fraction", learned),
        "length_spread": books.mean("group_length_spread"),
        "group_wait": books.mean("group_wait_seconds"),
        "expert_disagreement": books.mean("expert_disagreement"),
        "in_flight_max": max(line["in_flight_max"] for line in updates),
    }


def train(binary, run, seed, work):
    preset, changes, _ = RUNS[run]
    with tempfile.TemporaryDirectory(dir=work) as folder:
        run_dir = pathlib.Path(folder) / "run"
        command = [binary, "train", CONFIGS / f"{preset}.toml", "--run-dir", run_dir]
        for change in [f"seed={seed}", *COMMON, *changes]:
            command += ["--set", change]
        process = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        if process.returncode != 0:
            sys.exit(f"systems.py: {run}, seed {seed}:\n{process.stderr}")
        books = Books(run_dir)
        if books.summary["status"] != "completed":
            sys.exit(f"systems.py: {run}, seed {seed}: {books.summary['cause']}")
        check(run, books)
        if run == "impala":
            names = ["updates", "env_steps", "wall_seconds", "lag_mean", "lag_max", "return_mean", "eval_mean"]
            return {"run": run, "seed": seed, **{name: books.summary[name] for name in names}}
        return {"run": run, "seed": seed, **figures(run, books)}


def span(lines, field, form="{:.2f}"):
    found = [line[field] for line in lines if line[field] is not None]
    return form.format(statistics.fmean(found)) if found else "–"


def table(lines):
    of = {run: [line for line in lines if line["run"] == run] for run in RUNS}
    if control := of.pop("impala"):
        print("| run | updates | environment steps | seconds | lag mean / max | evaluation |")
        print("|---|---|---|---|---|---|")
        scores = ", ".join(f"{line['eval_mean']:.1f}" for line in sorted(control, key=lambda line: line["seed"]))
        print(
            f"| `impala` | {span(control, 'updates', '{:.0f}')} | {span(control, 'env_steps', '{:,.0f}')} "
            f"| {span(control, 'wall_seconds', '{:.1f}')} "
            f"| {span(control, 'lag_mean')} / {max(line['lag_max'] for line in control)} | {scores} |\n"
        )
    print("| run | updates | answers an update | seconds | overlap | lag mean / max | old tokens | learned | dropped |")
    print("|---|---|---|---|---|---|---|---|---|")
    for run, own in of.items():
        if own:
            drops = collections.Counter()
            for line in own:
                drops.update(line["dropped"])
            total = sum(line["answers_per_update"] * line["updates"] for line in own)
            drops = ", ".join(f"{reason} {100 * count / total:.1f} %" for reason, count in drops.items()) or "none"
            print(
                f"| `{run}` | {own[0]['updates']} | {span(own, 'answers_per_update', '{:.0f}')} | {span(own, 'seconds', '{:.0f}')} "
                f"| {span(own, 'overlap')} | {span(own, 'lag_mean')} / {max(line['lag_max'] for line in own)} "
                f"| {100 * statistics.fmean(line['old_tokens'] for line in own):.0f} % "
                f"| {100 * statistics.fmean(line['learned'] for line in own):.0f} % | {drops} |"
            )
    print("\n| run | start | after 100 updates | end | threshold | reached at update | distinct answers | length spread | experts that changed |")
    print("|---|---|---|---|---|---|---|---|---|")
    for run, own in of.items():
        if own:
            reached = ", ".join(str(line["reached"] or "never") for line in sorted(own, key=lambda line: line["seed"]))
            experts = span(own, "expert_disagreement", "{:.1%}")
            print(
                f"| `{run}` | {span(own, 'initial')} | {span(own, 'at_100')} | {span(own, 'final')} | {THRESHOLDS[RUNS[run][2]]:.2f} "
                f"| {reached} | {span(own, 'distinct')} | {span(own, 'length_spread')} | {experts} |"
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=str(ROOT / "target/release/forebay"))
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--only", default=",".join(RUNS))
    parser.add_argument("--work", type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    lines = [json.loads(line) for line in OUT.read_text().splitlines()] if OUT.exists() else []
    if arguments.table:
        return table(lines)
    done = {(line["run"], line["seed"]) for line in lines}
    wanted = [(run, seed) for seed in map(int, arguments.seeds.split(",")) for run in arguments.only.split(",")]
    lock = threading.Lock()

    def one(wanted):
        run, seed = wanted
        if wanted not in done:
            line = train(arguments.binary, run, seed, arguments.work)
            with lock, OUT.open("a") as out:
                out.write(json.dumps(line) + "\n")
                lines.append(line)
                print(f"{run}, seed {seed}: {line.get('final', line.get('eval_mean')):.3f}", file=sys.stderr)

    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(one, wanted))
    table(lines)


if __name__ == "__main__":
    main()
