#!/usr/bin/env python3
"""Make tests/vectors/nn_gpt_vectors.txt: what PyTorch computes, in float64, for a GPT-2 of two blocks.

    make_nn_gpt_vectors.py > tests/vectors/nn_gpt_vectors.txt       (needs numpy and torch; tests need neither)

Parameters, tokens and the names of all are those of tests/support/sequence.h, written down here a second time.
"""
import usage

usage.show(__doc__)

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

from make_nn_vectors import test_numbers, text

BLOCKS, HEADS, EMBED, CONTEXT, VOCAB, COUNT = 2, 2, 16, 8, 37, 3


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(EMBED)
        self.attn = nn.ModuleDict({"c_attn": nn.Linear(EMBED, 3 * EMBED), "c_proj": nn.Linear(EMBED, EMBED)})
        self.ln_2 = nn.LayerNorm(EMBED)
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(EMBED, 4 * EMBED), "c_proj": nn.Linear(4 * EMBED, EMBED)})

    def forward(self, x):
        q, k, v = self.attn["c_attn"](self.ln_1(x)).split(EMBED, 2)
        q, k, v = (t.reshape(*t.shape[:2], HEADS, -1).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn["c_proj"](y.transpose(1, 2).reshape(x.shape))
        return x + self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCAB, EMBED), nn.Embedding(CONTEXT, EMBED)
        self.h = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.ln_f = nn.LayerNorm(EMBED)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(CONTEXT))
        for block in self.h:
            x = block(x)
        return self.ln_f(x) @ self.wte.weight.T


def token(i, t):
    return (i * 31 + t * 7 + t * t) % VOCAB


def main():
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    model = Gpt()
    for index, (name, p) in enumerate(model.named_parameters()):
        values = np.float32(0.4) * test_numbers(200 + index, p.numel())
        if ".ln_" in "." + name and name.endswith("weight"):
            values = values + np.float32(1)
        p.data = torch.from_numpy(values.astype(np.float64)).reshape(p.shape)
    tokens = torch.tensor([[token(i, t) for t in range(CONTEXT)] for i in range(COUNT)])
    label = torch.tensor([[token(i, t + 1) for t in range(CONTEXT)] for i in range(COUNT)])
    y = model(tokens)
    loss = F.cross_entropy(y.reshape(-1, VOCAB), label.reshape(-1), reduction="sum")
    loss.backward()
    correct = (y.argmax(2) == label).sum().item()
    print(f"made_by scripts/make_nn_gpt_vectors.py torch-{torch.__version__}")
    print(f"loss {loss.item():.12g} {correct}")
    print(f"outputs {text(y.detach())}")
    for index, (n, p) in enumerate(model.named_parameters()):
        probe = test_numbers(100 + index, p.numel()).astype(np.float64)
        g = p.grad.numpy().reshape(-1)
        print(f"grad {n} {np.linalg.norm(g):.9g} {g @ probe:.9g}")


if __name__ == "__main__":
    main()
