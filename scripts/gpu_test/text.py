"""text - the part `text`: a small GPT on text that people wrote, in float32 by our own kernels and in 16 bits by the
libraries'. What is wrong in a gradient shows in what is learnt, which random tokens would hide."""
import os

from .machine import Failed, med
from .training import run_conf

# Warmed up, and at a rate at which float32 and bf16 stay together for so many steps on the processor, too (losses
# within 2e-3). At 1e-3 from the first step gradients' norms reach 200, and rounding alone parts them by 5e-2.
STEPS = 50
TEXTS = ("tests/vectors/genesis.txt",)
SIZES = {False: {"blocks": 4, "heads": 4, "embed": 256, "context": 256, "batch": 16, "steps": STEPS},
         True: {"blocks": 1, "heads": 2, "embed": 16, "context": 16, "batch": 4, "steps": 6}}
# Relative: how far each loss may be from float32's, and the median of the gradients' norms. Single norms wander more
# as the runs' parameters part.
LIMITS = {"bf16": (1e-2, 2e-2), "fp16": (5e-3, 1e-2)}
CONF = """data = {{ type = "text"; train = [{texts}]; }};
model = {{ type = "gpt2"; blocks = {blocks}; heads = {heads}; embed = {embed}; context = {context}; }};
train = {{ epochs = 1000; max_steps = {steps}; batch_size = {batch}; eval_batch_size = {batch}; clip_norm = 1.0;
          generate_steps = 0; seed = 1; }};
optimizer = {{ type = "adamw"; lr = 3e-4; weight_decay = 0.1;
              schedule = {{ type = "constant"; warmup_steps = 20; }}; }};
ddp = {{ deterministic = false; }};
"""


def write_conf(machine):
    path = os.path.join(machine.scratch, "text.conf")
    texts = ", ".join(f'"{machine.root}/{name}"' for name in TEXTS)
    with open(path, "w") as file:
        file.write(CONF.format(texts=texts, **SIZES[machine.emulated]))
    return path


def learn(machine, log, path, precision):
    lines = run_conf(machine, log, path, [f"train.precision={precision}", "train.log_steps=1"], 1, 40,
                     {"CDDP_BACKEND": "solo"})
    steps = [line for line in lines if "loss" in line and "step_ms" in line]
    if len(steps) != SIZES[machine.emulated]["steps"]:
        raise Failed(f"{precision}: {len(steps)} steps have a loss")
    return {what: [step[what] for step in steps] for what in ("loss", "grad_norm")}


def compare(rows):
    """How far each precision of @rows is from f32, and what is too far; NaN is."""
    apart, bad = {}, []
    for name, limits in LIMITS.items():
        if name not in rows or "f32" not in rows:
            bad.append(f"{name} has nothing to compare")
            continue
        far = {what: [abs(a - b) / abs(b) if a == a and b else float("inf") for a, b in
                      zip(rows[name][what], rows["f32"][what])] for what in ("loss", "grad_norm")}
        apart[name] = {"loss": max(far["loss"]), "grad_norm": med(far["grad_norm"])}
        bad += [f"{name}: {what} is {apart[name][what]:.2g} from float32's, more than {limit:g}"
                for what, limit in zip(("loss", "grad_norm"), limits) if not apart[name][what] <= limit]
    return apart, bad


def run_text(machine, log, part):
    part |= {"rows": {}, "apart": {}, "failed": []}
    path = write_conf(machine)
    for precision in ("f32", *LIMITS):
        try:
            part["rows"][precision] = learn(machine, log, path, precision)
        except Failed as error:
            part["failed"].append(str(error))
        machine.save()
    part["apart"], bad = compare(part["rows"])
    losses = part["rows"].get("f32", {}).get("loss", [0, 0])
    if not losses[-1] < losses[0]:
        bad.append(f"float32 learnt nothing: its loss went from {losses[0]:.4f} to {losses[-1]:.4f}")
    part["failed"] += bad
