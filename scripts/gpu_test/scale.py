"""scale - the part `scale`, for machines with several GPUs: whether they compute together what one does alone, how fast
they are beside one and beside PyTorch's DDP, and what becomes of them when one rank dies or stands still. Where NCCL lets
two ranks share a GPU, the first and the last are asked with two ranks on one GPU, too."""
import itertools, json, re

from . import disturb
from .machine import Failed, first_reason, json_lines, output, say
from .smoke import LIMITS, found_by_check, furthest, losses
from .training import TINY, measure, run_conf

EMULATED_GPUS = 2
SHARES_GPUS = (2, 30, 3)  # this NCCL and later ones, if NCCL_MULTI_RANK_GPU_ENABLE=1
COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather")
BACKENDS = ("nccl", "ipc", "staged")
SEQUENCES = 64  # of each GPU in a step
STEPS = 24


def cases():
    """Sharded or not, replayed or not, sums in one order or in any; those in one order are never replayed."""
    for shard, graph, order in itertools.product(("false", "true"), ("never", "always"), ("false", "true")):
        if (graph, order) != ("always", "true"):
            yield shard, graph, order


def described(ranks, shard, graph, order):
    """The name of a run, and the words that make it so."""
    return (f"{ranks} rank{'s' if ranks > 1 else ''}, shard {shard}, graph {graph}, deterministic {order}",
            [f"ddp.shard_optimizer={shard}", f"train.cuda_graph={graph}", f"ddp.deterministic={order}"])


def compare_losses(machine, log, part, ranks, env):
    """Losses and norms of the same batches: within limits of one GPU's, or with deterministic sums the same bits."""
    samples = 4 * max(4, ranks)
    words = [f"train.batch_size={samples}", f"data.samples={8 * samples}"]
    one = {order: losses(machine, log, "cuda", "never", "bf16", {**env, "CDDP_BACKEND": "solo"},
                         more=[*words, f"ddp.deterministic={order}"]) for order in ("false", "true")}
    for shard, graph, order in cases():
        name, more = described(ranks, shard, graph, order)
        try:
            row = losses(machine, log, "cuda", graph, "bf16", env, ranks, more=[*words, *more])
        except Failed as error:
            part["failed"].append(f"{name}: {error}")
            continue
        apart = {what: furthest(row[what], one[order][what]) for what in LIMITS}
        part["losses"][name] = apart
        if order == "true" and any(apart.values()):
            part["failed"].append(f"{name}: not the bits of one GPU: {apart}")
        part["failed"] += [f"{name}: {what} {apart[what]:.2g} apart from one GPU's, more than {limits[1]:g}"
                           for what, limits in LIMITS.items() if not apart[what] <= limits[1]]
        machine.save()


def bench(machine, log, ranks, env, backend, collective, words, deadline):
    """The rows of cddp-bench, or Failed."""
    path = f"{machine.scratch}/bench.json"
    argv = [f"{machine.build}/launcher/cddp-run", "--nproc", str(ranks), "--", f"{machine.build}/src/cddp-bench",
            collective, "--json", path, *words]
    status, text, _ = machine.run(argv, 400 if machine.emulated else deadline, log,
                                  {**env, "CDDP_BACKEND": backend, "CDDP_DEVICE": "cuda"})
    if status != 0:
        raise Failed(f"{backend} {collective}: status {status}: {first_reason(text)}")
    with open(path) as file:
        return json.load(file)["rows"]


def check_collectives(machine, log, part, ranks, env):
    most = "64K" if machine.emulated else "64M"
    for backend, collective in itertools.product(BACKENDS, COLLECTIVES):
        row = part["collectives"].setdefault(f"{backend} {collective}", {})
        try:
            found = bench(machine, log, ranks, env, backend, collective,
                          ["--check", "--max", most, "--factor", "8"], 20)
            row["wrong"] = sum(size["wrong"] for size in found)
            if row["wrong"] or not found:
                part["failed"].append(f"{backend} {collective}: {row['wrong']} wrong elements in {len(found)} sizes")
        except Failed as error:
            part["failed"].append(str(error))
        machine.save()


def time_collectives(machine, log, part, ranks, env):
    sizes = ("1K", "16K") if machine.emulated else ("1M", "256M")
    for backend, collective in itertools.product(BACKENDS[:1] if machine.emulated else BACKENDS, COLLECTIVES):
        try:
            found = bench(machine, log, ranks, env, backend, collective,
                          ["--min", sizes[0], "--max", sizes[1], "--factor", "16"], 20)
            part["collectives"].setdefault(f"{backend} {collective}", {})["times"] = [
                {name: size[name] for name in ("bytes", "median_us", "busbw_gb_per_s")} for size in found]
        except Failed as error:
            part["failed"].append(str(error))
        machine.save()


