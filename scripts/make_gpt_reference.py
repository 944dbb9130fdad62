#!/usr/bin/env python3
"""Writes tests/vectors/gpt_init.safetensors and gpt_reference.json: PyTorch's losses of 100 steps of AdamW of
a tiny GPT-2 on made-up tokens, which tests/nn/test_gpt_reference.c follows at several numbers of ranks.

    python3 scripts/make_gpt_reference.py      (needs torch and safetensors; the test needs its output)

The tokens are a chain that both sides compute: mostly a function of the token before, at times
any token. Batches are token sequences of the text in order: step s has sequences s x BATCH ... of CONTEXT
tokens, each with the tokens after its own as labels.
"""
import usage

usage.show(__doc__)

import json
import os

import torch
from safetensors.torch import save_file

import gpt2_torch

VOCAB, CONTEXT, BLOCKS, HEADS, EMBED = 128, 16, 2, 2, 32
BATCH, STEPS, SEED = 12, 100, 1
LR, BETAS, EPSILON, DECAY = 3e-3, (0.9, 0.95), 1e-8, 0.1
HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "vectors")


def mix(x):
    """A number of 32 bits for each x, as tests/nn/gpt_support.h has it."""
    x = (x * 2654435761) & 0xffffffff
    x ^= x >> 16
    x = (x * 73244475) & 0xffffffff
    return x ^ (x >> 16)


def chain(count):
    tokens = [0]
    for i in range(1, count):
        noise = mix(i)
        tokens.append((noise >> 8) % VOCAB if noise % 4 == 0 else (5 * tokens[-1] + 17) % VOCAB)
    return torch.tensor(tokens)


def main():
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    params = {name: tensor.requires_grad_()
              for name, tensor in gpt2_torch.initial(VOCAB, CONTEXT, BLOCKS, EMBED).items()}
    os.makedirs(HERE, exist_ok=True)
    save_file({name: tensor.detach().clone() for name, tensor in params.items()},
              os.path.join(HERE, "gpt_init.safetensors"), metadata={"format": "pt", "heads": str(HEADS)})
    groups = [{"params": [p for p in params.values() if p.dim() == 2], "weight_decay": DECAY},
              {"params": [p for p in params.values() if p.dim() == 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=BETAS, eps=EPSILON)
    tokens = chain(STEPS * BATCH * CONTEXT + 1)
    losses = []
    for step in range(STEPS):
        at = step * BATCH * CONTEXT
        x = tokens[at:at + BATCH * CONTEXT].view(BATCH, CONTEXT)
        y = tokens[at + 1:at + BATCH * CONTEXT + 1]
        out = gpt2_torch.logits(gpt2_torch.turned(params), x, HEADS)
        loss = torch.nn.functional.cross_entropy(out.view(-1, VOCAB), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with open(os.path.join(HERE, "gpt_reference.json"), "w") as file:
        json.dump({"torch": torch.__version__, "vocab": VOCAB, "context": CONTEXT, "blocks": BLOCKS,
                   "heads": HEADS, "embed": EMBED, "batch_size": BATCH, "lr": LR, "betas": BETAS,
                   "epsilon": EPSILON, "weight_decay": DECAY, "losses": losses}, file, indent=1)
        file.write("\n")
    print(f"loss {losses[0]:.4f} ... {losses[-1]:.4f}")


if __name__ == "__main__":
    main()
