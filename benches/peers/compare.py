#!/usr/bin/env python3
"""Times the operators against PyTorch, side by side in one run, and writes the table to docs/performance.md.

usage: benches/peers/compare.py [--rows NAME,...] [--threads 1,2] [--rounds 3] [--seconds 2] [--no-avx512] [--write]

Needs PyTorch in the Python that runs it. Each row is timed in turn by `cargo bench --bench peers` and by this script,
round after round, so that a slow moment of the machine meets both; of each side's medians the best counts. Both sides
do the same work in f32: see main.rs for ours, the functions below for PyTorch's (eager mode, its own kernels).
"""

import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- {}: begin -->", "<!-- {}: end -->"


def backward(module, y):
    for parameter in module.parameters():
        parameter.grad = None
    y.backward(torch.ones_like(y))


def mlp(batch, training):
    x = torch.randn(batch, 4)
    net = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
    return trained(net, x) if training else inferred(net, x)


def minatar(batch, training):
    x = torch.randn(batch, 4, 10, 10)
    net = nn.Sequential(
        nn.Conv2d(4, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(1024, 128), nn.ReLU(), nn.Linear(128, 6)
    )
    return trained(net, x) if training else inferred(net, x)


def inferred(net, x):
    def run():
        with torch.inference_mode():
            net(x)

    return run


def trained(net, x):
    return lambda: backward(net, net(x))


def atari_shallow(batch):
    net = nn.Sequential(
        nn.Conv2d(4, 16, 8, 4), nn.ReLU(), nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.Flatten(),
        nn.Linear(9 * 9 * 32, 256), nn.ReLU(),
    )
    return trained(net, torch.randn(batch, 4, 84, 84))


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        return x + self.second(F.relu(self.first(F.relu(x))))


def atari_deep(batch):
    layers, channels = [], 4
    for outputs in (16, 32, 32):
        layers += [nn.Conv2d(channels, outputs, 3, padding=1), nn.MaxPool2d(3, 2, 1)]
        layers += [Residual(outputs), Residual(outputs)]
        channels = outputs
    net = nn.Sequential(*layers, nn.ReLU(), nn.Flatten(), nn.Linear(11 * 11 * 32, 256), nn.ReLU())
    return trained(net, torch.randn(batch, 4, 84, 84))


def lstm():
    net, x = nn.LSTM(256, 256), torch.randn(20, 32, 256)
    state = (torch.randn(1, 32, 256), torch.randn(1, 32, 256))
    return lambda: backward(net, net(x, state)[0])


class Block(nn.Module):
    """A block of a Llama-like model: width 576, nine heads of 64, three of keys and values, feed-forward 1,536."""

    def __init__(self, length):
        super().__init__()
        linear = lambda inputs, outputs: nn.Linear(inputs, outputs, bias=False)
        self.norms = nn.ModuleList([nn.RMSNorm(576, eps=1e-5), nn.RMSNorm(576, eps=1e-5)])
        self.query, self.output = linear(576, 576), linear(576, 576)
        self.key, self.value = linear(576, 192), linear(576, 192)
        self.gate, self.up, self.down = linear(576, 1536), linear(576, 1536), linear(1536, 576)
        angles = torch.outer(torch.arange(length), 10_000 ** (-torch.arange(32) / 32))
        self.cosine, self.sine = (f(torch.cat([angles, angles], -1)) for f in (torch.cos, torch.sin))

    def heads(self, x, count):
        return x.view(*x.shape[:2], count, 64).transpose(1, 2)

    def rotary(self, x):
        turned = torch.cat([-x[..., 32:], x[..., :32]], -1)
        return x * self.cosine + turned * self.sine

    def forward(self, x):
        h = self.norms[0](x)
        q, k, v = self.heads(self.query(h), 9), self.heads(self.key(h), 3), self.heads(self.value(h), 3)
        mixed = F.scaled_dot_product_attention(
            self.rotary(q), self.rotary(k), v, is_causal=True, enable_gqa=True
        )
        x = x + self.output(mixed.transpose(1, 2).reshape(*x.shape))
        h = self.norms[1](x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


def block(sequences, length):
    net = Block(length)
    x = torch.randn(sequences, length, 576, requires_grad=True)

    def run():
        x.grad = None
        backward(net, net(x))

    return run


def head(tokens):
    x = torch.randn(tokens, 576, requires_grad=True)
    weight = (torch.randn(49_152, 576) * 0.05).requires_grad_()
    targets = torch.arange(tokens) * 7919 % 49_152

    def run():
        x.grad = weight.grad = None
        log_probs = F.log_softmax(x @ weight.T, -1)
        taken = log_probs.gather(-1, targets[:, None]).squeeze(-1)
        entropies = -(log_probs.exp() * log_probs).sum(-1)
        torch.autograd.backward([taken, entropies], [torch.ones(tokens), torch.ones(tokens)])

    return run


# name: (what it is, goal of the ratio, PyTorch's side)
ROWS = {
    "mlp_forward_64": ("MLP 4-64-64, forward, batch 64", 2.0, lambda: mlp(64, False)),
    "mlp_training_64": ("MLP 4-64-64, training, batch 64", 2.0, lambda: mlp(64, True)),
    "mlp_forward_512": ("MLP 4-64-64, forward, batch 512", 2.0, lambda: mlp(512, False)),
    "mlp_training_512": ("MLP 4-64-64, training, batch 512", 2.0, lambda: mlp(512, True)),
    "minatar_forward_320": ("MinAtar net, forward, batch 320", 1.5, lambda: minatar(320, False)),
    "minatar_training_320": ("MinAtar net, training, batch 320", 1.5, lambda: minatar(320, True)),
    "atari_shallow_160": ("Atari shallow net, training, batch 160", 1.2, lambda: atari_shallow(160)),
    "atari_shallow_640": ("Atari shallow net, training, batch 640", 1.2, lambda: atari_shallow(640)),
    "atari_deep_160": ("Atari deep net, training, batch 160", 1.2, lambda: atari_deep(160)),
    "atari_deep_640": ("Atari deep net, training, batch 640", 1.2, lambda: atari_deep(640)),
    "lstm_training": ("LSTM 256, T = 20, 32 sequences, training", 1.2, lstm),
    "block_training_64": ("Transformer block, 8 × 64 tokens, training", 2.0, lambda: block(8, 64)),
    "block_training_256": ("Transformer block, 8 × 256 tokens, training", 2.0, lambda: block(8, 256)),
    "head_training_1024": ("Vocabulary head, 1,024 tokens, training", 2.0, lambda: head(1024)),
}


def peer(name, threads, seconds):
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    run = ROWS[name][2]()
    run()
    begin, times = time.perf_counter(), []
    while len(times) < 3 or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def build(avx512):
    command = ["cargo", "bench", "--bench", "peers", "--no-run", "--message-format=json"]
    if not avx512:
        # Its own folder, so that the usual build stays.
        command += ["--no-default-features", "--target-dir", "target/no-avx512"]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if output.returncode != 0:
        sys.exit(output.stderr)
    artifacts = (json.loads(line) for line in output.stdout.splitlines() if line.startswith("{"))
    return next(a["executable"] for a in artifacts if a.get("target", {}).get("name") == "peers" and a.get("executable"))


def own(binary, name, threads, seconds):
    environment = os.environ | {"CANDLE_NUM_THREADS": "1"}
    command = [binary, name, str(threads), str(seconds)]
    return json.loads(subprocess.check_output(command, text=True, env=environment))["median"]


def processor():
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines() if os.path.exists("/proc/cpuinfo") else []
    value = lambda key: next((l.split(":")[1].strip() for l in lines if l.startswith(key)), "?")
    vectors = "AVX-512" if "avx512f" in value("flags") else "no AVX-512"
    return f"{value('model name')} (family {value('cpu family')}, model {value('model')}, {vectors})"


def duration(seconds):
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} µs"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--no-avx512", action="store_true", help="build Forebay without its feature `avx512`")
    parser.add_argument("--write", action="store_true", help="put the table into docs/performance.md")
    options = parser.parse_args()
    binary = build(not options.no_avx512)
    threads = [int(count) for count in options.threads.split(",")]
    lines = [
        f"{processor()}, PyTorch {torch.__version__}, {platform.system()} {platform.release()};"
        f" best of {options.rounds} rounds' medians.",
        "",
        "| row | threads | Forebay | PyTorch | ratio | goal | two threads over one |",
        "|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    for name in options.rows.split(","):
        title, goal, _ = ROWS[name]
        alone = None
        for count in threads:
            pairs = [
                (own(binary, name, count, options.seconds), peer(name, count, options.seconds))
                for _ in range(options.rounds)
            ]
            ours, theirs = (min(side) for side in zip(*pairs))
            gain = f"{alone / ours:.2f}" if alone else ""
            alone = alone or ours
            lines.append(
                f"| {title} | {count} | {duration(ours)} | {duration(theirs)} | {theirs / ours:.2f} | {goal} | {gain} |"
            )
            print(lines[-1], flush=True)
    if options.write:
        name = "peers without AVX-512" if options.no_avx512 else "peers"
        begin, end = BEGIN.format(name), END.format(name)
        before, rest = PAGE.read_text().split(begin)
        PAGE.write_text(before + begin + "\n" + "\n".join(lines) + "\n" + end + rest.split(end)[1])


if __name__ == "__main__":
    main()
