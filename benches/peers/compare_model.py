#!/usr/bin/env python3
"""Times a whole language model against transformers, side by side, and writes the table to docs/performance.md.

usage: benches/peers/compare_model.py [--model FILE.gguf] [--rows NAME,...] [--rounds 2] [--passes 2] [--threads 2]
                                      [--prefix COMMAND] [--write]

Needs torch and transformers in the Python that runs it, and a model: by default the one that scripts/get_smollm2.sh
prints. Each row is timed in turn by `cargo bench --bench peers` and by this script, each in a process of its own, round
after round, so that a slow moment of the machine meets both; the fastest pass of each side counts. Both sides do the
same work on the same token ids in f32: see language_model.rs for ours, the functions below for transformers' (eager
mode, `sdpa` attention, the fused AdamW).
"""

import argparse
import json
import os
import pathlib
import platform
import shlex
import subprocess
import sys
import tempfile
import time

import torch
from torch.nn import functional as F

from compare import BEGIN, END, PAGE, ROOT, build, processor

NAME = "language model"
# Rows of a micro-batch, tokens of a prompt, new tokens of the decode rows and of the GRPO step.
ROWS, PROMPT, NEW, ANSWER = 512, 45, 64, 32


def ids(sequences, length, vocabulary):
    """Made-up tokens, the same as in language_model.rs."""
    token = lambda s, t: ((s + 1) * 7919 + (t + 1) * 104_729) % (vocabulary - 1000) + 500
    return torch.tensor([[token(s, t) for t in range(length)] for s in range(sequences)])


class Clock:
    """Notes when the logits of each new token are there; for `generate`."""

    def __init__(self):
        self.times = []

    def __call__(self, _, scores):
        self.times.append(time.perf_counter())
        return scores


def generate(model, prompts, new, clock=None):
    from transformers import GenerationConfig, LogitsProcessorList

    # Sampling from the whole distribution, and no end before the last token.
    settings = GenerationConfig(
        do_sample=True, temperature=1.0, top_k=0, top_p=1.0, max_new_tokens=new, eos_token_id=None, pad_token_id=0
    )
    mask = torch.ones_like(prompts)
    processors = LogitsProcessorList([clock] if clock else [])
    return model.generate(prompts, attention_mask=mask, generation_config=settings, logits_processor=processors)


def decode(model, batch):
    prompts = ids(batch, PROMPT, model.config.vocab_size)

    def run():
        clock = Clock()
        with torch.inference_mode():
            generate(model, prompts, NEW, clock)
        return {"seconds": time.perf_counter() - clock.times[0]}

    return batch * (NEW - 1), run


