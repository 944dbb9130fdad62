"""bench_checkpoint.py - the part `checkpoint` of scripts/bench: for how long training stands still for a checkpoint, and how long
steps take while one is written, beside torch.distributed.checkpoint.

An MLP with AdamW on two ranks, so a checkpoint has three times its parameters. Each run writes checkpoints after steps AT, of which
the first also touches the copy's memory for the first time. A step counts as beside a checkpoint if all of it lies between the
time at which training went on and the time at which the checkpoint was complete."""
import json, os, shutil, statistics

RANKS, STEPS, EVERY = 2, 144, 48
SIZES = {"11M": 2160, "124M": 7680}  # width of each of three hidden layers
CONF = """model = {{ type = "mlp"; hidden = [{width}, {width}, {width}]; }};
data = {{ type = "synthetic"; }};
train = {{ epochs = 1000; batch_size = 64; log_steps = 1; eval_epochs = 100000; tensorboard = false; max_steps = {steps};
  checkpoint_seconds = 0.0; checkpoint_steps = {every}; checkpoint_at_end = false; keep = 1; }};
optimizer = {{ type = "adamw"; lr = 0.0001; }};
"""
WAYS = ("cddp, false", "cddp, true", "DCP save", "DCP async_save")


def times(checkpoints, steps):
    """The medians of one run. A checkpoint: (began, went on, complete), a step: (began, ended); all in ms."""
    beside, alone = [], []
    for begin, end in steps[2:]:
        if any(on <= begin and end <= whole for _, on, whole in checkpoints):
            beside.append(end - begin)
        elif all(whole <= begin or end <= began for began, _, whole in checkpoints):
            alone.append(end - begin)
    return {"first_ms": checkpoints[0][1] - checkpoints[0][0],
            "stall_ms": statistics.median(on - began for began, on, _ in checkpoints[1:]),
            "complete_ms": statistics.median(whole - began for began, _, whole in checkpoints),
            "step_ms": statistics.median(alone),
            "beside_ms": statistics.median(beside) if beside else None}


def read_metrics(path):
    with open(path) as file:
        lines = [json.loads(line) for line in file]
    checkpoints = []
    for line in lines:
        if line.get("kind") == "checkpoint":
            began = line["time_ms"] - line["complete_ms"]
            checkpoints.append((began, began + line["checkpoint_ms"], line["time_ms"]))
    return checkpoints, [(line["time_ms"] - line["step_ms"], line["time_ms"]) for line in lines if "loss" in line]


def run_cddp(bench, folder, width, how):
    conf = f"{folder}/checkpoint.conf"
    with open(conf, "w") as file:
        file.write(CONF.format(width=width, steps=STEPS, every=EVERY))
    status, _, _ = bench.sh([f"{bench.BUILD}/launcher/cddp-run", "--nproc", str(RANKS), conf, f"train.run_dir={folder}/run",
                             f"train.checkpoint_async={how}"], 900)
    return times(*read_metrics(f"{folder}/run/metrics.jsonl")) if status == 0 else None


def run_torch(bench, torch, folder, width, how):
    status, out, _ = bench.sh([torch, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS),
                               f"{bench.PEERS}/checkpoint_ddp.py", "--folder", f"{folder}/run", "--width", str(width),
                               "--steps", str(STEPS), "--every", str(EVERY), "--how", how], 900, bench.PEER_ENV)
    rows = bench.json_lines(out) if status == 0 else []
    return times([tuple(c) for c in rows[0]["checkpoints"]], rows[0]["steps"]) if rows else None


def run(bench, torch, rounds, quick):
    folder = os.path.join(bench.BUILD, "checkpoint")
    result = {}
    for size, width in list(SIZES.items())[:1 if quick else None]:
        found = {}
        for _ in range(rounds):
            for way in WAYS:
                shutil.rmtree(folder, ignore_errors=True)
                os.makedirs(folder)
                who, how = way.split()
                row = run_cddp(bench, folder, width, how) if who == "cddp," else torch and run_torch(bench, torch, folder, width, how)
                if row:
                    found.setdefault(way, []).append(row)
                    bench.say(f"checkpoint: {size}: {way}: " + ", ".join(f"{k} {v:.0f}" for k, v in row.items() if v is not None))
        shutil.rmtree(folder, ignore_errors=True)
        result[size] = {way: {key: statistics.median(values) if (values := [r[key] for r in rows if r[key] is not None]) else None
                              for key in rows[0]} for way, rows in found.items()}
    return result


def table(result, number):
    print("| parameters, AdamW | training stands still ms, first | later | complete after ms | step ms | while one is written |")
    print("|---" * 6 + "|")
    for size, ways in result.items():
        for way, row in ways.items():
            name = way.replace("cddp, ", "cddp, `train.checkpoint_async` = ")
            print(f"| {size}: {name} | " + " | ".join("" if row[key] is None else number(row[key]) for key in
                  ("first_ms", "stall_ms", "complete_ms", "step_ms", "beside_ms")) + " |")
    print()
