"""bench_micro_batch.py - the part `micro_batch` of scripts/bench: what train.micro_batch costs, beside runs without it
that have as many micro-batches on each rank. The rows of a round are measured one after the other."""
import json, os, resource, statistics

CUT = 8 # micro-batches of the rows that have several on a rank
MODELS = {"mlp": ("mlp", 256, (1200, 100)), "resnet20": ("resnet20", 256, (24, 2)), "gpt2 f32": ("gpt2", 16, (32, 4)),
          "gpt2 bf16": ("gpt2", 16, (32, 4))} # configuration, samples of a step, steps of a run and of a line of metrics


def ways(batch):
    """Each row: the ranks, and the words of the two that are compared."""
    rows = {f"M = N = {ranks}": (ranks, [], [f"train.micro_batch={batch // ranks}"]) for ranks in (1, 2)}
    for ranks in (1, 2):
        rows[f"M = {CUT}, N = {ranks}"] = (ranks, [f"train.accumulate={CUT // ranks}"], [f"train.micro_batch={batch // CUT}"])
    return rows


def fastest(bench, conf, ranks, steps, words):
    """Of the lines of a run: the shortest step, which other programs have disturbed least; and the peak of memory."""
    run_dir = os.path.join(bench.BUILD, "run")
    row = bench.run_cddp(conf, ranks, run_dir, *steps, words)
    with open(os.path.join(run_dir, "metrics.jsonl")) as file:
        lines = [json.loads(line) for line in file]
    return {"step_ms": min(line["step_ms"] for line in lines[2:] if "loss" in line and "step_ms" in line),
            "peak_rss_mib": row["peak_rss_mib"]}


def processor_ms(bench, conf, ranks, steps, words):
    """The processors' time of a step, of all ranks, without what a run takes besides. Other programs disturb it less."""
    used = []
    for count in (steps[1], steps[0]):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        bench.run_cddp(conf, ranks, os.path.join(bench.BUILD, "run"), count, steps[1], words)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return 1000 * (used[1] - used[0]) / (steps[0] - steps[1])


def measure(bench, conf, batch, steps, words, rounds):
    found = {}
    for _ in range(rounds):
        for who, (ranks, without, cut) in ways(batch).items():
            for kind, extra in (("without", without), ("micro_batch", cut)):
                args = (bench, conf, ranks, steps, [f"train.batch_size={batch}", *words, *extra])
                row = fastest(*args)
                os.environ["CDDP_SPIN_US"] = "0" # waiting takes no time then
                row["processor_ms"] = processor_ms(*args)
                del os.environ["CDDP_SPIN_US"]
                found.setdefault(who, {}).setdefault(kind, []).append(row)
    return {who: {kind: {key: statistics.median(row[key] for row in rows) for key in rows[0]} for kind, rows in kinds.items()}
            | {key: statistics.median(cut[key] / other[key] for cut, other in zip(kinds["micro_batch"], kinds["without"]))
               for key in ("step_ms", "processor_ms")}
            for who, kinds in found.items()}


def run(bench, rounds, quick):
    gpt, _ = bench.setup_gpt()
    plain = ["data.crop_padding=0", "data.flip=false", "optimizer.schedule.type=constant",
             "optimizer.schedule.warmup_steps=0", "optimizer.nesterov=false"]
    result = {}
    for name, (model, batch, steps) in MODELS.items():
        words = [*plain, *bench.SAME[model]] if model != "gpt2" else [f"train.precision={name.split()[1]}"]
        conf = gpt if model == "gpt2" else bench.CONF[model]
        bench.say(f"micro_batch: {name}")
        result[name] = measure(bench, conf, batch, (steps[0] // 2, steps[1]) if quick else steps, words, rounds)
        for who, row in result[name].items(): # a run takes long: what is known survives its end
            bench.say(f"  {who}: step {100 * (row['step_ms'] - 1):+.1f} %, processor {100 * (row['processor_ms'] - 1):+.1f} %")
    return result


def table(result, number):
    print("| train.micro_batch | step ms without | with | more | processor ms without | with | more | peak MiB without | with |")
    print("|---" * 9 + "|")
    for name, rows in result.items():
        for who, row in rows.items():
            print(f"| {name}, {who} | " + "".join(
                f"{number(row['without'][key])} | {number(row['micro_batch'][key])} | {100 * (row[key] - 1):+.1f} % | "
                for key in ("step_ms", "processor_ms"))
                + f"{number(row['without']['peak_rss_mib'])} | {number(row['micro_batch']['peak_rss_mib'])} |")
    print()
