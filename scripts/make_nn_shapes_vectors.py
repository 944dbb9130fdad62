#!/usr/bin/env python3
"""Make tests/vectors/nn_shapes_vectors.txt: 8 steps of SGD, in float64, of LeNet-5 and of random networks.

    make_nn_shapes_vectors.py > tests/vectors/nn_shapes_vectors.txt      (needs numpy and torch; tests need neither)

The networks are small ones of those that `scripts/bench --only shapes` times. Initial parameters and data come from
the Philox streams of make_nn_vectors.py. A network's seed is the first one with which no number that a ReLU or a
pool compares is so near to zero, or to its rival, that float32 could decide otherwise.
"""
import usage

usage.show(__doc__)

import os, sys
import torch
import torch.nn as nn
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers"))
import make_nn_vectors as vectors
import shapes
import shapes_torch

STEPS, LR, MOMENTUM = 8, 0.05, 0.9
MARGIN = 5e-6       # of a layer's root mean square
SAME = 1e-6         # of a loss, float32 beside float64
NUMBERS, MOST = 16, 3000  # so many random networks of at most so many activations a sample
BATCH = 5           # at most


class TooClose(Exception):
    pass


def watch(part, inputs, _):
    x = inputs[0].detach()
    near = MARGIN * float(x.square().mean().sqrt())
    if isinstance(part, nn.ReLU) and bool((x.abs() < near).any()):
        raise TooClose
    if isinstance(part, nn.MaxPool2d):
        padded = F.pad(x, [part.padding] * 4, value=-1e30)
        windows = padded.unfold(2, part.kernel_size, part.stride).unfold(3, part.kernel_size, part.stride)
        best = windows.flatten(4).topk(2, -1).values
        gap = best[..., 0] - best[..., 1]
        if bool(((gap > 0) & (gap < near)).any()):
            raise TooClose


def train(network, seed, dtype):
    """The model after STEPS steps, and their losses."""
    vectors.SEED = seed
    torch.set_default_dtype(dtype)
    model = shapes_torch.Graph(network)
    vectors.initialise(model)
    model.to(dtype)
    if dtype == torch.float64:
        for part in model.parts:
            part.register_forward_hook(watch)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM)
    count, image = network["batch"], network["image"]
    elements = count * image[0] * image[1] * image[2]
    data = torch.from_numpy(vectors.test_numbers(1, STEPS * elements)).to(dtype).view(STEPS, count, *image)
    losses = []
    for step in range(STEPS):
        label = torch.tensor([(step * count + i) * 7 % 5 % network["classes"] for i in range(count)])
        loss = F.cross_entropy(model(data[step]), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return model, losses


def find(network):
    """(seed, model, losses) of the first seed that float32 follows."""
    for seed in range(1, 200):
        try:
            model, losses = train(network, seed, torch.float64)
        except TooClose:
            continue
        plain = train(network, seed, torch.float32)[1]
        if all(abs(a - b) <= SAME * b for a, b in zip(plain, losses)):
            return seed, model, losses
    return None


def chosen():
    lenet = dict(shapes.named()[0], batch=3)
    yield lenet
    for number in range(1, 200):
        network = shapes.random_network(number)
        network["batch"] = min(network["batch"], BATCH)
        if any(row["type"] == "dropout" for row in network["layers"]):
            continue # its random numbers are our own
        try:
            model = shapes_torch.Graph(network)
            x, total = torch.zeros(network["batch"], *network["image"]), 0
            for part in model.parts:
                x = part(x)
                total += x.numel()
        except ValueError:
            continue # with the smaller batch a batch norm has a single value
        if total <= MOST * network["batch"]:
            yield network


def main():
    torch.set_num_threads(1)
    print(f"made_by scripts/make_nn_shapes_vectors.py torch-{torch.__version__} lr {LR} momentum {MOMENTUM}")
    made = 0
    for network in chosen():
        found = find(network)
        if found is None:
            print("no seed for", network["name"], file=sys.stderr)
            continue
        seed, model, losses = found
        print("network", network["name"].replace(" ", "-"), seed, network["batch"], *network["image"],
              network["classes"])
        for row in network["layers"]:
            print("layer", row["type"], row.get("units", 0), row.get("kernel", 0), row.get("stride", 0),
                  row.get("padding", 0), int(not row.get("bias", True)))
        print("losses", *(f"{loss:.12g}" for loss in losses))
        for index, p in enumerate(model.parameters()):
            values = p.detach().numpy().reshape(-1)
            print(f"param {(values ** 2).sum() ** 0.5:.9g} {values @ vectors.test_numbers(100 + index, len(values)):.9g}")
        for name, buffer in model.named_buffers():
            if not name.endswith("num_batches_tracked"):
                print(f"buffer {float(buffer.norm()):.9g}")
        print("done")
        made += 1
        if made == NUMBERS + 1:
            break


if __name__ == "__main__":
    main()
