"""The networks of `scripts/bench --only shapes`, each as a dictionary that both cddp and PyTorch are made from.

    name, image [channels, height, width], classes, batch (samples a rank), layers as in train.conf(5)
    name, gpt (blocks, heads, embed, context, vocab), batch

Common networks by name, and random ones, which depend on their number only. Nothing but the standard library.
"""
import random

WIDE = (48, 63, 64, 65, 100, 128)
BATCHES = (1, 2, 3, 5, 7, 8, 16, 31, 32, 64)


def layer(kind, **values):
    return dict(type=kind, **values)


def conv(units, kernel, padding=0, **values):
    return layer("conv2d", units=units, kernel=kernel, padding=padding, **values)


def lenet5():
    return [conv(6, 5, 2), layer("relu"), layer("max_pool"), conv(16, 5), layer("relu"), layer("max_pool"),
            layer("flatten"), layer("linear", units=120), layer("relu"), layer("linear", units=84), layer("relu"),
            layer("linear", units=10)]


def vgg11():
    layers = []
    for units in (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512):
        layers += [conv(units, 3, 1), layer("relu")] if units else [layer("max_pool")]
    return layers + [layer("flatten"), layer("linear", units=512), layer("relu"), layer("dropout"),
                     layer("linear", units=10)]


def alexnet():
    pool = layer("max_pool", kernel=3, stride=2)
    layers = [conv(64, 5, 2), layer("relu"), pool, conv(192, 5, 2), layer("relu"), pool]
    for units in (384, 256, 256):
        layers += [conv(units, 3, 1), layer("relu")]
    layers += [pool, layer("flatten")]
    for units in (1024, 1024):
        layers += [layer("dropout"), layer("linear", units=units), layer("relu")]
    return layers + [layer("linear", units=10)]


def resnet20(widths):
    layers = [conv(widths[0], 3, 1, bias=False), layer("batch_norm"), layer("relu", name="r0")]
    before, last = widths[0], "r0"
    for stage, width in enumerate(widths):
        for block in range(3):
            at = f"s{stage}b{block}"
            stride = 2 if stage > 0 and block == 0 else 1
            layers += [conv(width, 3, 1, stride=stride, bias=False, input=last), layer("batch_norm"), layer("relu"),
                       conv(width, 3, 1, bias=False), layer("batch_norm", name=f"{at}main")]
            short = last
            if stride != 1 or before != width:
                layers += [conv(width, 1, stride=stride, bias=False, input=last),
                           layer("batch_norm", name=f"{at}short")]
                short = f"{at}short"
            layers += [layer("add", input=f"{at}main", input2=short), layer("relu", name=f"{at}out")]
            before, last = width, f"{at}out"
    return layers + [layer("global_avg_pool"), layer("linear", units=10)]


def image_network(name, batch, layers, image=(1, 28, 28), classes=10):
    return dict(name=name, batch=batch, image=list(image), classes=classes, layers=layers)


def gpt(batch):
    return dict(name=f"GPT batch {batch}", batch=batch,
                gpt=dict(blocks=2, heads=3, embed=48, context=65, vocab=4097))


def named():
    odd = [layer("flatten"), layer("linear", units=77), layer("relu"), layer("linear", units=13)]
    return [image_network("LeNet-5", 64, lenet5()), image_network("VGG-11", 16, vgg11()),
            image_network("AlexNet", 16, alexnet()),
            image_network("ResNet-20 12/20/33", 32, resnet20((12, 20, 33))),
            image_network("MLP 129-77-13", 64, odd, (1, 3, 43), 13), gpt(1), gpt(3)]


def pick_units(rng):
    return rng.choice(WIDE) if rng.random() < 0.1 else rng.randint(1, 40)


def out_size(size, kernel, stride, padding):
    return (size + 2 * padding - kernel) // stride + 1


