"""bench_parallel.py - the part `parallel` of scripts/bench: one network on two cores as a single rank, DDP,
DataParallel (where train.conf has it), two stages, and two stages with more and more micro-batches and by other
schedules; what those keep of micro-batches; each beside the theory. The rows of a round are measured one after the other."""
import math, os, statistics, subprocess

STAGES = 2
SPLITS = (1, 2, 4, 8, 16, 32, 64)  # micro-batches of a step
BATCH = 64                         # of a step
KEPT = (4, 8, 16)                  # micro-batches of constant size, for memory
KEPT_SAMPLES = {"resnet20": 32, "gpt2": 4}
STEPS = {"resnet20": (24, 2), "gpt2": (10, 1)} # of a run, and of a line of metrics
MICRO = 8                          # the number at which pipelines are judged, and schedules compared
SCHEDULES = ("1f1b", "zero_bubble", "gpipe")


def ideal(micro_batches, stages=STAGES, schedule="1f1b"):
    """The speed-up of a pipeline whose stages take as long, and whose messages nothing; in zero_bubble, whose three
    passes take as long as each other."""
    passes = 3 * micro_batches if schedule == "zero_bubble" else micro_batches
    waits = stages - 1 + (max(0, stages - micro_batches) if schedule == "zero_bubble" else 0)
    return stages * passes / (passes + waits)


def kept(schedule, micro_batches, stages=STAGES):
    """Micro-batches whose activations the first stage keeps."""
    return micro_batches if schedule == "gpipe" else min(stages, micro_batches)


def slope(by_count):
    """What one more micro-batch adds, from the fewest to the most."""
    low, high = min(by_count), max(by_count)
    return (by_count[high] - by_count[low]) / (high - low)


def ways(has_data_parallel):
    rows = {"single": (1, []), "DDP": (2, [])}
    if has_data_parallel:
        rows["DataParallel"] = (1, ["parallel.type=data_parallel", 'train.devices=["cpu:0","cpu:1"]'])
    for count in SPLITS:
        rows[f"{STAGES} stages, {count}"] = (STAGES, [f"parallel.pipeline={STAGES}", f"parallel.micro_batches={count}"])
    for schedule in SCHEDULES[1:]:
        rows[f"{STAGES} stages, {MICRO}, {schedule}"] = (STAGES, [
            f"parallel.pipeline={STAGES}", f"parallel.micro_batches={MICRO}", f"parallel.schedule={schedule}"])
    return rows


def theory_of(who):
    """The speed-up that the row of that name cannot exceed."""
    if "stages" not in who:
        return 1 if who == "single" else 2
    count, *schedule = who.split(", ")[1:]
    return ideal(int(count), schedule=schedule[0] if schedule else "1f1b")


def measure(bench, name, conf, words, steps, rounds):
    keys = subprocess.run([f"{bench.BUILD}/src/cddp-train", "--keys"], capture_output=True, text=True).stdout
    found = {}
    for _ in range(rounds):
        for who, (ranks, extra) in ways("data_parallel" in keys).items():
            row = bench.run_cddp(conf, ranks, os.path.join(bench.BUILD, "run"), *steps,
                                 [f"train.batch_size={BATCH}", *words, *extra])
            bench.say(f"parallel: {name}, {who}: {row['samples_per_s']:.4g} samples/s, {row['peak_rss_mib']:.4g} MiB")
            found.setdefault(who, []).append(row)
    return {who: {key: statistics.median(row[key] for row in rows) for key in rows[0]} for who, rows in found.items()}


def measure_memory(bench, name, conf, words, samples):
    """Peak of the first stage in MiB, by schedule and number of micro-batches."""
    found = {}
    for schedule in SCHEDULES:
        for count in KEPT:
            row = bench.run_cddp(conf, STAGES, os.path.join(bench.BUILD, "run"), 6, 1, [
                f"train.batch_size={samples * count}", *words, f"parallel.pipeline={STAGES}",
                f"parallel.micro_batches={count}", f"parallel.schedule={schedule}"])
            bench.say(f"parallel: {name}, {schedule}, {count} micro-batches: {row['peak_rss_mib']:.4g} MiB")
            found.setdefault(schedule, {})[count] = row["peak_rss_mib"]
    return found


def run(bench, rounds, quick):
    gpt, _ = bench.setup_gpt()
    plain = ["data.crop_padding=0", "data.flip=false", "optimizer.schedule.type=constant",
             "optimizer.schedule.warmup_steps=0"]
    result = {}
    for name, conf, words in (("resnet20", bench.CONF["resnet20"], plain), ("gpt2", gpt, [])):
        result[name] = {"rows": measure(bench, name, conf, words, (10, 2) if quick else STEPS[name], rounds),
                        "memory": measure_memory(bench, name, conf, words, KEPT_SAMPLES[name])}
    return result


