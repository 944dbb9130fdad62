#!/usr/bin/env python3
"""Make tests/vectors/dcgan_vectors.txt: 20 steps of PyTorch's DCGAN example (that of pytorch/examples, for images of 16 x
16), in float64, for 1, 2 and 3 ranks.

    make_dcgan_vectors.py > tests/vectors/dcgan_vectors.txt      (needs numpy and torch; the test needs neither)

First weights and latent vectors are what cddp draws (src/trainer/nn/model_params.c, src/trainer/train/engines/gan/gan_passes.c), images those of
tests/train/test_gan.c. Several ranks are pieces of a batch that normalise alone, and whose losses are weighted by their
samples, as DistributedDataParallel does it. It is checked that float32 follows float64: the numbers are no matter of
rounding.
"""
import usage

usage.show(__doc__)

import os
import sys

import numpy as np
import torch
import torch.nn as nn

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import make_nn_vectors as vectors

SEED, INIT, LATENT_NUMBERS = 3, 2, 8
STEPS, BATCH, SIDE, LATENT, UNITS, LR, BETAS = 20, 12, 16, 6, 4, 2e-3, (0.5, 0.999)
SAME = 2e-6


def normal(purpose, index, counters):
    w = vectors.philox(SEED, purpose, index, counters)
    u = (w[:, 0::2].astype(np.float64) + 1) * 2.0**-32
    angle = 2 * np.pi * (w[:, 1::2].astype(np.float64) * 2.0**-32)
    radius = np.sqrt(-2 * np.log(u))
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 2).reshape(-1)


def latent(step):
    quads = (LATENT + 3) // 4
    rows = [normal(LATENT_NUMBERS, step, sample * quads + np.arange(quads))[:LATENT]
            for sample in range(step * BATCH, (step + 1) * BATCH)]
    return torch.from_numpy(np.stack(rows).astype(np.float32)).view(BATCH, LATENT, 1, 1)


def images(step):
    n, y, x = np.meshgrid(np.arange(step * BATCH, (step + 1) * BATCH), np.arange(SIDE), np.arange(SIDE), indexing="ij")
    pixels = (n * 37 + y * 11 + x * 7 * (n % 5 + 1)) % 256
    return torch.from_numpy(((pixels / 255 - 0.5) / 0.5).astype(np.float32)).view(BATCH, 1, SIDE, SIDE)


def build():
    generator = nn.Sequential(
        nn.ConvTranspose2d(LATENT, 2 * UNITS, 4, 1, 0, bias=False), nn.BatchNorm2d(2 * UNITS), nn.ReLU(),
        nn.ConvTranspose2d(2 * UNITS, UNITS, 4, 2, 1, bias=False), nn.BatchNorm2d(UNITS), nn.ReLU(),
        nn.ConvTranspose2d(UNITS, 1, 4, 2, 1, bias=False), nn.Tanh())
    discriminator = nn.Sequential(
        nn.Conv2d(1, UNITS, 4, 2, 1, bias=False), nn.LeakyReLU(0.2),
        nn.Conv2d(UNITS, 2 * UNITS, 4, 2, 1, bias=False), nn.BatchNorm2d(2 * UNITS), nn.LeakyReLU(0.2),
        nn.Conv2d(2 * UNITS, 1, 4, 1, 0, bias=False), nn.Sigmoid())
    parameters = list(generator.parameters()) + list(discriminator.parameters())
    number = 0
    with torch.no_grad():
        for p in parameters:
            if p.dim() == 4 or number_is_scale(parameters, number):
                values = normal(INIT, number, np.arange((p.numel() + 3) // 4))[:p.numel()]
                p.copy_(torch.from_numpy((0.02 * values + (p.dim() == 1)).astype(np.float32)).view(p.shape))
            number += 1
    return generator, discriminator


def number_is_scale(parameters, number):  # of a normalisation: the first of two
    return parameters[number].dim() == 1 and parameters[number - 1].dim() == 4


def train(ranks, dtype):
    torch.set_default_dtype(dtype)
    generator, discriminator = build()
    adam_d = torch.optim.Adam(discriminator.parameters(), lr=LR, betas=BETAS)
    adam_g = torch.optim.Adam(generator.parameters(), lr=LR, betas=BETAS)
    bce = nn.BCELoss()
    rows = []

    def judge(pieces, target):  # the mean over ranks of the loss, and of what the discriminator says
        said = [discriminator(piece).view(-1) for piece in pieces]
        share = [len(s) / BATCH for s in said]
        loss = sum(w * bce(s, torch.full_like(s, target)) for w, s in zip(share, said))
        return loss, sum(w * s.mean().item() for w, s in zip(share, said))

    for step in range(STEPS):
        real = images(step).to(dtype).chunk(ranks)
        adam_d.zero_grad()
        loss_real, d_real = judge(real, 1.0)
        loss_real.backward()
        fake = [generator(piece) for piece in latent(step).to(dtype).chunk(ranks)]
        loss_fake, d_fake = judge([piece.detach() for piece in fake], 0.0)
        loss_fake.backward()
        adam_d.step()
        adam_g.zero_grad()
        loss_g, _ = judge(fake, 1.0)
        loss_g.backward()
        adam_g.step()
        rows.append(((loss_real + loss_fake).item(), loss_g.item(), d_real, d_fake))
    return rows


def main():
    torch.set_num_threads(1)
    print(f"made_by scripts/make_dcgan_vectors.py torch-{torch.__version__}")
    for ranks in (1, 2, 3):
        exact, plain = np.array(train(ranks, torch.float64)), np.array(train(ranks, torch.float32))
        worst = np.abs(exact - plain).max()
        print(f"{ranks} ranks: first {exact[0]} last {exact[-1]} float32 differs by {worst}", file=sys.stderr)
        if not worst <= SAME:
            sys.exit(f"{ranks} ranks: float32 does not follow")
        print("ranks", ranks)
        for step, row in enumerate(exact):
            print("step", step + 1, *(f"{value:.9g}" for value in row))


if __name__ == "__main__":
    main()
