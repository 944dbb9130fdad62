"""The parts `embed` and `torch` of scripts/bench.

embed: what cddp costs a trainer that it is put into: those of examples/embed and examples/embed_gpt2, as they were and with
their patches, by turns.
  alone      a group of one: processor time of a step, which other processes disturb less than the clock; two runs of
             different lengths, so that start and end do not count. Medians over rounds
  two ranks  the GPT-2's step by the clock, before its patch, with it on 2 ranks, and two of it side by side without
             cddp, each with half the batch: how much faster two cores of this machine are when nothing is exchanged
  calls      tests/bench/bench_embed.c: cddp_ddp_grad_ready(), what is noted of each operation, memory of a rank
  size       libcddp.so without symbols; a run of one step
torch: examples/torch_backend beside gloo on 2 ranks: an all-reduce of 64 MiB, DDP steps of ResNet-20 and a mini GPT-2."""
import os, re, statistics, subprocess, time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
EXAMPLES = os.path.join(ROOT, "examples")
PEERS = os.path.join(ROOT, "scripts", "peers")
med = statistics.median
TARGETS = ("launcher/cddp-run", "tests/bench_embed", "examples/embed_gpt2_alone", "examples/embed_gpt2_trainer")
# Channels, and sequences in a batch: for one rank, and for two.
GPT_SMALL, GPT_LARGE = ["128", "12"], ["192", "24"]


def spent(argv, env=None):
    """Run: its output, seconds by the clock, seconds of processor time of it and what it has started, the most KiB in memory."""
    start = time.monotonic()
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, env={**os.environ, "CDDP_LOG": "error", **(env or {})})
    out = process.stdout.read().decode()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"bench: {' '.join(argv)} ended with {process.returncode}")
    return out, time.monotonic() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss


def build_mlp(build, steps):
    """examples/embed with another number of steps: before and with its patch."""
    folder = os.path.join(build, f"embed-{steps}")
    os.makedirs(folder, exist_ok=True)
    alone, patched = os.path.join(folder, "alone.c"), os.path.join(folder, "patched.c")
    original = os.path.join(EXAMPLES, "embed", "trainer_alone.c")
    subprocess.run(["patch", "-s", "-o", patched, original, os.path.join(EXAMPLES, "embed", "cddp.patch")], check=True)
    for source, to in ((original, alone), (patched, patched)):
        with open(source, encoding="utf-8") as file:
            text = file.read()
        assert text.count("STEPS = 200,") == 1
        with open(to, "w", encoding="utf-8") as file:
            file.write(text.replace("STEPS = 200,", f"STEPS = {steps},"))
    libraries = [f"-L{build}/src", f"-Wl,-rpath,{build}/src", "-lcddp"]
    for source in (alone, patched): # one's batch is a constant, which a compiler makes loops for when it may
        subprocess.run(["cc", "-O3", "-fno-ipa-cp", "-std=gnu11", f"-I{ROOT}/include", source, "-o", source[:-2], *libraries, "-lm"], check=True)
    return alone[:-2], patched[:-2]


def cost_alone(shorter, longer, steps, rounds):
    """Processor time of a step before and with the patch, in ms, and the median of what it is more, in percent."""
    before, after, ratios = [], [], []
    for _ in range(rounds):
        step = {}
        for place in (0, 1):
            step[place] = (spent(longer[place])[2] - spent(shorter[place])[2]) / steps * 1e3
        before.append(step[0])
        after.append(step[1])
        ratios.append(step[1] / step[0])
    return {"before_ms": med(before), "with_ms": med(after), "more_percent": 100 * (med(ratios) - 1)}


def milliseconds(text):
    return float(re.search(r"([\d.]+) ms a step", text).group(1))


