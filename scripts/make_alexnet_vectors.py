#!/usr/bin/env python3
"""Make tests/vectors/alexnet_vectors.txt: 20 steps of SGD, in float64, of small networks with convolutions in groups
and local response normalisation, with transposed ones, and of narrow forms of the presets alexnet and vgg11.

    make_alexnet_vectors.py > tests/vectors/alexnet_vectors.txt      (needs numpy and torch; the test needs neither)

Parameter k begins as the Philox numbers of stream 300 + k (make_nn_vectors.py), scaled; data are those of
tests/support/nn.c. A network is kept if float32 follows float64: its numbers are no matter of rounding.
"""
import usage

usage.show(__doc__)

import os
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import make_nn_vectors as vectors

STEPS, MOMENTUM, SAME = 20, 0.9, 1e-5


def conv(units, kernel, stride=1, padding=0, groups=1):
    return ("conv2d", units, kernel, stride, padding, groups, 0, 0, 0)


def norm(size, alpha, beta, offset):
    return ("local_response_norm", 0, size, 0, 0, 0, alpha, beta, offset)


def pool(kernel, stride):
    return ("max_pool", 0, kernel, stride, 0, 0, 0, 0, 0)


def linear(units):
    return ("linear", units, 0, 0, 0, 0, 0, 0, 0)


def transposed(units, kernel, stride=1, padding=0):
    return ("conv_transpose2d", units, kernel, stride, padding, 0, 0, 0, 0)


def leaky_relu(slope):  # in the place of an alpha
    return ("leaky_relu", 0, 0, 0, 0, 0, slope, 0, 0)


RELU, FLATTEN, TANH, SIGMOID = ((kind,) + (0,) * 8 for kind in ("relu", "flatten", "tanh", "sigmoid"))


def alexnet(u, classes):
    w, n = u * 8 // 3, norm(5, 5e-4, 0.75, 2)
    return [conv(u, 11, 4, 2), RELU, n, pool(3, 2), conv(w, 5, 1, 2, 2), RELU, n, pool(3, 2),
            conv(4 * u, 3, 1, 1), RELU, conv(4 * u, 3, 1, 1, 2), RELU, conv(w, 3, 1, 1, 2), RELU, pool(3, 2), FLATTEN,
            linear(16 * w), RELU, linear(16 * w), RELU, linear(classes)]


def vgg11(u, classes):
    layers = []
    for width in (1, 0, 2, 0, 4, 4, 0, 8, 8, 0, 8, 8, 0):
        layers += [conv(width * u, 3, 1, 1), RELU] if width else [pool(2, 2)]
    return layers + [FLATTEN, linear(64 * u), RELU, linear(64 * u), RELU, linear(classes)]


NETWORKS = {
    # name: preset or "layers", its width, image, classes, batch, learning rate, layers
    "groups": ("layers", 0, (6, 9, 7), 4, 3, 0.01,
               [conv(9, 3, 1, 1, 3), RELU, conv(6, 3, 2, 1, 3), RELU, conv(6, 3, 1, 0, 6), FLATTEN, linear(4)]),
    "wide_groups": ("layers", 0, (16, 6, 6), 4, 3, 0.01,
                    [conv(32, 3, 1, 1, 2), RELU, conv(32, 3, 1, 1, 4), RELU, conv(64, 1, 1, 0, 2), FLATTEN, linear(4)]),
    "norms": ("layers", 0, (3, 12, 12), 4, 3, 0.01,
              [conv(10, 3), norm(5, 0.5, 0.75, 1), RELU, conv(20, 3, 1, 1), norm(4, 0.3, 0.6, 2), conv(5, 1),
               norm(9, 1, 1, 1), FLATTEN, linear(4)]),
    "transposed": ("layers", 0, (5, 4, 3), 4, 3, 0.05,
                   [transposed(7, 3, 2, 1), TANH, conv(9, 3, 1, 1), SIGMOID, transposed(16, 5, 3, 2), leaky_relu(0.2),
                    transposed(3, 1), FLATTEN, linear(4)]),
    "binary": ("layers", 0, (6, 1, 1), 1, 8, 0.05,
               [transposed(8, 4), leaky_relu(0.1), transposed(2, 4, 2, 1), SIGMOID, FLATTEN, linear(1)]),
    "one_hot": ("layers", 0, (6, 1, 1), 4, 8, 0.05, [transposed(8, 3), TANH, FLATTEN, linear(4)]),
    "alexnet": ("alexnet", 6, (3, 67, 67), 5, 4, 0.01, alexnet(6, 5)),
    "vgg11": ("vgg11", 4, (3, 32, 32), 5, 4, 0.01, vgg11(4, 5)),
}


