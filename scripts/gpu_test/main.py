"""main - the command line: which parts, in which order, until when; what is on disk at any moment."""
import argparse, datetime, json, os, re, signal, tempfile, time

from . import bits, packing, profile, ranks, scale, smoke, suites, tables, text as texts, training
from .machine import Failed, Keeper, Machine, first_reason, json_lines, library_version, output, say

# Each call fits a loan of ten minutes. Seconds that later parts of a call are sure to have left.
CALLS = {"A": ("smoke", "single", "text", "profile"), "B": ("ops", "gpt2"), "C": ("resnet50", "ranks", "bits"),
         "D": ("multi",), "E": ("scale",)}
SECONDS = {"smoke": 60, "single": 170, "text": 50, "profile": 220, "ops": 120, "gpt2": 380, "resnet50": 220,
           "ranks": 200, "bits": 90, "multi": 500, "scale": 500}
LIMIT = 510


def run_ops(machine, log, part):
    part |= {"rows": [], "failed": []}
    argv = [f"{machine.build}/tests/bench_cuda"] + (["--small"] if machine.emulated else [])
    status, text, _ = machine.run(argv, 400 if machine.emulated else 120, log)
    part["rows"] = json_lines(text)
    part["failed"] += [f"{row['op']}, {row['shape']}: {row['failed']}" for row in part["rows"] if "failed" in row]
    machine.save()
    param = f"{machine.build}/tests/bench_cuda_param"
    if os.path.exists(param) and not machine.emulated:
        machine.run([param], 60, log)
    if status != 0:
        raise Failed(f"bench_cuda: status {status}: {first_reason(text)}")


RUN = {"smoke": smoke.run_smoke, "single": suites.run_single, "text": texts.run_text,
       "profile": profile.run_profile, "ops": run_ops,
       "gpt2": training.run_gpt2, "resnet50": training.run_resnet50, "ranks": ranks.run_ranks,
       "bits": bits.run_bits, "multi": suites.run_multi, "scale": scale.run_scale}
PARTS = tuple(part for parts in CALLS.values() for part in parts)


def describe(machine, a):
    smi = output(["nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.sm,clocks.mem",
                  "--format=csv,noheader"])
    built = os.path.join(machine.build, "revision")
    return {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
            "gpu": "emulated" if a.emulated else smi or "no nvidia-smi",
            "cddp": open(built).read() if os.path.exists(built) else packing.revision(machine.root),
            "torch": output([a.python, "-c", "import torch; print(torch.__version__, torch.version.cuda)"]) or "none",
            "libraries from": machine.place,
            **{os.path.basename(path): f"{library_version(path)} ({path})" for path in machine.libraries.values()}}


class Results:
    """What was found so far. Always on disk: a call that is cut off keeps what it has."""

    def __init__(self, out_dir, machine, about):
        self.out_dir, self.machine = out_dir, machine
        self.about, self.parts, self.seconds, self.failed = about, {}, {}, []

    def lines(self):
        lines = [f"{key}: {value}" for key, value in self.about.items()]
        for name, part in self.parts.items():
            lines += ["", f"## {name} ({number(self.seconds.get(name))} s)"]
            lines += [f"FAILED: {part['error']}"] if "error" in part else []
            try:
                lines += tables.TABLE[name](part)
            except (KeyError, TypeError):  # a part that ended before it had anything
                lines += [] if "error" in part else ["not done yet"]
        failed = self.problems()
        return lines + (["", "failed:", *(f"  {text}" for text in failed)] if failed else [])

    def problems(self):
        found = list(self.failed)
        for name, part in self.parts.items():
            found += [f"{name}: {text}" for text in part.get("failed", [])]
            found += [f"{name}: {part['error']}"] if "error" in part else []
        return found

    def save(self):
        for name, text in (("results.json", json.dumps({"machine": self.about, "parts": self.parts}, indent=1)),
                           ("table.txt", "\n".join(self.lines()) + "\n"),
                           ("smoke.jsonl", "".join(json.dumps(row) + "\n"
                                                   for row in self.parts.get("smoke", {}).get("rows", [])))):
            if text:
                with open(f"{self.out_dir}/{name}.new", "w") as file:
                    file.write(text)
                os.replace(f"{self.out_dir}/{name}.new", f"{self.out_dir}/{name}")


