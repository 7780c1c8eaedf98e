#!/usr/bin/env python3
"""Checks model files against `transformers`, both ways: what it saved is loaded here with the same logits, and what is
saved here is loaded there with the same logits, tokens and chat template.

usage: scripts/check_transformers.py [--binary target/release/examples/model_files] [--smollm2 FILE.gguf] [--json FILE]

Needs torch and transformers, and `cargo build --release --example model_files`. Small random models of every supported
architecture are made on the spot; SmolLM2 is checked too where its file is given (scripts/get_smollm2.sh prints it).
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Largest difference of a logit, relative to the largest logit: both sides compute in f32, in different orders.
TOLERANCE = 1e-4
CHAT = [{"role": "user", "content": "What is 2+2?"}]
ALPHABET = "0123456789+-=abcdefgh"

SHAPE = dict(
    vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
    num_key_value_heads=2, head_dim=16, max_position_embeddings=64, initializer_range=0.2,
    bos_token_id=None, eos_token_id=0, pad_token_id=1,
)
LLAMA3 = dict(
    rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
    original_max_position_embeddings=16, rope_theta=1e4,
)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16, rope_theta=1e4)
LINEAR = dict(rope_type="linear", factor=2.0, rope_theta=1e5)
EXPERTS = dict(num_experts=6, num_experts_per_tok=2, moe_intermediate_size=24)


def kinds():
    yield "llama", transformers.LlamaConfig(**SHAPE)
    yield "llama, tied, llama3", transformers.LlamaConfig(**SHAPE, tie_word_embeddings=True, rope_parameters=LLAMA3)
    yield "llama, linear", transformers.LlamaConfig(**SHAPE, rope_parameters=LINEAR)
    yield "mistral", transformers.MistralConfig(**SHAPE, sliding_window=None)
    yield "qwen2", transformers.Qwen2Config(**SHAPE)
    yield "qwen3, yarn", transformers.Qwen3Config(**SHAPE, rope_parameters=YARN)
    yield "qwen3_moe", transformers.Qwen3MoeConfig(**SHAPE, **EXPERTS, norm_topk_prob=True)
    yield "qwen3_moe, not normalised", transformers.Qwen3MoeConfig(**SHAPE, **EXPERTS, norm_topk_prob=False)


def characters():
    """A tokenizer of one token a character."""
    tokens = ["<end>", "<pad>", *ALPHABET]
    tokenizer = Tokenizer(models.WordLevel({token: id for id, token in enumerate(tokens)}, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", pad_token="<pad>")


def logits_here(binary, model, ids, save=None):
    command = [binary, str(model), "--ids", ",".join(map(str, ids))]
    command += ["--save", str(save)] if save else []
    process = subprocess.run(command, capture_output=True, text=True)
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed: {process.stderr.strip()}")
    return torch.tensor(json.loads(process.stdout))


def logits_there(folder, ids):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0], model


def difference(found, expected):
    return float((found - expected).abs().max() / expected.abs().max())


def check(name, binary, source, ids, folder):
    """Loads `source` here, saves it, and loads it there; `source` may be a folder that transformers saved."""
    saved = folder / "saved"
    here = logits_here(binary, source, ids, saved)
    there, model = logits_there(saved, ids)
    result = {"model": name, "saved_here_loaded_there": difference(here, there)}
    if source.is_dir():
        original, _ = logits_there(source, ids)
        result["saved_there_loaded_here"] = difference(here, original)
    result["again"] = difference(logits_here(binary, saved, ids), here)
    result["passed"] = all(value <= TOLERANCE for value in result.values() if isinstance(value, float))
    return result, saved, model


def check_random(name, config, binary, folder):
    torch.manual_seed(7)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            # Norms and biases would start at 1 and 0, and then hide a wrong place.
            parameter.add_(0.2 * torch.randn_like(parameter))
    source = folder / "source"
    model.save_pretrained(source)
    characters().save_pretrained(source)
    ids = torch.randint(0, config.vocab_size, (40,)).tolist()
    result, saved, again = check(name, binary, source, ids, folder)
    result["same_class"] = type(again).__name__
    tokens = transformers.AutoTokenizer.from_pretrained(saved)("12+34=ab")["input_ids"]
    result["passed"] &= tokens == characters()("12+34=ab")["input_ids"]
    return result


def check_smollm2(file, binary, folder):
    golden = json.loads((ROOT / "tests/golden/smollm2.json").read_text())
    ids = golden["score"][0]["ids"]
    result, saved, _ = check("SmolLM2 (GGUF)", binary, file, ids, folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(saved)
    tokens = [tokenizer(case["text"])["input_ids"] == case["ids"] for case in golden["tokenize"]]
    chat = tokenizer.apply_chat_template(CHAT, tokenize=False, add_generation_prompt=True)
    result["tokenized_alike"] = f"{sum(tokens)} of {len(tokens)}"
    result["chat"] = chat
    expected = "<|im_start|>user\nWhat is 2+2?<|im_end|>\n<|im_start|>assistant\n"
    result["passed"] &= all(tokens) and chat.endswith(expected) and tokenizer.eos_token == "<|im_end|>"
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=str(ROOT / "target/release/examples/model_files"))
    parser.add_argument("--smollm2", type=pathlib.Path, help="the GGUF file")
    parser.add_argument("--json", help="file for the figures")
    arguments = parser.parse_args()
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    results = []
    checks = [(name, lambda folder, n=name, c=config: check_random(n, c, arguments.binary, folder)) for name, config in kinds()]
    if arguments.smollm2:
        checks.append(("SmolLM2", lambda folder: check_smollm2(arguments.smollm2, arguments.binary, folder)))
    for _, run in checks:
        with tempfile.TemporaryDirectory() as folder:
            results.append(run(pathlib.Path(folder)))
            print(json.dumps(results[-1]), flush=True)
    if arguments.json:
        report = {"torch": torch.__version__, "transformers": transformers.__version__, "results": results}
        pathlib.Path(arguments.json).write_text(json.dumps(report, indent=1) + "\n")
    sys.exit(0 if all(result["passed"] for result in results) else 1)


if __name__ == "__main__":
    main()
