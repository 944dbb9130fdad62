#!/usr/bin/env python3
"""Writes tests/vectors/lstm_init.safetensors, lstm_tied_init.safetensors and lstm_reference.json: PyTorch's
losses of 20 steps of AdamW with clipped gradients of the model of its example
word_language_model (an embedding, nn.LSTM of two layers, a linear layer, tied to the embedding or not), which
tests/nn/test_lstm_reference.c follows at several numbers of ranks.

    python3 scripts/make_lstm_reference.py     (needs torch and safetensors; the test needs its output)

Tokens are those of make_gpt_reference.py. Each sequence begins with a state of zeros.
"""
import usage

usage.show(__doc__)

import json
import os

import torch
from safetensors.torch import save_file

from make_gpt_reference import BATCH, CONTEXT, HERE, SEED, VOCAB, chain

EMBED, HIDDEN, LEVELS, STEPS, LR, CLIP = 16, 16, 2, 20, 2e-2, 0.25


class RNNModel(torch.nn.Module):
    def __init__(self, tied):
        super().__init__()
        self.encoder = torch.nn.Embedding(VOCAB, EMBED)
        self.rnn = torch.nn.LSTM(EMBED, HIDDEN, LEVELS, batch_first=True)
        self.decoder = torch.nn.Linear(HIDDEN, VOCAB)
        if tied:
            self.decoder.weight = self.encoder.weight

    def forward(self, tokens):
        return self.decoder(self.rnn(self.encoder(tokens))[0])


def train(tied):
    torch.manual_seed(SEED)
    model = RNNModel(tied)
    with torch.no_grad():  # wide, so that gates are far from the middle
        for parameter in model.parameters():
            parameter.uniform_(-0.6, 0.6)
    name = "lstm_tied_init.safetensors" if tied else "lstm_init.safetensors"
    save_file({name: p.detach().clone() for name, p in model.named_parameters()},
              os.path.join(HERE, name), metadata={"format": "pt"})
    tokens = chain(STEPS * BATCH * CONTEXT + 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.0)
    losses = []
    for step in range(STEPS):
        at = step * BATCH * CONTEXT
        x = tokens[at:at + BATCH * CONTEXT].view(BATCH, CONTEXT)
        y = tokens[at + 1:at + BATCH * CONTEXT + 1]
        loss = torch.nn.functional.cross_entropy(model(x).view(-1, VOCAB), y)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        losses.append(loss.item())
    print(f"tied {tied}: loss {losses[0]:.4f} ... {losses[-1]:.4f}")
    return losses


def main():
    torch.set_num_threads(1)
    reference = {"torch": torch.__version__, "vocab": VOCAB, "context": CONTEXT, "embed": EMBED,
                 "hidden": [HIDDEN] * LEVELS, "batch_size": BATCH, "lr": LR, "clip_norm": CLIP,
                 "losses": train(False), "tied_losses": train(True)}
    with open(os.path.join(HERE, "lstm_reference.json"), "w") as file:
        json.dump(reference, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
