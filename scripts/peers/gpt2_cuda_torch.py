#!/usr/bin/env python3
"""Training steps of GPT-2 in PyTorch on one GPU, as fast as PyTorch does them: torch.compile, fused attention
(SDPA, by the fastest of its backends), fused AdamW, bf16 autocast; random tokens. One JSON line with medians.

    gpt2_cuda_torch.py [--batch 64] [--accumulate 8] [--steps 10] [--warmup 3] [--mode max-autotune] ...
    torchrun --standalone --nproc_per_node N gpt2_cuda_torch.py --ddp ...

With --ddp, each process has a GPU and batches of its own, gradients are averaged by DistributedDataParallel after the
last micro-batch, and rank 0 prints the line for all. The sizes are those of examples/gpt2_124m.conf. --device cpu is
for trying the script."""
import argparse
import contextlib
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

import cuda_common


class Block(nn.Module):
    def __init__(self, embed, heads, blocks):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(embed), nn.LayerNorm(embed)
        self.c_attn, self.attn_proj = nn.Linear(embed, 3 * embed), nn.Linear(embed, embed)
        self.c_fc, self.mlp_proj = nn.Linear(embed, 4 * embed), nn.Linear(4 * embed, embed)
        for linear in (self.c_attn, self.c_fc):
            nn.init.normal_(linear.weight, std=0.02)
        for linear in (self.attn_proj, self.mlp_proj):
            nn.init.normal_(linear.weight, std=0.02 / math.sqrt(2 * blocks))
        for linear in (self.c_attn, self.c_fc, self.attn_proj, self.mlp_proj):
            nn.init.zeros_(linear.bias)

    def forward(self, x):
        count, length, embed = x.shape
        q, k, v = (part.view(count, length, self.heads, embed // self.heads).transpose(1, 2)
                   for part in self.c_attn(self.ln_1(x)).split(embed, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn_proj(y.transpose(1, 2).reshape(count, length, embed))
        return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, vocab, context, blocks, heads, embed):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, embed), nn.Embedding(context, embed)
        nn.init.normal_(self.wte.weight, std=0.02)
        nn.init.normal_(self.wpe.weight, std=0.02)
        self.h = nn.ModuleList(Block(embed, heads, blocks) for _ in range(blocks))
        self.ln_f = nn.LayerNorm(embed)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.h:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


def attention_ms(a, backend):
    """Milliseconds of attention and its gradient by @backend; None: it cannot."""
    from torch.nn.attention import sdpa_kernel
    shape = (a.batch, a.context, a.heads, a.embed // a.heads)
    q, k, v = (torch.randn(shape, device=a.device, dtype=torch.bfloat16).transpose(1, 2).requires_grad_()
               for _ in range(3))
    dy = torch.randn_like(q)

    def step():
        with sdpa_kernel(backend):
            F.scaled_dot_product_attention(q, k, v, is_causal=True).backward(dy)

    try:
        return min(cuda_common.timed_ms(step, 5, 3, a.device))
    except RuntimeError:
        return None


def best_attention(a):
    """The fastest of SDPA's fused backends, and the times of all; (None, {}) where there is no choice."""
    if a.device == "cpu":
        return None, {}
    from torch.nn.attention import SDPBackend
    names = ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION")
    times = {name: attention_ms(a, getattr(SDPBackend, name)) for name in names if hasattr(SDPBackend, name)}
    times = {name: ms for name, ms in times.items() if ms is not None}
    return (getattr(SDPBackend, min(times, key=times.get)) if times else None), times


def main():
    parser = argparse.ArgumentParser()
    for name, value in (("batch", 64), ("accumulate", 8), ("steps", 10), ("warmup", 3), ("context", 1024),
                        ("vocab", 50304), ("blocks", 12), ("heads", 12), ("embed", 768)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--mode", default="default", help="of torch.compile: max-autotune takes minutes to compile")
    parser.add_argument("--ddp", action="store_true", help="one of torchrun's processes")
    a = parser.parse_args()
    rank, ranks = cuda_common.join(a)
    cuda_common.prepare()
    model = Gpt2(a.vocab, a.context, a.blocks, a.heads, a.embed).to(a.device)
    decay = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                                  lr=6e-4, betas=(0.9, 0.95), fused=True)
    attention, attention_times = best_attention(a)
    whole = cuda_common.distributed(model, a)
    run = whole if a.no_compile else torch.compile(whole, mode=a.mode)
    # as many different batches as there are micro-batches, made before
    tokens = torch.randint(0, a.vocab, (a.accumulate, a.batch, a.context + 1), device=a.device)

    def step():
        for micro in range(a.accumulate):
            cuda_common.begin_pass()
            with whole.no_sync() if a.ddp and micro + 1 < a.accumulate else contextlib.nullcontext():
                with torch.autocast(a.device, dtype=torch.bfloat16):
                    loss = run(tokens[micro, :, :-1], tokens[micro, :, 1:])
                (loss / a.accumulate).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    with contextlib.nullcontext() if attention is None else torch.nn.attention.sdpa_kernel(attention):
        times = cuda_common.timed_ms(step, a.steps, a.warmup, a.device)
    if rank == 0:
        cuda_common.report("gpt2", "tokens", ranks * a.batch * a.accumulate * a.context, times, a.device,
                           batch=a.batch, accumulate=a.accumulate, context=a.context, compiled=not a.no_compile,
                           mode=a.mode, attention=str(attention), attention_ms=attention_times, ranks=ranks)
    cuda_common.leave(a)


main()