def timed(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def prefill(model, sequences, length):
    prompts = ids(sequences, length, model.config.vocab_size)

    @torch.inference_mode()
    def work():
        logits = model(prompts, use_cache=True, logits_to_keep=1).logits[:, -1]
        torch.multinomial(torch.softmax(logits, -1), 1)

    return sequences * length, lambda: {"seconds": timed(work)}


def micro_batches(model, sequences, length):
    return ids(sequences, length + 1, model.config.vocab_size).split(max(1, ROWS // length))


def surprise(model, batch):
    """Negative log-probability of every token but the first."""
    logits = model(batch[:, :-1], use_cache=False).logits
    return F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten(), reduction="none")


def scoring(model, sequences, length):
    batches = micro_batches(model, sequences, length)

    @torch.inference_mode()
    def work():
        for batch in batches:
            surprise(model, batch)

    return sequences * length, lambda: {"seconds": timed(work)}


def stepper(model):
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.01, fused=True)

    def step():
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def training(model, sequences, length):
    batches, tokens = micro_batches(model, sequences, length), sequences * length
    step = stepper(model)

    def work():
        for batch in batches:
            (surprise(model, batch).sum() / tokens).backward()

    return tokens, lambda: {"seconds": timed(work), "optimizer": timed(step)}


def grpo(model, prompts, answers):
    """Generation, and the policy gradient of its answers: what any GRPO on transformers comes to at the least."""
    questions = ids(prompts, PROMPT, model.config.vocab_size).repeat_interleave(answers, 0)
    step = stepper(model)
    advantages = (torch.arange(answers) % 2 * 2.0 - 1.0)[:, None]

    def update(sequences):
        for group in sequences.split(answers):
            logits = model(group[:, :-1], use_cache=False, logits_to_keep=ANSWER).logits
            taken = -F.cross_entropy(logits.flatten(0, 1), group[:, -ANSWER:].flatten(), reduction="none")
            taken = taken.view(answers, ANSWER)
            ratio = (taken - taken.detach()).exp()
            (-(ratio * advantages).sum() / sequences.shape[0] / ANSWER).backward()
        step()

    def run():
        start = time.perf_counter()
        model.eval()
        with torch.inference_mode():
            sequences = generate(model, questions, ANSWER)
        model.train()
        between = time.perf_counter()
        update(sequences.clone())
        end = time.perf_counter()
        return {"generation": between - start, "update": end - between}

    return prompts * answers * ANSWER, run


SHAPES = [(8, 64), (32, 64), (8, 256)]
# name: (what it is, goal of the ratio, transformers' side)
TABLE = {
    **{f"decode_{n}": (f"decode, batch {n}", 2.5, lambda model, n=n: decode(model, n)) for n in (1, 8, 32, 64)},
    "prefill_8x256": ("prefill, 8 × 256", None, lambda model: prefill(model, 8, 256)),
    **{f"scoring_{n}x{t}": (f"scoring, {n} × {t}", 2.0, lambda model, n=n, t=t: scoring(model, n, t)) for n, t in SHAPES},
    **{f"training_{n}x{t}": (f"training, {n} × {t}", 2.0, lambda model, n=n, t=t: training(model, n, t)) for n, t in SHAPES},
    "grpo_8x8": ("GRPO step, 8 × 8 answers", None, lambda model: grpo(model, 8, 8)),
}


def peer(row, folder, threads, passes):
    """Runs one row here and prints it as JSON."""
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(threads)
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa").eval()
    clear = pathlib.Path("/proc/self/clear_refs")
    if clear.exists():
        clear.write_text("5")
    tokens, run = TABLE[row][2](model)
    run()
    found = min((run() for _ in range(passes)), key=lambda parts: sum(parts.values()))
    status = pathlib.Path("/proc/self/status").read_text() if clear.exists() else ""
    peak = next((1024 * int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")), 0)
    print(json.dumps({"tokens": tokens, **found, "peak_bytes": peak}))


def run(command, prefix):
    environment = os.environ | {"CANDLE_NUM_THREADS": "1"}
    process = subprocess.run([*prefix, *map(str, command)], capture_output=True, text=True, env=environment)
    if process.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed: {process.stderr.strip()}")
    return json.loads(process.stdout.splitlines()[-1])


def seconds(side):
    return sum(side.get(part, 0.0) for part in ("seconds", "optimizer", "generation", "update"))


def best(found):
    return min(found, key=seconds) | {"peak_bytes": max(one["peak_bytes"] for one in found)}


def cell(side):
    """Tokens a second, and what a step of the optimiser takes beside; seconds where a pass has several parts."""
    if "generation" in side:
        return f"{seconds(side):.1f} s ({side['generation']:.1f} + {side['update']:.1f})"
    step = f" (+ {side['optimizer']:.2f} s)" if "optimizer" in side else ""
    return f"{side['tokens'] / side['seconds']:,.0f}{step}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a GGUF file or Hugging Face folder; default: SmolLM2-135M-Instruct")
    parser.add_argument("--rows", default=",".join(TABLE))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--passes", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prefix", default="", help="goes before each timed command, such as `taskset -c 0,1`")
    parser.add_argument("--write", action="store_true", help="put the table into docs/performance.md")
    parser.add_argument("--peer", nargs=2, metavar=("ROW", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        return peer(*options.peer, options.threads, options.passes)
    script = ROOT / "scripts" / "get_smollm2.sh"
    model = options.model or subprocess.check_output([script], text=True).splitlines()[-1]
    prefix = shlex.split(options.prefix)
    binary = build(True)
    import transformers

    lines = [
        f"{pathlib.Path(model).stem}, f32, {options.threads} threads; {processor()}, transformers"
        f" {transformers.__version__}, PyTorch {torch.__version__}, {platform.system()} {platform.release()};"
        f" the fastest of {options.rounds} × {options.passes} passes.",
        "",
        "| row | Forebay, tokens/s | transformers, tokens/s | ratio | goal | peak memory, GiB |",
        "|---|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([binary, "save", model, folder], check=True)
        for name in options.rows.split(","):
            title, goal, _ = TABLE[name]
            own = [binary, "model", model, name, options.threads, options.passes]
            other = [sys.executable, __file__, "--peer", name, folder]
            other += ["--threads", options.threads, "--passes", options.passes]
            pairs = [(run(own, prefix), run(other, prefix)) for _ in range(options.rounds)]
            ours, theirs = (best(side) for side in zip(*pairs))
            memory = " / ".join(f"{side['peak_bytes'] / 2**30:.1f}" for side in (ours, theirs))
            ratio = seconds(theirs) / seconds(ours)
            lines.append(f"| {title} | {cell(ours)} | {cell(theirs)} | {ratio:.2f} | {goal or ''} | {memory} |")
            print(lines[-1], flush=True)
    if options.write:
        begin, end = BEGIN.format(NAME), END.format(NAME)
        before, rest = PAGE.read_text().split(begin)
        PAGE.write_text(before + begin + "\n" + "\n".join(lines) + "\n" + end + rest.split(end)[1])


if __name__ == "__main__":
    main()
