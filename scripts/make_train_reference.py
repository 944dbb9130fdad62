#!/usr/bin/env python3
"""Writes tests/vectors/reference_init.safetensors and reference_mlp.json: PyTorch's losses of 50 steps
of a small MLP on Fashion-MNIST, which tests/train/test_train.c follows at several numbers of ranks.

    python3 scripts/make_train_reference.py      (needs torch; the test needs only its output)

Order of the samples: torch.randperm with a generator seeded by seed + epoch, which is what
torch.utils.data.DistributedSampler does and data.order = "torch" repeats.
"""
import usage

usage.show(__doc__)

import gzip
import json
import os
import struct

import torch

SEED, BATCH, STEPS, LR, MOMENTUM = 1, 256, 50, 0.05, 0.9
MEAN, STD = 0.2860, 0.3530
DATA = "/usr/share/datasets/fashion-mnist"
HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "vectors")


def read_idx(name):
    with gzip.open(os.path.join(DATA, name), "rb") as file:
        raw = file.read()
    dims = raw[3]
    shape = struct.unpack(">%dI" % dims, raw[4:4 + 4 * dims])
    return torch.frombuffer(bytearray(raw[4 + 4 * dims:]), dtype=torch.uint8).reshape(shape)


def write_safetensors(path, tensors):
    header, offset = {}, 0
    for name, tensor in tensors.items():
        size = tensor.numel() * 4
        header[name] = {"dtype": "F32", "shape": list(tensor.shape),
                        "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % 64)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(tensor.contiguous().numpy().astype("<f4").tobytes())


def main():
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    layers = {"fc1": torch.nn.Linear(784, 32), "fc2": torch.nn.Linear(32, 32),
              "fc3": torch.nn.Linear(32, 10)}
    model = torch.nn.ModuleDict(layers)
    os.makedirs(HERE, exist_ok=True)
    write_safetensors(os.path.join(HERE, "reference_init.safetensors"),
                      {name: p.detach() for name, p in model.named_parameters()})
    images = (read_idx("train-images-idx3-ubyte.gz").reshape(-1, 784).float() / 255 - MEAN) / STD
    labels = read_idx("train-labels-idx1-ubyte.gz").long()
    generator = torch.Generator()
    generator.manual_seed(SEED)
    order = torch.randperm(len(images), generator=generator)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM)
    losses = []
    for step in range(STEPS):
        take = order[step * BATCH:(step + 1) * BATCH]
        x = torch.relu(model["fc1"](images[take]))
        x = torch.relu(model["fc2"](x))
        loss = torch.nn.functional.cross_entropy(model["fc3"](x), labels[take])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with open(os.path.join(HERE, "reference_mlp.json"), "w") as file:
        json.dump({"torch": torch.__version__, "batch_size": BATCH, "lr": LR, "momentum": MOMENTUM,
                   "seed": SEED, "losses": losses}, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
