#!/usr/bin/env python3
"""Write tests/vectors/sampler_vectors.txt: what a real PyTorch says about data order.

    pip install torch
    python3 scripts/make_sampler_vectors.py > tests/vectors/sampler_vectors.txt

tests/samplers/test_sampler.c reads that file; neither building nor testing cddp needs Python. Lines:

    perm COUNT SEED : INDEX ...                torch.randperm(COUNT) of a generator with that seed
    hash COUNT SEED : SHA256                   the same, as the hash of its int64 little-endian bytes
    wide COUNT SEED : INDEX ...                the shuffle that PyTorch uses from 214,748,364 samples on
    shard COUNT REPLICAS RANK SEED EPOCH SHUFFLE DROP_LAST : INDEX ...    DistributedSampler

An array long enough for `wide` takes GiBs, so those lines are made here, by the algorithm that
ATen/native/TensorFactories.cpp has for them, from the 64-bit numbers that PyTorch's generator gives.
"""
import usage

usage.show(__doc__)

import hashlib
import struct
import sys

import torch
from torch.utils.data import DistributedSampler


def generator(seed):
    made = torch.Generator()
    made.manual_seed(seed)
    return made


def line(kind, *numbers, values):
    print(kind, *(int(n) for n in numbers), ":", *values)


def perm(count, seed):
    return torch.randperm(count, generator=generator(seed)).tolist()


def wide(count, seed):
    """The inside-out shuffle; draws over the whole int64 range are the generator's random64()."""
    draws = torch.empty(count, dtype=torch.int64)
    draws.random_(-(2**63), None, generator=generator(seed))
    out = list(range(count))
    for i, draw in enumerate(draws.tolist()):
        other = draw % 2**64 % (i + 1)  # a negative int64 stands for its unsigned bits
        out[i] = out[other]
        out[other] = i
    return out


def shard(count, replicas, rank, seed, epoch, shuffle, drop_last):
    sampler = DistributedSampler(range(count), num_replicas=replicas, rank=rank, shuffle=shuffle,
                                 seed=seed, drop_last=drop_last)
    sampler.set_epoch(epoch)
    made = list(sampler)
    assert len(made) == len(sampler)
    return made


def main():
    seeds = [0, 1, 2, 7, 42, -1, -2, 123456789, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**63, 2**64 - 1]
    print("# made by scripts/make_sampler_vectors.py with PyTorch", torch.__version__)
    for count in (1, 2, 3, 5, 10, 16, 23, 100):
        for seed in seeds:
            line("perm", count, seed, values=perm(count, seed))
    for count in (623, 624, 625, 1000, 1249):
        line("perm", count, 3, values=perm(count, 3))
    for count in (1000, 60000, 100000, 1000003):
        for seed in (0, 1, -1, 2**40 + 5):
            data = struct.pack("<%dq" % count, *perm(count, seed))
            line("hash", count, seed, values=[hashlib.sha256(data).hexdigest()])
    for count in (1, 2, 3, 10, 23, 100, 400):
        for seed in (0, 1, -1, 2**32 + 1):
            line("wide", count, seed, values=wide(count, seed))
    for count, replicas in ((1, 1), (1, 3), (2, 5), (3, 2), (8, 4), (10, 3), (11, 7), (100, 8)):
        for seed, epoch in ((0, 0), (0, 1), (5, 2), (-1, 0), (-3, 7), (2**32 - 1, 1), (2**33, 4)):
            for shuffle in (False, True):
                for drop_last in (False, True):
                    if not shuffle and (seed, epoch) != (0, 0):
                        continue
                    for rank in range(replicas):
                        options = (count, replicas, rank, seed, epoch, shuffle, drop_last)
                        line("shard", *options, values=shard(*options))


if __name__ == "__main__":
    sys.exit(main())
