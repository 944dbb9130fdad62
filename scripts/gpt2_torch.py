"""gpt2_torch - a plain GPT-2 in PyTorch, for what checks cddp's against it: a function of a dictionary of
tensors with Hugging Face's names (without "transformer.")."""
import math

import torch
import torch.nn.functional as F

LINEAR = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")


def shapes(vocab, context, blocks, embed):
    """Names and shapes in cddp's order; linear weights outputs x inputs."""
    out = {"wte.weight": (vocab, embed), "wpe.weight": (context, embed)}
    for n in range(blocks):
        for name, *shape in (("ln_1.weight", embed), ("ln_1.bias", embed),
                             ("attn.c_attn.weight", 3 * embed, embed), ("attn.c_attn.bias", 3 * embed),
                             ("attn.c_proj.weight", embed, embed), ("attn.c_proj.bias", embed),
                             ("ln_2.weight", embed), ("ln_2.bias", embed),
                             ("mlp.c_fc.weight", 4 * embed, embed), ("mlp.c_fc.bias", 4 * embed),
                             ("mlp.c_proj.weight", embed, 4 * embed), ("mlp.c_proj.bias", embed)):
            out[f"h.{n}.{name}"] = tuple(shape)
    return out | {"ln_f.weight": (embed,), "ln_f.bias": (embed,)}


def initial(vocab, context, blocks, embed):
    """As GPT-2 begins: normal with deviation 0.02, residual projections less, norms 1, biases 0."""
    out = {}
    for name, shape in shapes(vocab, context, blocks, embed).items():
        if len(shape) == 1:
            out[name] = torch.ones(shape) if name.endswith("weight") else torch.zeros(shape)
        else:
            residual = name.endswith("c_proj.weight")
            out[name] = torch.randn(shape) * (0.02 / math.sqrt(2 * blocks) if residual else 0.02)
    return out


def turned(weights):
    """Linear weights the other way round: from cddp's layout to Hugging Face's Conv1D, or back."""
    return {name: tensor.t().contiguous() if name.endswith(LINEAR) else tensor
            for name, tensor in weights.items()}


def logits(weights, tokens, heads):
    """tokens: count x T; weights: Hugging Face's layout (inputs x outputs). The head is wte."""
    count, length = tokens.shape
    embed = weights["wte.weight"].shape[1]
    x = weights["wte.weight"][tokens] + weights["wpe.weight"][:length]
    mask = torch.tril(torch.ones(length, length, dtype=torch.bool))

    def norm(name, value):
        return F.layer_norm(value, (embed,), weights[name + ".weight"], weights[name + ".bias"], 1e-5)

    def linear(name, value):
        return value @ weights[name + ".weight"] + weights[name + ".bias"]

    block = 0
    while f"h.{block}.ln_1.weight" in weights:
        h = f"h.{block}."
        q, k, v = (part.view(count, length, heads, embed // heads).transpose(1, 2)
                   for part in linear(h + "attn.c_attn", norm(h + "ln_1", x)).split(embed, dim=2))
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(embed // heads)
        y = torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1) @ v
        x = x + linear(h + "attn.c_proj", y.transpose(1, 2).reshape(count, length, embed))
        inner = linear(h + "mlp.c_fc", norm(h + "ln_2", x))
        inner = 0.5 * inner * (1 + torch.tanh(math.sqrt(2 / math.pi) * (inner + 0.044715 * inner**3)))
        x = x + linear(h + "mlp.c_proj", inner)
        block += 1
    return norm("ln_f", x) @ weights["wte.weight"].t()