def table(result, number):
    for name, found in result.items():
        rows = found["rows"]
        single = rows["single"]["samples_per_s"]
        print(f"| {name}, {BATCH} samples a step | samples/s | over single | theory | waiting % | peak MiB of rank 0 |")
        print("|---|---|---|---|---|---|")
        for who, row in rows.items():
            waits = 100 * row.get("exposed_comm_ms", 0) / row["step_ms"]
            print(f"| {who} | {number(row['samples_per_s'])} | {row['samples_per_s'] / single:.2f} | {theory_of(who):.2f} | "
                  f"{waits:.0f} | {number(row['peak_rss_mib'])} |")
        reached = rows[f"{STAGES} stages, {MICRO}"]["samples_per_s"] / single
        print(f"\n{name}: pipelined at M = {MICRO} {reached:.2f} of a single rank, {reached / ideal(MICRO):.2f} of the "
              f"best possible (target: at least 0.85)\n")
        print("| first stage, MiB at its peak | " + " | ".join(f"M = {count}" for count in KEPT)
              + " | a micro-batch more | theory |")
        print("|---" * (3 + len(KEPT)) + "|")
        each = slope(found["memory"]["gpipe"])
        for schedule, by_count in found["memory"].items():
            by_count = {int(count): value for count, value in by_count.items()}
            more = kept(schedule, max(KEPT)) - kept(schedule, min(KEPT))
            theory = each * more / (max(KEPT) - min(KEPT))
            print(f"| {schedule}: keeps {', '.join(str(kept(schedule, count)) for count in KEPT)} | "
                  + " | ".join(number(by_count[count]) for count in KEPT)
                  + f" | {slope(by_count):.2f} | {theory:.2f} |")
        print()


def plot(result, path):
    """PyTorch's tutorial's plot: samples a second against the number of micro-batches, below what theory allows."""
    width, height, left, top = 460, 260, 60, 56
    total, bottom = len(result) * (width + left), height + top + 60
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{total}" height="{bottom}" font-family="sans-serif" font-size="12">'
             '<rect width="100%" height="100%" fill="white"/>']
    for k, (name, found) in enumerate(result.items()):
        rows, x0 = found["rows"], k * (width + left) + left
        most = max([row["samples_per_s"] for row in rows.values()] + [rows["single"]["samples_per_s"] * ideal(SPLITS[-1])])
        unit = 10.0 ** math.floor(math.log10(most / 5))
        unit *= next(factor for factor in (1, 2, 5, 10) if most / (unit * factor) <= 6)
        most = math.ceil(1.02 * most / unit) * unit

        def at(index, value):
            return x0 + index * (width - 40) / (len(SPLITS) - 1), top + height * (1 - value / most)

        def entry(who, colour, style, x):
            """Of the legend. Returns where the next one begins."""
            parts.append(f'<path d="M{x:.0f} 38h16" stroke="{colour}" {style}/><text x="{x + 20:.0f}" y="42">{who}</text>')
            return x + 20 + 6.4 * len(who) + 14

        parts.append(f'<text x="{x0}" y="20" font-weight="bold">{name}: samples/s, {BATCH} samples a step</text>')
        for value in range(round(most / unit) + 1):
            y = at(0, value * unit)[1]
            parts.append(f'<path d="M{x0} {y:.1f}H{x0 + width - 40}" stroke="#ddd"/>'
                         f'<text x="{x0 - 6}" y="{y + 4:.1f}" text-anchor="end">{value * unit:g}</text>')
        parts.append(f'<path d="M{x0} {top}V{top + height}H{x0 + width - 40}" fill="none" stroke="#333"/>')
        next_x = entry("pipelined", "#26c", 'stroke-width="2"', x0)
        next_x = entry("theory", "#99a", "", next_x)
        for who, colour in (("single", "#888"), ("DDP", "#2a7"), ("DataParallel", "#c63")):
            if who in rows:
                y = at(0, rows[who]["samples_per_s"])[1]
                parts.append(f'<path d="M{x0} {y:.1f}H{x0 + width - 40}" stroke="{colour}" stroke-dasharray="4 3"/>')
                next_x = entry(who, colour, 'stroke-dasharray="4 3"', next_x)
        best = [at(i, rows["single"]["samples_per_s"] * ideal(count)) for i, count in enumerate(SPLITS)]
        points = [at(i, rows[f"{STAGES} stages, {count}"]["samples_per_s"]) for i, count in enumerate(SPLITS)]
        for line, style in ((best, 'stroke="#99a"'), (points, 'stroke="#26c" stroke-width="2"')):
            parts.append(f'<polyline fill="none" {style} points="' + " ".join(f"{x:.1f},{y:.1f}" for x, y in line) + '"/>')
        for (x, y), count in zip(points, SPLITS):
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="#26c"/>'
                         f'<text x="{x:.1f}" y="{top + height + 18}" text-anchor="middle">{count}</text>')
        parts.append(f'<text x="{x0 + width / 2 - 20}" y="{top + height + 38}" text-anchor="middle">'
                     f'micro-batches through {STAGES} stages</text>')
    with open(path, "w") as file:
        file.write("\n".join(parts) + "\n</svg>\n")