def speeds(ranks):
    """(GPUs, sharded, graph, deterministic), the most telling first."""
    counts = sorted({count for count in (1, 2, 4, 8) if count < ranks} | {ranks})
    yield from ((count, "false", "auto", "false") for count in (ranks, *counts[:-1]))
    yield from ((ranks, "true", "auto", "false"), (ranks, "false", "never", "false"))
    yield from ((count, "true", "auto", "false") for count in counts[1:-1])
    yield from ((ranks, shard, "auto", "true") for shard in ("false", "true"))


def measure_speed(machine, log, part, ranks, env):
    """GPT-2 with the same number of sequences on each GPU."""
    for count, shard, graph, order in speeds(ranks):
        name, more = described(count, shard, graph, order)
        words = [*more, f"train.micro_batch={SEQUENCES}", f"train.batch_size={SEQUENCES * count}",
                 f"train.max_steps={STEPS}", f"data.samples={SEQUENCES * count * STEPS}",
                 *(TINY["gpt2_124m"] if machine.emulated else [])]
        try:
            lines = run_conf(machine, log, "gpt2_124m", words, count, 40, env)
        except Failed as error:
            part["failed"].append(f"{name}: {error}")
            continue
        memory = [line["gpu_memory_mib"] for line in lines if isinstance(line.get("gpu_memory_mib"), (int, float))]
        part["speed"][name] = {**measure(lines, name, emulated=machine.emulated), "gpus": count,
                               "gpu_memory_mib": max(memory, default=None)}
        machine.save()


def measure_torch(machine, log, part, ranks, env):
    """PyTorch's DDP, compiled, with as many sequences on each GPU."""
    if machine.emulated:
        return
    argv = [machine.python, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(ranks),
            f"{machine.root}/scripts/peers/gpt2_cuda_torch.py", "--ddp", "--batch", str(SEQUENCES),
            "--accumulate", "1", "--steps", "16", "--warmup", "4"]
    status, text, _ = machine.run(argv, 150, log, plain=True)
    rows = json_lines(text)
    part["torch"] = rows[-1] if rows else {"failed": f"status {status}: {first_reason(text)}"}


def disturb_ranks(machine, log, part, ranks, env):
    for kind in disturb.KINDS:
        row = part["disturbed"][kind] = disturb.one(machine, log, ranks, kind, env)
        if row["problem"]:
            part["failed"].append(f"a rank {kind}: {row['problem']}")
        machine.save()


def ask_nccl(machine, log, part, ranks, env):
    """What NCCL says of windows, CTAs and NVLS; each sentence once."""
    if machine.emulated:
        return
    argv = [f"{machine.build}/launcher/cddp-run", "--nproc", str(ranks), "--run-dir", f"{machine.scratch}/nccl",
            f"{machine.root}/examples/gpt2_124m.conf", "train.device=cuda", "model.blocks=2", "train.max_steps=4",
            f"train.batch_size={16 * ranks}", f"data.samples={64 * ranks}", "train.checkpoint_at_end=false"]
    _, text, _ = machine.run(argv, 30, log, {**env, "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,REG,TUNING,NVLS"})
    found = re.findall(r"NCCL (?:INFO|WARN) (.*(?:[Ww]indow|NVLS|CTA|[Ss]ymm|WARN).*)$", text, re.M)
    part["nccl"] = list(dict.fromkeys(re.sub(r"0x[0-9a-f]+|\d{6,}", "...", line) for line in found))[:40]


def describe_links(machine, log, part, ranks, env):
    part["topology"] = "" if machine.emulated else output(["nvidia-smi", "topo", "-m"])


# The most telling first: a call may end before the last.
STAGES = (describe_links, compare_losses, check_collectives, measure_speed, measure_torch, disturb_ranks,
          time_collectives, ask_nccl)


ON_ONE_GPU = (compare_losses, check_collectives, disturb_ranks)


def shares_a_gpu(machine):
    """Whether NCCL is new enough to let ranks share a GPU."""
    said = found_by_check(output([f"{machine.build}/launcher/cddp-run", "--check"], env=machine.env)).get("NCCL", "")
    version = re.search(r"(\d+)\.(\d+)\.(\d+)", said)
    return version is not None and tuple(map(int, version.groups())) >= SHARES_GPUS


def run_scale(machine, log, part):
    gpus = EMULATED_GPUS if machine.emulated else int(machine.env["CDDP_TEST_GPU"])
    env = {"CDDP_FAKE_CUDA_DEVICES": str(EMULATED_GPUS)} if machine.emulated else {}
    ranks, stages = gpus, STAGES
    if gpus < 2 and shares_a_gpu(machine):
        ranks, stages, env = 2, ON_ONE_GPU, {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "CDDP_BACKEND": "nccl"}
    part |= {"gpus": gpus, "ranks": ranks, "losses": {}, "collectives": {}, "speed": {}, "torch": None, "disturbed": {},
             "nccl": [], "topology": "", "failed": []}
    if ranks < 2:
        say("scale: this machine has one GPU")
        return
    for stage in stages:
        try:
            stage(machine, log, part, ranks, env)
        except Failed as error:
            part["failed"].append(f"{stage.__name__}: {error}")
        machine.save()
