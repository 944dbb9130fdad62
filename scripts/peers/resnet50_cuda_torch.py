#!/usr/bin/env python3
"""Training steps of ResNet-50 (v1.5) in PyTorch on one GPU, as fast as PyTorch does them: torch.compile,
channels last, bf16 autocast, fused SGD; random images that lie on the GPU. One JSON line with medians.

    resnet50_cuda_torch.py [--batch 256] [--steps 20] [--warmup 5] [--mode max-autotune] ...

The sizes are those of examples/resnet50.conf. --device cpu is for trying the script."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

import cuda_common


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)  # v1.5: the stride is here
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        self.down = None
        if stride != 1 or inputs != 4 * width:
            self.down = nn.Sequential(nn.Conv2d(inputs, 4 * width, 1, stride, bias=False),
                                      nn.BatchNorm2d(4 * width))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        return F.relu(self.bn3(self.conv3(y)) + (x if self.down is None else self.down(x)))


def resnet50(classes):
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            layers.append(Bottleneck(inputs, width, stride if block == 0 else 1))
            inputs = 4 * width
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return model


def main():
    parser = argparse.ArgumentParser()
    for name, value in (("batch", 256), ("steps", 20), ("warmup", 5), ("size", 224), ("classes", 1000)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--mode", default="default", help="of torch.compile: max-autotune takes minutes to compile")
    a = parser.parse_args()
    cuda_common.prepare()
    model = resnet50(a.classes).to(a.device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-5, fused=True)
    run = model if a.no_compile else torch.compile(model, mode=a.mode)
    images = torch.randn(a.batch, 3, a.size, a.size, device=a.device).to(memory_format=torch.channels_last)
    labels = torch.randint(0, a.classes, (a.batch,), device=a.device)

    def step():
        cuda_common.begin_pass()
        with torch.autocast(a.device, dtype=torch.bfloat16):
            loss = F.cross_entropy(run(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    times = cuda_common.timed_ms(step, a.steps, a.warmup, a.device)
    cuda_common.report("resnet50", "images", a.batch, times, a.device, batch=a.batch, size=a.size,
                       compiled=not a.no_compile, mode=a.mode)


main()