def side_by_side(argv):
    """A trainer on each of two cores, which know nothing of each other: the slower one's step."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    both = [subprocess.Popen(["taskset", "-c", str(core), *argv], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
            for core in cores]
    said = [process.communicate()[0] for process in both]
    if len(both) < 2 or any(process.returncode != 0 for process in both):
        raise SystemExit(f"bench: {' '.join(argv)} does not run twice, side by side on two cores")
    return max(milliseconds(text) for text in said)


def two_ranks(build, rounds, steps):
    run = [f"{build}/launcher/cddp-run", "--nproc", "2", "--bind", "core", "--no-tag", "--"]
    half = [GPT_LARGE[0], str(int(GPT_LARGE[1]) // 2)]
    alone, two, side, exposed = [], [], [], []
    for _ in range(rounds):
        side.append(side_by_side([f"{build}/examples/embed_gpt2_alone", *half, str(steps)]))
        alone.append(milliseconds(spent([f"{build}/examples/embed_gpt2_alone", *GPT_LARGE, str(steps)])[0]))
        said = spent([*run, f"{build}/examples/embed_gpt2_trainer", *GPT_LARGE, str(steps)], {"CDDP_PROGRESS": "off"})[0]
        two.append(milliseconds(said))
        exposed.append(float(re.search(r"exposed communication ([\d.]+) ms", said).group(1)))
        buckets = int(re.search(r"(\d+) buckets", said).group(1))
    return {"alone_ms": med(alone), "two_ms": med(two), "times": med([a / b for a, b in zip(alone, two)]),
            "side_by_side_times": med([a / b for a, b in zip(alone, side)]),
            "exposed_ms": med(exposed), "buckets": buckets}


def run(bench, rounds, quick):
    build = bench.BUILD
    launcher = f"{build}/launcher/cddp-run"
    one, few, many = (build_mlp(build, steps) for steps in (1, 500, 2500 if quick else 20500))
    result = {"mlp": cost_alone([[few[0]], [few[1]]], [[many[0]], [many[1]]], 2000 if quick else 20000, rounds)}
    programs = [f"{build}/examples/embed_gpt2_{name}" for name in ("alone", "trainer")]
    short, long = 2, 4 if quick else 14
    result["gpt2"] = cost_alone([[program, *GPT_SMALL, str(short)] for program in programs],
                                [[program, *GPT_SMALL, str(long)] for program in programs], long - short, rounds)
    result["two"] = two_ranks(build, rounds, 4 if quick else 12)
    calls = {}
    for ranks in (1, 2):
        rows = []
        for _ in range(rounds):
            words = [f"{build}/tests/bench_embed"]
            rows += bench.json_lines(spent([launcher, "--nproc", "2", "--no-tag", "--", *words] if ranks == 2 else words)[0])
        calls[ranks] = {key: med([row[key] for row in rows]) for key in rows[0]}
    result["calls"] = calls
    # a group of one notes nothing: of two ranks one operation a bucket, and the sum of losses
    result["noted_percent"] = {
        "mlp": 100 * 2 * calls[2]["record_ns"] / (result["mlp"]["with_ms"] * 1e6 / 2),
        "gpt2": 100 * (result["two"]["buckets"] + 1) * calls[2]["record_ns"] / (result["two"]["two_ms"] * 1e6)}
    stripped = os.path.join(build, "libcddp-stripped.so")
    subprocess.run(["strip", "-o", stripped, f"{build}/src/libcddp.so"], check=True)
    result["library_kib"] = os.path.getsize(stripped) / 1024
    starts = {"before": [one[0]], "with": [one[1]], "two": [launcher, "--nproc", "2", "--no-tag", "--", one[1]]}
    runs = {name: [spent(argv) for _ in range(3 if quick else 15)] for name, argv in starts.items()}
    result["start_ms"] = {name: 1e3 * med([row[1] for row in rows]) for name, rows in runs.items()}
    result["memory_kib"] = {name: med([row[3] for row in runs[name]]) for name in ("before", "with")}
    return result


def table(rows, number):
    print("| an embedded trainer | before | with cddp | |")
    print("|---|---|---|---|")
    for name, what in (("mlp", "MLP of examples/embed, a group of one: processor time of a step, ms"),
                       ("gpt2", "GPT-2 of examples/embed_gpt2, the same")):
        row = rows[name]
        print(f"| {what} | {row['before_ms']:.4g} | {row['with_ms']:.4g} | {row['more_percent']:+.2f} % |")
    two = rows["two"]
    print(f"| that GPT-2 with {GPT_LARGE[0]} channels on 2 ranks: step, ms | {two['alone_ms']:.4g} | {two['two_ms']:.4g} | "
          f"{two['times']:.2f} times as fast; {number(two['exposed_ms'])} ms exposed; two that exchange nothing would be "
          f"{two['side_by_side_times']:.2f} times as fast |")
    for ranks, row in rows["calls"].items():
        print(f"| `cddp_ddp_grad_ready()`, {ranks} rank{'s' if ranks > 1 else ''}: ns | | {row['grad_ready_ns']:.0f} | "
              f"mean {row['grad_ready_mean_ns']:.0f} |")
    row = rows["calls"][1]
    print(f"| all calls of a step of that MLP in a group of one: ns | | {row['step_ns']:.0f} | "
          f"{1e-4 * row['step_ns'] / rows['mlp']['before_ms']:.2f} % of the step |")
    print(f"| what is noted of an operation: ns | | {rows['calls'][2]['record_ns']:.0f} | {rows['noted_percent']['mlp']:.3f} % of a "
          f"step of the MLP, {rows['noted_percent']['gpt2']:.5f} % of the GPT-2's |")
    print(f"| libcddp.so without symbols, KiB | | {rows['library_kib']:.0f} | |")
    start = rows["start_ms"]
    print(f"| a whole run of one step, ms | {start['before']:.3g} | {start['with']:.3g} | {start['two']:.3g} by cddp-run on 2 ranks |")
    print(f"| most memory of that process, MiB | {rows['memory_kib']['before'] / 1024:.1f} | {rows['memory_kib']['with'] / 1024:.1f} | |")
    row = rows["calls"][2]
    print(f"| memory that a rank of 2 has more, MiB | | {row['group_kib'] / 1024:.1f} for the group | and {row['ddp_kib'] / 1024:.1f} "
          f"for {row['grads_kib']:.0f} KiB of gradients in {4096} tensors |")
    print()


# ---------------------------------------------------------------- torch.distributed
def build_backend(bench, torch):
    """examples/torch_backend; the folder to look for it in, or None."""
    where = os.path.join(bench.BUILD, "torch_backend")
    env = dict(os.environ, CDDP_INCLUDE_DIR=os.path.join(ROOT, "include"), CDDP_LIB_DIR=os.path.join(bench.BUILD, "src"),
               PATH=os.path.dirname(torch) + os.pathsep + os.environ["PATH"])
    done = subprocess.run([torch, os.path.join(EXAMPLES, "torch_backend", "setup.py"), "build", "--build-base",
                           os.path.join(where, "temp"), "--build-lib", where], env=env, stdout=subprocess.DEVNULL, check=False)
    return where if done.returncode == 0 else None


def run_torch(bench, torch, rounds, quick):
    where = torch and build_backend(bench, torch)
    if not where:
        bench.say("no PyTorch, or examples/torch_backend does not build: the part torch is left out")
        return None
    env = dict(bench.PEER_ENV, PYTHONPATH=where)
    train, steps = [torch, f"{PEERS}/ddp_train.py", "--ranks", "2", "--modes", "ddp", "--bucket-view"], "2" if quick else "5"
    parts = {"all-reduce of 64 MiB, ms": [torch, f"{PEERS}/allreduce_gloo.py", "--ranks", "2", "--bytes", str(64 << 20), "--rounds", "3"],
             "ResNet-20, DDP step of 2 x 128 images, ms": [*train, "--model", "resnet20", "--batch", "128", "--steps", steps,
                                                           "--blocks", "2", "--warmup", "2"],
             "mini GPT-2, DDP step of 2 x 8 x 128 tokens, ms": [*train, "--model", "gpt2mini", "--batch", "8", "--bucket-mb", "8",
                                                                "--fused", "--steps", steps, "--blocks", "2", "--warmup", "2"]}
    result = {}
    for what, argv in parts.items():
        rows = {"gloo": [], "cddp": []}
        for _ in range(rounds):
            for backend in rows:
                for line in bench.json_lines(bench.sh([*argv, "--backend", backend], 900, env)[1]):
                    rows[backend].append(line["rows"][0]["us"]["med"] / 1e3 if "rows" in line else
                                         line["modes"]["ddp"]["block_mean_ms"]["med"])
        if all(rows.values()):
            result[what] = {backend: med(values) for backend, values in rows.items()} | {
                "times": med([a / b for a, b in zip(rows["gloo"], rows["cddp"])])}
    return result


def table_torch(rows, number):
    print("| torch.distributed, 2 ranks | gloo | cddp | gloo / cddp |")
    print("|---|---|---|---|")
    for what, row in rows.items():
        print(f"| {what} | {number(row['gloo'])} | {number(row['cddp'])} | {row['times']:.2f} |")
    print()
