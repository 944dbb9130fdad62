#!/usr/bin/env python3
"""check_weights - cddp's GPT-2 weights and logits against the real safetensors and PyTorch.

    scripts/check_weights.py BUILD

Makes a GPT-2 as Hugging Face's libraries store it, converts it with BUILD/src/cddp-convert to every
format, reads what came out with safetensors and numpy, and compares the logits of
BUILD/tests/gpt_logits with those of a plain PyTorch GPT-2 and, where `transformers` is installed, of
GPT2LMHeadModel. Exits with 77, saying why, where PyTorch and safetensors are missing: they are looked
for in $CDDP_TEST_PYTHON, the benchmark's .venv-bench, and this interpreter."""
import usage

usage.show(__doc__)

import os
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PYTHONS = [os.environ.get("CDDP_TEST_PYTHON"), os.path.join(ROOT, ".venv-bench", "bin", "python")]
TOLERANCE = 1e-4
VOCAB, CONTEXT, BLOCKS, HEADS, EMBED = 389, 24, 3, 4, 64

try:
    import numpy as np
    import safetensors.torch as st
    import torch
except ImportError as error:
    if not os.environ.get("CHECK_WEIGHTS_AGAIN"):
        os.environ["CHECK_WEIGHTS_AGAIN"] = "1"
        for python in PYTHONS:
            if python and os.access(python, os.X_OK) and subprocess.run(
                    [python, "-c", "import torch, safetensors, numpy"], stderr=subprocess.DEVNULL).returncode == 0:
                os.execv(python, [python, *sys.argv])
    print(f"skipped: {error}; $CDDP_TEST_PYTHON may name an interpreter that has torch and safetensors")
    sys.exit(77)

import gpt2_torch

BUILD = os.path.abspath(sys.argv[1])


def convert(*words):
    subprocess.run([os.path.join(BUILD, "src", "cddp-convert"), *words], check=True)


def cddp_logits(weights, tokens, heads=HEADS):
    with open("tokens", "wb") as file:
        file.write(tokens.numpy().astype("<i4").tobytes())
    subprocess.run([os.path.join(BUILD, "tests", "gpt_logits"), weights, str(heads), "tokens", "logits"],
                   check=True)
    values = np.fromfile("logits", "<f4").reshape(*tokens.shape, -1)
    return torch.from_numpy(values)


def check(what, left, right):
    apart = (left - right).abs().max().item()
    print(f"{what}: logits within {apart:.2e} (up to {right.abs().max().item():.1f})")
    if not apart <= TOLERANCE:
        sys.exit(f"{what}: more than {TOLERANCE}")


def same(what, left, right):
    if set(left) != set(right):
        sys.exit(f"{what}: other tensors: {sorted(set(left) ^ set(right))}")
    for name, tensor in left.items():
        if tensor.dtype != right[name].dtype or not torch.equal(tensor, right[name]):
            sys.exit(f"{what}: {name} differs")
    print(f"{what}: {len(left)} tensors equal to the bit")


def read_llmc(path):
    """llm.c's file by its description: header, then tensors that hold all blocks each."""
    header = np.fromfile(path, "<i4", 256)
    magic, version, context, vocab, blocks, heads, embed, padded = (int(word) for word in header[:8])
    assert magic == 20240326 and version in (3, 5) and heads == HEADS, header[:8]
    raw = np.fromfile(path, "<f4" if version == 3 else "<u2", offset=1024)
    shapes = gpt2_torch.shapes(padded, context, blocks, embed)
    order = ["wte.weight", "wpe.weight"] + [
        f"h.{n}.{name}" for name in (key[4:] for key in shapes if key.startswith("h.0."))
        for n in range(blocks)] + ["ln_f.weight", "ln_f.bias"]
    out, at = {}, 0
    for name in order:
        count = int(np.prod(shapes[name]))
        part = torch.from_numpy(raw[at:at + count].copy())
        out[name] = (part if version == 3 else part.view(torch.bfloat16)).view(shapes[name])
        at += count
    assert at == len(raw), "the file is longer"
    assert not out["wte.weight"][vocab:].any(), "the padding is not zero"
    out["wte.weight"] = out["wte.weight"][:vocab].clone()
    return out


