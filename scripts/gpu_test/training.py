"""training - whole runs: the examples alone, and beside PyTorch."""
import os, shutil, tempfile

from .machine import Failed, Slower, fallbacks, file_text, first_reason, json_lines, med, say, shorten

TINY = {"gpt2_124m": ["model.blocks=1", "model.heads=2", "model.embed=32", "model.context=16", "model.vocab=64",
                      "train.batch_size=8", "train.micro_batch=2", "data.samples=24", "train.max_steps=3",
                      "train.eval_batch_size=4"],
        "resnet50": ["data.image=[3,32,32]", "data.classes=10", "train.batch_size=1", "data.samples=2",
                     "train.max_steps=2", "train.eval_batch_size=1"]}
# A benchmark writes nothing large and rarely asks the card how far it is: what is reported drains it.
MEASURED = ["train.tensorboard=false", "train.log_steps=8", "train.checkpoint_at_end=false",
            "train.checkpoint_seconds=0.0", "train.eval_epochs=1000000", "train.eval_batches=1"]


def run_conf(machine, log, conf, words, ranks=1, deadline=120, env=None, device="cuda"):
    """The lines of a run's metrics (on the emulation only a hang ends at a deadline); Failed if it failed, or took
    something slower than what it is called. @conf: an example's name, or a path."""
    run_dir = tempfile.mkdtemp(dir=machine.scratch)
    path = conf if os.path.isabs(conf) else f"{machine.root}/examples/{conf}.conf"
    argv = [f"{machine.build}/launcher/cddp-run", "--nproc", str(ranks), "--run-dir", run_dir, path,
            f"train.device={device}", *MEASURED, *words]
    status, text, _ = machine.run(argv, 400 if machine.emulated else deadline, log, env)
    lines = json_lines(file_text(f"{run_dir}/metrics.jsonl"))
    shutil.rmtree(run_dir, ignore_errors=True)
    name = os.path.basename(conf).removesuffix(".conf")
    if status != 0:
        raise Failed(f"{name}: status {status}: {first_reason(text)}")
    slower = fallbacks(text, machine.emulated)
    if slower:
        raise Slower(f"{name}: not what was to be measured: {slower[0]}", lines)
    return lines


def measure(lines, conf, skip=1, emulated=False):
    """Medians of a run's metrics after its first report, and after it was chosen whether steps are replayed."""
    steps = [line for line in lines if "loss" in line and "step_ms" in line][0 if emulated else skip:]
    choice = next((line for line in lines if line.get("kind") == "cuda_graph"), None)
    first = steps  # of replayed steps, the times of the parts are not known
    if choice:
        # a report is the mean of the steps since the one before
        before = [line["step"] for line in steps if line["step"] <= choice["step"]]
        after = [line for line in steps if line["step"] > choice["step"]]
        steps = (after[1:] if before or len(after) > 1 else after) or after or steps
    if not steps:
        raise Failed(f"{conf}: no step was measured")
    row = {}
    for key in ("tokens_per_s", "samples_per_s", "step_ms", "forward_ms", "backward_ms", "optimizer_ms",
                "exposed_comm_ms", "data_ms", "mfu"):
        values = [[step[key] for step in lot if isinstance(step.get(key), (int, float))] for lot in (steps, first)]
        row |= {key: med(values[0] or values[1])} if values[0] or values[1] else {}
    run = next((line for line in lines if line.get("kind") == "run"), {})
    row |= {"cuda_graph": {key: choice[key] for key in ("replayed", "plain_ms", "replayed_ms")}} if choice else {}
    return row | {"reports": len(steps), "loss": steps[-1]["loss"], "backend": run.get("backend"),
                  "step_ms_min": min(step["step_ms"] for step in steps),
                  "step_ms_max": max(step["step_ms"] for step in steps)}


def train(machine, log, conf, words, ranks=1, deadline=120, env=None):
    """Medians of a run. That of one on something slower is told in its failure, and is no row."""
    words = [*words, *(TINY[conf] if machine.emulated else [])]
    try:
        lines = run_conf(machine, log, conf, words, ranks, deadline, env)
    except Slower as error:
        row = measure(error.lines, conf, emulated=machine.emulated)
        raise Failed(f"{error} ({row['step_ms']:.2f} ms a step, loss {row['loss']:.4f})")
    return measure(lines, conf, emulated=machine.emulated)


# ---------------------------------------------------------------- beside PyTorch
PEERS = {"gpt2": ["gpt2_cuda_torch.py", "--batch", "64", "--accumulate", "8", "--steps", "8", "--warmup", "3"],
         "resnet50": ["resnet50_cuda_torch.py", "--batch", "256", "--steps", "20", "--warmup", "5"]}


def peer(machine, log, what, deadline, mode="default"):
    """PyTorch with the same sizes, in this same call; None: there is none."""
    name, *words = PEERS[what]
    if machine.emulated:
        return None
    argv = [machine.python, f"{machine.root}/scripts/peers/{name}", *words, "--mode", mode]
    status, text, _ = machine.run(argv, deadline, log, plain=True)
    rows = json_lines(text)
    if not rows:
        say(f"{name}: status {status}: {first_reason(text)}")
        return {"failed": f"status {status}: {first_reason(text)}"}
    return rows[-1]


def beside_torch(machine, log, part, what, *arguments, **more):
    """Ours, then PyTorch's, which says something also where ours fails; tuned as far as it goes if time is left."""
    part |= {"failed": [], "torch": None, "torch_tuned": None}
    try:
        part["cddp"] = train(machine, log, *arguments, deadline=180, **more)
    except Failed as error:
        part["failed"].append(str(error))
    machine.save()
    part["torch"] = peer(machine, log, what, 170)
    machine.save()
    if machine.left() > 100 and part["torch"] and "failed" not in part["torch"]:
        part["torch_tuned"] = peer(machine, log, what, machine.left() - 5, "max-autotune")


def run_gpt2(machine, log, part):
    beside_torch(machine, log, part, "gpt2", "gpt2_124m",
                 ["train.micro_batch=64", "train.max_steps=40", "data.samples=20480"])


def run_resnet50(machine, log, part):
    beside_torch(machine, log, part, "resnet50", "resnet50",
                 ["train.epochs=10", "data.samples=8192", "data.threads=8", "train.max_steps=80"])
