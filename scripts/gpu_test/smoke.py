"""smoke - the part `smoke`: in under a minute, whether it is worth going on; one JSON line a check."""
import concurrent.futures, io, os, re, shutil, threading, time

from .machine import Failed, find_tool, first_reason
from .suites import one_test
from .training import run_conf

STEPS = 8
# Short sequences: the processor computes the same steps in float32 meanwhile.
MODEL = ["model.blocks=2", "model.context=64", "train.batch_size=16", "train.micro_batch=4",
         f"train.max_steps={STEPS}", "data.samples=128", "train.eval_batch_size=8", "train.log_steps=1"]
SMALLER = ["model.heads=2", "model.embed=32", "model.context=16", "model.vocab=64"]
# How far losses and gradients' norms may be apart, relatively: bf16 from float32, and sums in another order from
# each other. Random tokens teach little, so a wrong gradient shows in its norm rather than in the losses.
LIMITS = {"losses": (2e-2, 5e-3), "grad_norms": (5e-2, 2e-2)}


def losses(machine, log, device, graphs, precision, env, ranks=1, deadline=45, more=()):
    words = [*MODEL, *(SMALLER if machine.emulated else []), f"train.precision={precision}", *more]
    if device == "cuda":
        words.append(f"train.cuda_graph={graphs}")
    lines = run_conf(machine, log, "gpt2_124m", words, ranks, deadline, env, device)
    steps = [line for line in lines if "loss" in line and "step_ms" in line]
    if len(steps) != STEPS:
        raise Failed(f"{len(steps)} of {STEPS} steps have a loss")
    return {"ok": True, "why": "", "losses": [step["loss"] for step in steps],
            "grad_norms": [step["grad_norm"] for step in steps]}


def furthest(some, others):
    """The greatest relative difference; NaN counts as infinite."""
    apart = [abs(a - b) / abs(b) for a, b in zip(some, others)]
    return max((x if x == x else float("inf")) for x in apart)


def found_by_check(text):
    """What cddp-run --check says of CUDA, by the lines' first words."""
    return dict(re.findall(r"^  (driver|runtime|cuBLASLt|cuDNN|NCCL|libraries|queues|devices|cuda:\d+) +(.*)$", text,
                           re.M))


def check_cddp(machine, log):
    status, text, _ = machine.run([f"{machine.build}/launcher/cddp-run", "--check"], 30, log)
    found = found_by_check(text)
    lacking = [f"{name}: {value}" for name, value in found.items() if value.startswith("no:")]
    if machine.emulated:
        lacking = [line for line in lacking if line.startswith("devices")]
    if status != 0 or not any(name.startswith("cuda:") for name in found):
        lacking.insert(0, f"no device: {first_reason(text)}")
    return {"ok": not lacking, "why": "; ".join(lacking), **found}


def check_smi(machine, log):
    if machine.emulated or not shutil.which("nvidia-smi"):
        return {"ok": None, "why": "emulated" if machine.emulated else "there is no nvidia-smi"}
    status, text, _ = machine.run(["nvidia-smi"], 15, log)
    return {"ok": status == 0, "why": "" if status == 0 else first_reason(text)}


def check_ops(machine, log):
    """Every test of kernels alone, 15 s each, four at a time."""
    at = f"{machine.build}/tests"
    names = sorted(name for name in os.listdir(at) if re.fullmatch(r"test_cuda_\w+", name)
                   and os.access(f"{at}/{name}", os.X_OK) and os.path.isfile(f"{at}/{name}"))
    if machine.emulated:
        names = [name for name in names if name in ("test_cuda_squares", "test_cuda_images")]
    each = 400 if machine.emulated else 15
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        rows = list(pool.map(lambda name: one_test(machine, name, each, {"CDDP_TEST_QUICK": "1"}), names))
    for _, text in rows:
        log.write(text)
    bad = [f"{row['test']}: {row['result']}: {row['why']}" for row, _ in rows
           if row["result"] in ("FAILED", "too slow")]
    passed = sum(row["passed"] for row, _ in rows)
    return {"ok": not bad and passed > 0, "why": "; ".join(bad) or ("" if passed else "no test ran"),
            "programs": len(names), "passed": passed, "seconds_each": {row["test"]: row["seconds"] for row, _ in rows}}