def build(image, layers):
    parts, shape = [], (1, *image)
    for kind, units, kernel, stride, padding, groups, alpha, beta, offset in layers:
        if kind == "conv2d":
            part = nn.Conv2d(shape[1], units, kernel, stride, padding, groups=groups)
        elif kind == "local_response_norm":
            part = nn.LocalResponseNorm(kernel, alpha, beta, offset)
        elif kind == "max_pool":
            part = nn.MaxPool2d(kernel, stride)
        elif kind == "linear":
            part = nn.Linear(shape[1], units)
        elif kind == "conv_transpose2d":
            part = nn.ConvTranspose2d(shape[1], units, kernel, stride, padding)
        elif kind == "leaky_relu":
            part = nn.LeakyReLU(alpha)
        else:
            part = {"relu": nn.ReLU, "flatten": nn.Flatten, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid}[kind]()
        parts.append(part)
        shape = part(torch.zeros(shape)).shape
    return nn.Sequential(*parts)


def initialise(model):
    with torch.no_grad():
        for index, p in enumerate(model.parameters()):
            numbers = vectors.test_numbers(300 + index, p.numel())
            scale = np.float32(2 / np.sqrt(np.prod(p.shape[1:]))) if p.dim() > 1 else np.float32(0.125)
            p.copy_(torch.from_numpy(numbers * scale).view(p.shape))


def loss_of(name, outputs, label, classes):
    if name == "binary":
        return F.binary_cross_entropy_with_logits(outputs[:, 0], label.to(outputs.dtype))
    if name == "one_hot":
        return F.binary_cross_entropy_with_logits(outputs, F.one_hot(label, classes).to(outputs.dtype))
    return F.cross_entropy(outputs, label)


def train(name, network, dtype):
    _, _, image, classes, count, lr, layers = network
    torch.set_default_dtype(dtype)
    model = build(image, layers)
    initialise(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=MOMENTUM)
    elements = STEPS * count * int(np.prod(image))
    data = torch.from_numpy(vectors.test_numbers(1, elements)).to(dtype).view(STEPS, count, *image)
    losses = []
    for step in range(STEPS):
        label = torch.tensor([(step * count + i) * 7 % 5 % (2 if name == "binary" else classes) for i in range(count)])
        loss = loss_of(name, model(data[step]), label, classes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return model, losses


def main():
    torch.set_num_threads(1)
    print(f"made_by scripts/make_alexnet_vectors.py torch-{torch.__version__} momentum {MOMENTUM}")
    for name, network in NETWORKS.items():
        model, losses = train(name, network, torch.float64)
        plain = train(name, network, torch.float32)[1]
        worst = max(abs(a - b) / b for a, b in zip(plain, losses))
        print(name, "first", losses[0], "last", losses[-1], "float32 differs by", worst, file=sys.stderr)
        if not worst <= SAME:
            sys.exit(f"{name}: float32 does not follow")
        preset, units, image, classes, count, lr, layers = network
        loss = 2 if name in ("binary", "one_hot") else 0  # as in enum cddpi_loss
        print("network", name, preset, units, count, *image, classes, lr, loss)
        for row in layers:
            print("layer", *row)
        print("losses", *(f"{loss:.12g}" for loss in losses))
        for index, p in enumerate(model.parameters()):
            values = p.detach().numpy().reshape(-1)
            print(f"param {(values ** 2).sum() ** 0.5:.9g} {values @ vectors.test_numbers(100 + index, len(values)):.9g}")
        print("done")


if __name__ == "__main__":
    main()
