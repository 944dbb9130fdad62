"""bits - the part `bits`: with ddp.deterministic two runs have the same losses and norms to the last bit, and what
that costs beside sums in any order; and what the order costs of micro-batches (train.micro_batch)."""
from .machine import Failed, med
from .training import TINY, run_conf

STEPS = 12
RUNS = {"gpt2_124m": ["train.batch_size=64", "train.micro_batch=0", "data.samples=1024"],
        "resnet50": ["data.samples=4096", "data.threads=8", "train.batch_size=128", "train.eval_batch_size=128"]}
# Five runs of ResNet-50 would take minutes on the emulation; call C trains it there once, in `resnet50`.
SMALLER = {"gpt2_124m": [], "resnet50": ["model.type=resnet20"]}
# The batch in parts, and samples of each: added up in any order, and in one, on a card and on the emulation.
PARTS = {"gpt2_124m": ((4, 16), (2, 4)), "resnet50": ((4, 32), (1, 1))}


def one_run(machine, log, conf, deterministic, cut=()):
    words = [*RUNS[conf], f"train.max_steps={STEPS}", "train.log_steps=1",
             f"ddp.deterministic={'true' if deterministic else 'false'}",
             *(TINY[conf] + SMALLER[conf] if machine.emulated else []), *cut]
    lines = run_conf(machine, log, conf, words, 1, 60, {"CDDP_BACKEND": "solo"})
    steps = [line for line in lines if "loss" in line and "step_ms" in line]
    if not steps:
        raise Failed(f"{conf}: no step has a loss")
    return {"steps": len(steps), "losses": [step["loss"] for step in steps],
            "norms": [step["grad_norm"] for step in steps],
            "step_ms": med([step["step_ms"] for step in steps[len(steps) // 3:]])}


def run_bits(machine, log, part):
    part |= {"rows": {}, "failed": []}
    for conf in RUNS:
        try:
            first, again = (one_run(machine, log, conf, True) for _ in range(2))
            any_order = one_run(machine, log, conf, False)
            count, samples = PARTS[conf][machine.emulated]
            parts = one_run(machine, log, conf, False, [f"train.micro_batch={samples}"])
            positions = one_run(machine, log, conf, True, [f"train.micro_batch={samples}"])
        except Failed as error:
            part["failed"].append(str(error))
            continue
        same = all(first[what] == again[what] for what in ("steps", "losses", "norms"))
        part["rows"][conf] = {"same": same, "steps": first["steps"], "loss": first["losses"][-1],
                              "ms": min(first["step_ms"], again["step_ms"]), "any_order_ms": any_order["step_ms"],
                              "parts": count, "parts_ms": parts["step_ms"], "micro_batch_ms": positions["step_ms"]}
        if not same:
            part["failed"].append(f"{conf}: two runs with ddp.deterministic differ: {first} and {again}")
        machine.save()
