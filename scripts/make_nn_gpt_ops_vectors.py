#!/usr/bin/env python3
"""Make tests/vectors/nn_gpt_ops_vectors.txt: layer_norm, gelu and causal attention in PyTorch, float64.

    make_nn_gpt_ops_vectors.py > tests/vectors/nn_gpt_ops_vectors.txt    (needs numpy and torch; tests need neither)

Inputs are the numbers of tests/support/nn.h, by stream. Each line has what was computed, its length
and its product with the numbers of stream 9.
"""
import usage

usage.show(__doc__)

import numpy as np
import torch
import torch.nn.functional as F
from make_nn_vectors import test_numbers


def numbers(stream, shape, scale=1.0, offset=0.0):
    """As numbers() of tests/kernels/test_nn_ops_gpt.c: in float32, then exact."""
    x = test_numbers(stream, int(np.prod(shape)))
    x = np.float32(offset) + np.float32(scale) * x
    return torch.from_numpy(x.astype(np.float64)).reshape(shape).requires_grad_()


def show(name, value):
    v = value.detach().numpy().reshape(-1)
    print(f"{name} {np.linalg.norm(v):.12g} {v @ test_numbers(9, v.size).astype(np.float64):.12g}")


def main():
    torch.set_num_threads(1)
    print(f"made_by scripts/make_nn_gpt_ops_vectors.py torch-{torch.__version__}")

    x, dy = numbers(1, (6, 100), 2, 0.5), numbers(2, (6, 100))
    weight, bias = numbers(3, 100, 1, 1), numbers(4, 100)
    y = F.layer_norm(x, (100,), weight, bias, 1e-5)
    y.backward(dy)
    for name, value in (("out", y), ("dx", x.grad), ("dweight", weight.grad), ("dbias", bias.grad)):
        show("layer_norm." + name, value)

    for approximate in ("tanh", "none"):
        x, dy = numbers(1, 1000, 5), numbers(2, 1000)
        y = F.gelu(x, approximate=approximate)
        y.backward(dy)
        show(f"gelu.{approximate}.out", y)
        show(f"gelu.{approximate}.dx", x.grad)

    for n, t, heads, width in ((2, 150, 3, 16), (1, 300, 2, 24)):
        e = heads * width
        qkv, dy = numbers(1, (n, t, 3 * e), 2), numbers(2, (n, t, e))
        q, k, v = (part.reshape(n, t, heads, width).transpose(1, 2) for part in qkv.split(e, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(n, t, e)
        y.backward(dy)
        show(f"attention.{t}.out", y)
        show(f"attention.{t}.dqkv", qkv.grad)
    print("end")


if __name__ == "__main__":
    main()
