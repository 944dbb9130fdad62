"""profile - the part `profile`: each kernel of a micro-batch against what the card was measured to do."""
import csv, io, os, re

from .machine import Failed, file_text, find_tool, first_reason, json_lines
from .training import TINY, run_conf

# The examples as they are measured, shortened; steps that are replayed have no times of their kernels.
RUNS = {"gpt2_124m": (["train.batch_size=128", "train.micro_batch=64", "train.max_steps=4", "data.samples=1024"], 2),
        "resnet50": (["train.max_steps=5", "data.samples=2048", "data.threads=8"], 1)}


def ceilings(machine, log):
    """Bytes and operations a second that the card was measured to do: a copy of 2 GiB, a product of 8192^3."""
    argv = [f"{machine.build}/tests/bench_cuda", "--ceilings"] + (["--small"] if machine.emulated else [])
    status, text, _ = machine.run(argv, 400 if machine.emulated else 60, log)
    rows = {row["op"]: row for row in json_lines(text)}
    if status != 0 or "gbs" not in rows.get("copy", {}) or "tflops" not in rows.get("linear", {}):
        raise Failed(f"bench_cuda --ceilings: status {status}: {first_reason(text)}")
    return {"bytes_per_s": rows["copy"]["gbs"] * 1e9, "flops_per_s": rows["linear"]["tflops"] * 1e12}


def weigh(lines, micro_batches, card):
    """Rows of a profile file, a micro-batch each, with what was lost against the ceilings, the largest loss first.
    The last row is the time in which none of them ran."""
    head = next((line for line in lines if "steps" in line), {"steps": 0})
    if head["steps"] < 1:
        raise Failed("the profile has no step")
    if head["missed"]:
        raise Failed(f"the profile misses {head['missed']} calls")
    turns = head["steps"] * micro_batches
    rows = []
    for line in lines:
        if "op" not in line:
            continue
        least = max(line["bytes"] / card["bytes_per_s"], line["flops"] / card["flops_per_s"]) + \
            line["pass_bytes"] / card["bytes_per_s"]
        seconds = line["us"] * 1e-6
        ms = 1e3 * line["calls"] / turns * seconds  # by the median
        rows.append({"op": line["op"], "shape": line["shape"], "calls": line["calls"] / turns, "us": line["us"],
                     "bytes": line["bytes"] + line["pass_bytes"], "flops": line["flops"], "ms": ms,
                     "gbs": (line["bytes"] + line["pass_bytes"]) / seconds / 1e9 if seconds else 0,
                     "tflops": line["flops"] / seconds / 1e12 if seconds else 0,
                     "of_ceiling": least / seconds if seconds else 0,
                     "lost_ms": ms - 1e3 * line["calls"] / turns * least})
    rows.sort(key=lambda row: -row["lost_ms"])
    all_ms = sum(line["total_us"] for line in lines if "op" in line) / 1e3 / turns
    step_ms = head["step_us"] / 1e3 / micro_batches
    return {"rows": rows, "kernels_ms": all_ms, "micro_batch_ms": step_ms, "between_ms": step_ms - all_ms}


def profile_run(machine, log, conf, card, deadline):
    words, micro_batches = RUNS[conf]
    words = [*words, *(TINY[conf] if machine.emulated else []), "train.cuda_graph=never"]
    if machine.emulated:
        micro_batches = 4 if conf == "gpt2_124m" else 1
    path = os.path.join(machine.scratch, f"profile-{conf}.jsonl")
    run_conf(machine, log, conf, words, 1, deadline, {"CDDP_PROFILE": path, "CDDP_BACKEND": "solo"})
    return weigh(json_lines(file_text(path)), micro_batches, card)


# ---------------------------------------------------------------- NVIDIA's profiler, which sees each kernel itself
METRICS = ("gpu__time_duration.sum", "dram__bytes.sum")
UNITS = {"nsecond": 1e-9, "usecond": 1e-6, "msecond": 1e-3, "second": 1, "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1,
         "byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}


def ncu_rows(text, card):
    """Kernels of `ncu --csv --page raw`, those of one name and range together, the longest first. The range is the
    innermost one, an operation of our table of kernels."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    if len(lines) < 3:
        raise Failed(f"ncu: no kernels: {first_reason(text)}")
    table = list(csv.reader(io.StringIO("\n".join(lines))))
    head, units = table[0], table[1]
    column = {name: head.index(name) for name in ("Kernel Name", *METRICS)}
    ranges = [i for i, name in enumerate(head) if "Push/Pop_Range" in name]
    kernels = {}
    for line in table[2:]:
        values = [float(line[column[name]].replace(",", "")) * UNITS[units[column[name]]] for name in METRICS]
        where = [part for i in ranges for part in re.findall(r"[^\"\s;]*?:([^:\"]+):", line[i])[-1:]]
        kernel = kernels.setdefault((line[column["Kernel Name"]], where[-1] if where else ""), [0, 0.0, 0.0])
        kernel[0] += 1
        kernel[1] += values[0]
        kernel[2] += values[1]
    rows = [{"kernel": name, "within": within, "calls": calls, "ms": 1e3 * seconds, "bytes": moved,
             "of_memory": moved / seconds / card["bytes_per_s"] if seconds else 0}
            for (name, within), (calls, seconds, moved) in kernels.items()]
    return sorted(rows, key=lambda row: -row["ms"])


def ncu_run(machine, log, card, deadline):
    """One step of one micro-batch under ncu; a dict with why not where it is refused."""
    ncu = find_tool("ncu")
    if ncu is None:
        return {"refused": "there is no ncu"}
    path = os.path.join(machine.scratch, "ncu.csv")
    words = ["train.batch_size=64", "train.micro_batch=64", "train.max_steps=2", "data.samples=128",
             *(TINY["gpt2_124m"] + ["train.micro_batch=8"] if machine.emulated else [])]
    env = {"CDDP_PROFILE": os.path.join(machine.scratch, "under-ncu.jsonl"), "CDDP_BACKEND": "solo"}
    argv = [ncu, "--clock-control", "none", "--profile-from-start", "off", "--nvtx", "--csv", "--page", "raw",
            "--metrics", ",".join(METRICS), "--target-processes", "all", "--log-file", path,
            f"{machine.build}/launcher/cddp-run", "--nproc", "1", "--run-dir", f"{machine.scratch}/under-ncu",
            f"{machine.root}/examples/gpt2_124m.conf", "train.device=cuda", "train.cuda_graph=never",
            "train.tensorboard=false", "train.checkpoint_at_end=false", "train.eval_batches=1", *words]
    status, text, _ = machine.run(argv, deadline, log, env)
    said = file_text(path)
    log.write(said[:100000] + "\n")
    try:
        return {"rows": ncu_rows(said, card)}
    except (Failed, ValueError, KeyError, IndexError) as error:
        refused = re.findall(r"==(?:ERROR|WARNING)== (.*)", said + text)
        return {"refused": refused[0] if refused else f"status {status}: {error}"}


def run_profile(machine, log, part):
    part |= {"failed": [], "models": {}, "ncu": None, "ceilings": None}
    part["ceilings"] = card = ceilings(machine, log)
    for conf in RUNS:
        try:
            part["models"][conf] = profile_run(machine, log, conf, card, 90)
        except Failed as error:
            part["failed"].append(str(error))
        machine.save()
    part["ncu"] = {"refused": "emulated"} if machine.emulated else ncu_run(machine, log, card, machine.left() - 5)
