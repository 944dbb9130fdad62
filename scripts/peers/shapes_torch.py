#!/usr/bin/env python3
"""PyTorch's side of `scripts/bench --only shapes`: two ranks that wait for networks on rank 0's standard input.

Each line is a number of seconds and the name of a network of shapes.py; the answer is one JSON line, the step of
one rank alone (no DDP) and of two ranks (DDP over gloo), in ms. While rank 0 is alone, rank 1 sleeps in a barrier.
"""
import json, os, sys, time
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
import peercommon as pc
import shapes

SAMPLES = 512
WARMUP, LEAST, MOST = 4, 8, 400


class Graph(nn.Module):
    """The layers of a train.conf, each after the one before it or after those it names."""

    def __init__(self, network):
        super().__init__()
        self.rows = network["layers"]
        self.parts = nn.ModuleList()
        shape = (1, *network["image"])
        shapes_of = {}
        for row in self.rows:
            shape = shapes_of[row["input"]] if "input" in row else shape
            part = make_layer(row, shape)
            self.parts.append(part)
            if row["type"] != "add":
                with torch.no_grad():
                    shape = tuple(part.eval()(torch.zeros(shape)).shape)
                part.train()
            shapes_of[row.get("name")] = shape
        self.kept = {row[key] for row in self.rows for key in ("input", "input2") if key in row}

    def forward(self, x):
        kept = {}
        for row, part in zip(self.rows, self.parts):
            x = kept[row["input"]] if "input" in row else x
            x = x + kept[row["input2"]] if row["type"] == "add" else part(x)
            if row.get("name") in self.kept:
                kept[row["name"]] = x
        return x


def make_layer(row, shape):
    kind = row["type"]
    if kind == "conv2d":
        return nn.Conv2d(shape[1], row["units"], row["kernel"], row.get("stride", 1), row["padding"],
                         bias=row.get("bias", True))
    if kind in ("max_pool", "avg_pool"):
        kernel = row.get("kernel", 2)
        make = nn.MaxPool2d if kind == "max_pool" else nn.AvgPool2d
        return make(kernel, row.get("stride", kernel), row.get("padding", 0))
    if kind == "global_avg_pool":
        return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    if kind == "linear":
        return nn.Linear(shape[1], row["units"])
    if kind == "batch_norm":
        return nn.BatchNorm2d(shape[1])
    if kind == "dropout":
        return nn.Dropout(row.get("probability", 0.5))
    return {"relu": nn.ReLU, "flatten": nn.Flatten, "add": nn.Identity,
            "gelu": lambda: nn.GELU(approximate="tanh")}[kind]()


def make(network):
    """The module, all inputs, all labels."""
    if "gpt" in network:
        size = network["gpt"]
        tokens = torch.randint(size["vocab"], (SAMPLES, size["context"] + 1))
        return (pc.GPT2Mini(size["blocks"], size["heads"], size["embed"], size["vocab"], size["context"]),
                tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
    return (Graph(network), torch.rand(SAMPLES, *network["image"]) - 0.5,
            torch.randint(network["classes"], (SAMPLES,)))


def times(network, seconds, rank, together):
    """Seconds of each step after warm-up; every rank makes the same number of steps."""
    torch.manual_seed(1)
    net, x, y = make(network)
    model = DDP(net, gradient_as_bucket_view=True) if together else net
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True) if "gpt" in network else \
        torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9, fused=True)
    batch, order = network["batch"], torch.randperm(SAMPLES)
    taken, at, steps = [], 0, WARMUP
    while len(taken) < steps:
        begin = time.perf_counter()
        pick = order[at:at + batch]
        at = at + batch if at + 2 * batch <= SAMPLES else 0
        out = model(x[pick])
        loss = F.cross_entropy(out.view(-1, out.shape[-1]), y[pick].view(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        taken.append(time.perf_counter() - begin)
        if len(taken) == WARMUP:
            steps = torch.tensor([WARMUP + min(MOST, max(LEAST, int(seconds / pc.med(taken[1:]))))])
            if together:
                dist.broadcast(steps, 0)
            steps = int(steps)
    return taken[WARMUP:]


def answer(line, rank):
    seconds, _, name = line.partition(" ")
    network = next(n for n in shapes.named() + [shapes.random_network(int(w)) for w in name.split()[1:]
                                                if name.startswith("random")] if n["name"] == name)
    alone = times(network, float(seconds), rank, False) if rank == 0 else None
    dist.barrier()
    both = times(network, float(seconds), rank, True)
    if rank == 0:
        pc.emit({"name": name, "x1_ms": 1e3 * pc.med(alone), "x2_ms": 1e3 * pc.med(both), "steps": len(alone)})


def main():
    if not pc.launched():
        sys.exit(pc.launch(os.path.abspath(__file__), [], 2, timeout=1e9))
    rank = int(os.environ["RANK"])
    pc.pin(rank, "rank")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    while True:
        line = [sys.stdin.readline().strip() if rank == 0 else None]
        dist.broadcast_object_list(line, 0)
        if not line[0]:
            break
        answer(line[0], rank)
    pc.finish()


if __name__ == "__main__":
    main()