def check_transformers(tokens, expected):
    try:
        from transformers import GPT2Config, GPT2LMHeadModel
    except ImportError:
        print("transformers is not installed: GPT2LMHeadModel is left out")
        return
    with torch.no_grad():
        check("transformers reads our folder", GPT2LMHeadModel.from_pretrained("hf").eval()(tokens).logits, expected)
        torch.manual_seed(3)
        model = GPT2LMHeadModel(GPT2Config(vocab_size=VOCAB, n_positions=CONTEXT, n_embd=EMBED, n_layer=BLOCKS,
                                           n_head=HEADS, bos_token_id=None, eos_token_id=None)).eval()
        for parameter in model.parameters():
            parameter.normal_(0, 0.2)
        model.save_pretrained("theirs")
        check("we read the folder of transformers", cddp_logits("theirs", tokens), model(tokens).logits)


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    weights = {name: torch.randn(shape) * (0.2 if len(shape) == 2 else 0.5) + (1.0 if "ln" in name and
               name.endswith("weight") else 0.0)
               for name, shape in gpt2_torch.shapes(VOCAB, CONTEXT, BLOCKS, EMBED).items()}
    stored = gpt2_torch.turned(weights)
    tokens = torch.randint(0, VOCAB, (3, CONTEXT))
    expected = gpt2_torch.logits(stored, tokens, HEADS)
    masks = {f"h.{n}.attn.bias": torch.tril(torch.ones(CONTEXT, CONTEXT, dtype=torch.bool))[None, None]
             for n in range(BLOCKS)} | {f"h.{n}.attn.masked_bias": torch.tensor(-1e4) for n in range(BLOCKS)}
    full = {"transformer." + name: tensor for name, tensor in (stored | masks).items()}
    st.save_file(full | {"lm_head.weight": stored["wte.weight"].clone()}, "full.safetensors")
    st.save_file(stored, "bare.safetensors")

    convert("--to", "cddp", "--heads", str(HEADS), "full.safetensors", "cddp.safetensors")
    same("cddp's file", st.load_file("cddp.safetensors"), weights)
    convert("--to", "llmc", "cddp.safetensors", "f32.bin")
    same("llm.c's file", read_llmc("f32.bin"), weights)
    convert("--to", "llmc", "--type", "bf16", "cddp.safetensors", "bf16.bin")
    rounded = {name: tensor.bfloat16() for name, tensor in weights.items()}
    same("llm.c's file of bf16", read_llmc("bf16.bin"), rounded)
    convert("--to", "hf", "f32.bin", "hf")
    same("Hugging Face's file", st.load_file("hf/model.safetensors"),
         {"transformer." + name: tensor for name, tensor in stored.items()})
    for kind, dtype in (("f16", torch.float16), ("bf16", torch.bfloat16)):
        convert("--to", "hf", "--type", kind, "cddp.safetensors", kind + ".safetensors")
        same(f"Hugging Face's file of {kind}", st.load_file(kind + ".safetensors"),
             {"transformer." + name: tensor.to(dtype) for name, tensor in stored.items()})

    for name in ("cddp.safetensors", "full.safetensors", "bare.safetensors", "f32.bin", "hf"):
        check(name, cddp_logits(name, tokens), expected)
    halves = gpt2_torch.turned({name: tensor.float() for name, tensor in rounded.items()})
    for name in ("bf16.bin", "bf16.safetensors"):
        check(name, cddp_logits(name, tokens), gpt2_torch.logits(halves, tokens, HEADS))
    check_transformers(tokens, expected)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        main()
