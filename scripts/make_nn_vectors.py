#!/usr/bin/env python3
"""Make tests/vectors/nn_vectors.txt: what PyTorch computes, in float64, for the preset models.

    make_nn_vectors.py > tests/vectors/nn_vectors.txt        (needs numpy and torch; tests need neither)

Initial parameters and data come from the same Philox streams as in src/trainer/nn/model_params.c and
tests/support/nn.h, written down here a second time.
"""
import usage

usage.show(__doc__)

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

# With this seed nothing that enters a ReLU of the first three models lies within 5e-6 of its standard
# deviation from zero, so that float32 ends on the right side of the kink however a processor adds.
SEED, CLASSES = 45, 10
# Roundings grow ten thousandfold through resnet50 as it is initialised, with images so small that its last
# batch norms are over one pixel a sample: more samples and weak branches keep it comparable.
COUNTS = {"mlp": 4, "cnn": 4, "resnet20": 4, "resnet50": 32}
BRANCH = 0.1  # the weight of each branch's last batch norm, resnet50 only
INIT, TEST, TEST_SEED = 2, 5, 7


def philox(seed, purpose, index, counters):
    """words[4] of Philox4x32-10 for each counter"""
    c = np.asarray(counters, np.uint64)
    m = np.uint64(0xFFFFFFFF)
    x = [c & m, c >> np.uint64(32), np.full_like(c, purpose), np.full_like(c, index)]
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        p0, p1 = x[0] * np.uint64(0xD2511F53), x[2] * np.uint64(0xCD9E8D57)
        s = np.uint64(32)
        x = [(p1 >> s) ^ x[1] ^ np.uint64(k0), p1 & m, (p0 >> s) ^ x[3] ^ np.uint64(k1), p0 & m]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack(x, 1)


def words(seed, purpose, index, count):
    return philox(seed, purpose, index, np.arange((count + 3) // 4))


def uniform(w):
    return (w >> np.uint64(8)).astype(np.float64) * 2.0**-24


def test_numbers(stream, count):
    return (2 * uniform(words(TEST_SEED, TEST, stream, count)) - 1).reshape(-1)[:count].astype(np.float32)


def initial(index, shape, normal):
    count = int(np.prod(shape))
    w = words(SEED, INIT, index, count)
    if normal:
        u = (w[:, 0::2].astype(np.float64) + 1) * 2.0**-32
        angle = 2 * np.pi * (w[:, 1::2].astype(np.float64) * 2.0**-32)
        radius = np.sqrt(2 / (shape[0] * shape[2] * shape[3])) * np.sqrt(-2 * np.log(u))
        v = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 2)
    else:
        v = (2 * uniform(w) - 1) / np.sqrt(np.prod(shape[1:]))
    return v.reshape(-1)[:count].astype(np.float32).reshape(shape)


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(784, 512), nn.Linear(512, 512), nn.Linear(512, CLASSES)

    def forward(self, x):
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x.flatten(1))))))


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
        self.fc1, self.fc2 = nn.Linear(9216, 128), nn.Linear(128, CLASSES)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


class Block(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o)
        self.conv2, self.bn2 = nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o)
        self.shortcut = None
        if stride != 1:
            self.shortcut = nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (x if self.shortcut is None else self.shortcut(x)))


class ResNet20(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(1, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        i = 16
        for stage, o in enumerate((16, 32, 64), 1):
            blocks = [Block(i if k == 0 else o, o, 2 if stage > 1 and k == 0 else 1) for k in range(3)]
            setattr(self, f"layer{stage}", nn.Sequential(*blocks))
            i = o
        self.fc = nn.Linear(64, CLASSES)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        return self.fc(self.layer3(self.layer2(self.layer1(x))).mean((2, 3)))


class Bottleneck(nn.Module):
    def __init__(self, i, o, stride, first):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(i, o, 1, bias=False), nn.BatchNorm2d(o)
        self.conv2, self.bn2 = nn.Conv2d(o, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o)
        self.conv3, self.bn3 = nn.Conv2d(o, 4 * o, 1, bias=False), nn.BatchNorm2d(4 * o)
        self.downsample = None
        if first:
            self.downsample = nn.Sequential(nn.Conv2d(i, 4 * o, 1, stride, bias=False), nn.BatchNorm2d(4 * o))

    def forward(self, x):
        y = F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))
        return F.relu(self.bn3(self.conv3(y)) + (x if self.downsample is None else self.downsample(x)))


class ResNet50(nn.Module):  # torchvision's, a sixteenth as wide
    def __init__(self, width=4):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(1, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width)
        i = width
        for stage, count in enumerate((3, 4, 6, 3), 1):
            o = width << (stage - 1)
            blocks = []
            for k in range(count):
                blocks.append(Bottleneck(i, o, 2 if stage > 1 and k == 0 else 1, k == 0))
                i = 4 * o
            setattr(self, f"layer{stage}", nn.Sequential(*blocks))
        self.fc = nn.Linear(i, CLASSES)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        return self.fc(self.layer4(self.layer3(self.layer2(self.layer1(x)))).mean((2, 3)))


def initialise(model):
    weights = {}
    for index, (name, p) in enumerate(model.named_parameters()):
        if p.dim() > 1 or not isinstance(model.get_submodule(name.rpartition(".")[0]), nn.BatchNorm2d):
            shape = tuple(p.shape)
            if p.dim() == 1:  # a bias: the bound is its weight's
                w = words(SEED, INIT, index, shape[0])
                fan_in = np.prod(weights[name.replace("bias", "weight")][1:])
                v = ((2 * uniform(w) - 1) / np.sqrt(fan_in)).reshape(-1)[:shape[0]].astype(np.float32)
            else:
                v = initial(index, shape, isinstance(model, (ResNet20, ResNet50)) and p.dim() == 4)
            weights[name] = shape
            p.data = torch.from_numpy(v.astype(np.float64)).reshape(shape)


def text(values):
    return " ".join(f"{float(v):.9g}" for v in np.asarray(values).reshape(-1))


def main():
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    print(f"made_by scripts/make_nn_vectors.py torch-{torch.__version__} seed {SEED}")
    for name, make in (("mlp", Mlp), ("cnn", Cnn), ("resnet20", ResNet20), ("resnet50", ResNet50)):
        count = COUNTS[name]
        x = torch.from_numpy(test_numbers(1, count * 784).astype(np.float64)).reshape(count, 1, 28, 28)
        label = torch.tensor([i * 7 % 5 for i in range(count)])
        model = make()
        initialise(model)
        for n, p in model.named_parameters():
            if n.endswith("bn3.weight"):
                p.data.fill_(BRANCH)
        model.train()
        y = model(x)
        loss = F.cross_entropy(y, label, reduction="sum")
        loss.backward()
        print(f"model {name} {count} {loss.item():.12g}")
        print(f"outputs {text(y.detach())}")
        for index, (n, p) in enumerate(model.named_parameters()):
            probe = test_numbers(100 + index, p.numel()).astype(np.float64)
            g = p.grad.numpy().reshape(-1)
            print(f"grad {n} {np.linalg.norm(g):.9g} {g @ probe:.9g}")
        for n, b in model.named_buffers():
            if not n.endswith("num_batches_tracked"):
                print(f"buffer {n} {np.linalg.norm(b.numpy()):.9g}")
        model.eval()
        print(f"evaluated {text(model(x).detach())}")
    print("end")


if __name__ == "__main__":
    main()