def number(seconds):
    return "?" if seconds is None else f"{seconds:.0f}"


def run_part(machine, results, name, later):
    """One part, which leaves their seconds to the @later ones. Whatever happens in it, they are run."""
    start, end = time.monotonic(), machine.end
    part = results.parts.setdefault(name, {})
    if not machine.emulated:
        machine.end = end - sum(SECONDS[other] for other in later)
    say(f"{name} ({machine.left():.0f} s)")
    try:
        with open(f"{results.out_dir}/{name}.txt", "w", buffering=1) as log:
            try:
                RUN[name](machine, log, part)
            except Exception as error:
                part["error"] = f"{type(error).__name__}: {error}"
                log.write(f"{part['error']}\n")
    finally:
        machine.end = end
        results.seconds[name] = time.monotonic() - start
        results.save()


def stop(number_of, _):
    raise SystemExit(f"gpu-test: ended by signal {number_of}; what was found is written")


def run_all(a, parts, out_dir, built, scratch):
    machine = Machine(a, built, scratch)
    with Keeper(machine) as keeper:
        results = Results(out_dir, machine, describe(machine, a) | {"idle process": keeper.said})
        machine.save = results.save
        with open(f"{out_dir}/check.txt", "w") as log:
            _, text, _ = machine.run([f"{built}/launcher/cddp-run", "--check"], 60, log)
        results.about |= smoke.found_by_check(text)
        results.failed += re.findall(r"^  devices +no: (.*)$", text, re.M)
        results.save()
        for i, name in enumerate(parts):
            run_part(machine, results, name, parts[i + 1:])
    print("\n".join(results.lines()))
    return 1 if results.problems() else 0


def chosen(a, parser):
    """Parts in the order of the calls, those of `tests` being both kinds."""
    words = (CALLS.get(a.call, ()) if a.call else ()) + tuple(a.only.split(",") if a.only else ())
    names = {name for word in words for name in (CALLS["A"][1:2] + CALLS["D"] if word == "tests" else (word,))}
    if a.call and a.call not in CALLS or names - set(PARTS):
        parser.error(f"--call takes {', '.join(CALLS)}; --only takes {', '.join(PARTS)}, tests")
    return [part for part in PARTS if part in names or not words]


def main(doc):
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out_dir", nargs="?")
    parser.add_argument("--call", help="A, B, C, D or E")
    parser.add_argument("--only", help="parts: " + ", ".join(PARTS) + "; tests: single and multi")
    parser.add_argument("--tests", help="programs of single and multi, in this order, instead of all")
    parser.add_argument("--build")
    parser.add_argument("--pack")
    parser.add_argument("--limit", type=float, help=f"seconds for all of it ({LIMIT} a call)")
    parser.add_argument("--python", default="python3", help="the interpreter that has PyTorch (python3)")
    parser.add_argument("--mixed-libraries", action="store_true", help="take CUDA's libraries from several places")
    parser.add_argument("--emulated", action="store_true")
    a = parser.parse_args()
    if a.pack:
        return packing.pack(os.path.abspath(a.pack), a.build and os.path.abspath(a.build), a.emulated)
    parts = chosen(a, parser)
    if not a.out_dir:
        parser.error("OUT_DIR is missing")
    if a.limit is None:
        calls = sum(any(part in parts for part in CALLS[call]) for call in CALLS)
        a.limit = 3600 if a.emulated else LIMIT * calls
    os.makedirs(a.out_dir, exist_ok=True)
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    with tempfile.TemporaryDirectory() as scratch:
        return run_all(a, parts, os.path.abspath(a.out_dir), packing.find_build(a.build, scratch), scratch)