def random_convolution(rng, size, batch):
    """Layers of one convolution, and the size of their output."""
    kernel = rng.randint(1, min(7, min(size)))
    stride = rng.choice((1, 1, 1, 2, 3))
    padding = rng.randint(0, kernel // 2)
    norm = rng.random() < 0.4
    size = [out_size(n, kernel, stride, padding) for n in size]
    # statistics of a single value are none: PyTorch refuses them
    norm = norm and batch * size[0] * size[1] > 1
    layers = [conv(pick_units(rng), kernel, padding, stride=stride, bias=not norm)]
    layers += [layer("batch_norm")] if norm else []
    layers += [layer("relu" if rng.random() < 0.9 else "gelu")]
    kernel = rng.randint(2, 3)
    if rng.random() < 0.4 and min(size) >= kernel:
        kind = rng.choice(("max_pool", "max_pool", "avg_pool"))
        stride = rng.randint(1, 3)
        padding = rng.randint(0, kernel // 2) if kind == "max_pool" else 0
        layers += [layer(kind, kernel=kernel, stride=stride, padding=padding)]
        size = [out_size(n, kernel, stride, padding) for n in size]
    return layers, size


def random_network(number):
    rng = random.Random(number)
    batch = rng.choice(BATCHES)
    image = [rng.randint(1, 4), rng.randint(6, 32), rng.randint(6, 32)]
    classes = rng.randint(2, 20)
    size, layers = image[1:], []
    for _ in range(rng.randint(1, 4) if rng.random() < 0.9 else 0):
        more, size = random_convolution(rng, size, batch)
        layers += more
    layers += [layer("global_avg_pool")] if layers and rng.random() < 0.3 else [layer("flatten")]
    for _ in range(rng.randint(0, 2)):
        layers += [layer("linear", units=rng.randint(1, 200)), layer("relu")]
        layers += [layer("dropout", probability=0.25)] if rng.random() < 0.2 else []
    return image_network(f"random {number}", batch, layers + [layer("linear", units=classes)], image, classes)


def networks(count):
    """The named ones and @count random ones, in their order."""
    return named() + [random_network(number) for number in range(1, count + 1)]


def value_text(value):
    return f'"{value}"' if isinstance(value, str) else str(value).lower()


def conf(network):
    """A configuration for cddp-train: random data, a fixed rate, SGD with momentum (GPT: AdamW)."""
    if "gpt" in network:
        sizes = "".join(f" {key} = {value};" for key, value in network["gpt"].items())
        return f'model = {{ type = "gpt2";{sizes} }};\ndata = {{ type = "synthetic"; samples = 256; }};\n' \
               'optimizer = { type = "adamw"; lr = 3e-4; weight_decay = 0.01; decay_all = true; };\n'
    rows = ",\n".join("{ " + " ".join(f"{key} = {value_text(value)};" for key, value in row.items()) + " }"
                      for row in network["layers"])
    return f'model = {{ type = "layers"; layers = (\n{rows}\n); }};\n' \
           f'data = {{ type = "synthetic"; samples = 512; image = {network["image"]}; ' \
           f'classes = {network["classes"]}; }};\n' \
           'optimizer = { type = "sgd"; lr = 0.001; momentum = 0.9; };\n'


def describe(network):
    """Sizes in one line, for a table."""
    if "gpt" in network:
        return ", ".join(f"{key} {value}" for key, value in network["gpt"].items())
    words = ["x".join(map(str, network["image"]))]
    for row in network["layers"]:
        if row["type"] == "conv2d":
            words.append(f"c{row['units']}k{row['kernel']}s{row.get('stride', 1)}p{row['padding']}")
        elif row["type"] == "linear":
            words.append(f"fc{row['units']}")
        elif row["type"] in ("max_pool", "avg_pool"):
            words.append(f"{row['type'][:3]}{row.get('kernel', 2)}")
        elif row["type"] == "batch_norm":
            words.append("bn")
    return " ".join(words)
