#!/usr/bin/env python3
"""Writes tests/vectors/optim_vectors.json: what torch.optim.SGD and AdamW make of fixed gradients, and
torch.amp.GradScaler's rule of overflows.

    python scripts/make_optim_vectors.py tests/vectors/optim_vectors.json     (needs torch)

The test suite itself needs neither Python nor this script. All values are float32, written as
decimals that read back exactly.
"""
import usage

usage.show(__doc__)

import json
import sys

import torch

STEPS = 30
KEPT = [1, 2, 3, 10, 30]  # parameters are recorded after these steps
SHAPES = {"w": [5, 7], "b": [3]}  # b has no weight decay in cases with "decays": [true, false]

CASES = [
    dict(name="sgd", type="sgd", lr=0.1),
    dict(name="sgd, weight decay", type="sgd", lr=0.1, weight_decay=0.01),
    dict(name="sgd, momentum", type="sgd", lr=0.05, momentum=0.9),
    dict(name="sgd, momentum, weight decay", type="sgd", lr=0.05, momentum=0.9, weight_decay=5e-4),
    dict(name="sgd, nesterov", type="sgd", lr=0.05, momentum=0.9, nesterov=True),
    dict(name="sgd, nesterov, weight decay on w only", type="sgd", lr=0.05, momentum=0.8,
         nesterov=True, weight_decay=0.1, decays=[True, False]),
    dict(name="adamw", type="adamw", lr=1e-2, weight_decay=0.0),
    dict(name="adamw, weight decay", type="adamw", lr=1e-2, weight_decay=0.1),
    dict(name="adamw, weight decay on w only, betas", type="adamw", lr=3e-3, weight_decay=0.2,
         betas=[0.8, 0.99], eps=1e-6, decays=[True, False]),
    dict(name="adamw, b without gradients until step 5", type="adamw", lr=1e-2, weight_decay=0.05,
         b_begins=5),
]


def values(tensor):
    return [float(v) for v in tensor.detach().flatten()]


def run(case, initial, grads):
    params = [torch.nn.Parameter(initial[name].clone()) for name in SHAPES]
    decays = case.get("decays", [True, True])
    decay = case.get("weight_decay", 0.0)
    groups = [{"params": [p], "weight_decay": decay if d else 0.0} for p, d in zip(params, decays)]
    if case["type"] == "sgd":
        optimizer = torch.optim.SGD(groups, lr=case["lr"], momentum=case.get("momentum", 0.0),
                                    nesterov=case.get("nesterov", False))
    else:
        optimizer = torch.optim.AdamW(groups, lr=case["lr"],
                                      betas=case.get("betas", [0.9, 0.999]),
                                      eps=case.get("eps", 1e-8))
    kept = []
    for step in range(STEPS):
        for name, param in zip(SHAPES, params):
            held_back = name == "b" and step < case.get("b_begins", 0)
            param.grad = None if held_back else grads[step][name].clone()
        optimizer.step()
        if step + 1 in KEPT:
            kept.append([values(p) for p in params])
    return kept


def scaler(initial, growth, backoff, interval, overflows):
    """The scale after each of the steps; overflows: a string of 0 and 1."""
    scale = torch.full((1,), initial)
    tracker = torch.zeros(1, dtype=torch.int32)
    scales = []
    for letter in overflows:
        torch._amp_update_scale_(scale, tracker, torch.full((1,), float(letter)), growth, backoff,
                                 interval)
        scales.append(float(scale))
    return dict(initial=initial, growth=growth, backoff=backoff, interval=interval,
                overflows=overflows, scales=scales)


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    initial = {name: torch.randn(shape) for name, shape in SHAPES.items()}
    grads = [{name: torch.randn(shape) * 0.3 for name, shape in SHAPES.items()}
             for _ in range(STEPS)]
    out = {
        "torch": torch.__version__,
        "shapes": list(SHAPES.values()),
        "names": list(SHAPES),
        "kept": KEPT,
        "initial": [values(initial[name]) for name in SHAPES],
        "grads": [[values(g[name]) for name in SHAPES] for g in grads],
        "cases": [dict(case, params=run(case, initial, grads)) for case in CASES],
        "scalers": [
            scaler(65536.0, 2.0, 0.5, 5, "0000000100000100011000000000001000000000000"),
            scaler(2.0 ** 126, 2.0, 0.5, 2, "0000000010"),
            scaler(1000.0, 1.5, 0.3, 1, "0110001"),
        ],
    }
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump(out, file, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