def check_sanitizer(machine, log):
    tool = None if machine.emulated else find_tool("compute-sanitizer")
    if tool is None:
        return {"ok": None, "why": "emulated" if machine.emulated else "there is no compute-sanitizer"}
    argv = [tool, "--tool", "memcheck", f"{machine.build}/tests/test_cuda_squares"]
    status, text, _ = machine.run(argv, 25, log)
    return sanitizer_row(status, text)


def sanitizer_row(status, text):
    found = re.search(r"ERROR SUMMARY: (\d+) error", text)
    if found is None:  # refused, as in some sandboxes, or too slow: that says nothing of us
        return {"ok": None, "why": f"it does not work here: status {status}: {first_reason(text)}"}
    return {"ok": status == 0 and found[1] == "0", "errors": int(found[1]), "why": first_reason(text) if status else ""}


class Smoke:
    """Writes each check as a line of JSON when it ends."""

    def __init__(self, machine, log, part):
        self.machine, self.log, self.part = machine, log, part
        self.lock = threading.Lock()

    def tell(self, name, start, row):
        with self.lock:
            row = {"check": name, **row, "seconds": round(time.monotonic() - start, 1)}
            self.part["rows"].append(row)
            if row["ok"] is False:
                self.part["failed"].append(f"{name}: {row['why']}")
            self.machine.save()

    def check(self, name, work, *arguments, **more):
        start, log = time.monotonic(), io.StringIO()
        try:
            row = work(self.machine, log, *arguments, **more)
        except Exception as error:  # whatever it is, the other checks are made
            row = {"ok": False, "why": f"{type(error).__name__}: {error}"}
        with self.lock:
            self.log.write(log.getvalue())
        self.tell(name, start, row)
        return row


def side_by_side(found):
    """Losses and norms of each run of @found, {name: row}, and how far they are from the processor's."""
    apart, bad = {}, [f"{name} has no losses" for name, row in found.items() if "losses" not in row]
    known = {name: row for name, row in found.items() if "losses" in row}
    pairs = [(name, "cpu f32", 0) for name in known if name != "cpu f32"] + [("always", "never", 1)]
    for what, limits in LIMITS.items():
        for name, other, which in pairs:
            if name in known and other in known:
                key = f"{what}, {name} to {other}"
                apart[key] = furthest(known[name][what], known[other][what])
                if not apart[key] <= limits[which]:
                    bad.append(f"{key}: {apart[key]:.2g} apart, more than {limits[which]:g}")
    return {"ok": not bad, "why": "; ".join(bad), "apart": apart,
            **{what: {name: row[what] for name, row in known.items()} for what in LIMITS}}


def run_smoke(machine, log, part):
    part |= {"rows": [], "failed": []}
    smoke = Smoke(machine, log, part)
    found = {}
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        right = pool.submit(smoke.check, "gpt2 cpu f32", losses, "cpu", "", "f32", {"CDDP_BACKEND": ""},
                            deadline=55)
        smoke.check("cddp-run --check", check_cddp)
        smoke.check("nvidia-smi", check_smi)
        smoke.check("ops", check_ops)
        pool.submit(smoke.check, "compute-sanitizer memcheck", check_sanitizer)
        for graphs in ("always", "never"):
            found[graphs] = smoke.check(f"gpt2 cuda_graph={graphs}", losses, "cuda", graphs, "bf16",
                                        {"CDDP_BACKEND": "solo"})
        found["ipc x2"] = smoke.check("gpt2 ipc x2", losses, "cuda", "never", "bf16", {"CDDP_BACKEND": "ipc"}, 2)
        found["cpu f32"] = right.result()
    smoke.check("losses side by side", lambda _machine, _log: side_by_side(found))
