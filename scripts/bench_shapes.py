"""The part `shapes` of scripts/bench: networks of all kinds of sizes, each beside PyTorch; the worst ratio counts.

Each network is trained for some steps by cddp and by PyTorch, on one core and on two ranks, by turns. Rows over
the limit are measured again, so that they are no accident. A network that does not finish in time is a row, too:
with the steps that it made, or the time limit in place of its step.
"""
import json, math, os, queue, shutil, statistics, subprocess, sys, threading

PEERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers")
sys.path.insert(0, PEERS)
import shapes

LIMIT = 1.1       # a row above it is measured again, and counted
AGAIN = 2         # so many more rounds
SECONDS = 0.5     # of steps in each measurement
SHOWN = 12        # of the worst rows
STEPS = (8, 400)  # at least and at most


class Torch:
    """Two PyTorch ranks that live as long as they answer in time."""

    def __init__(self, python, environment, limit):
        self.argv, self.environment, self.limit = [python, os.path.join(PEERS, "shapes_torch.py")], environment, limit
        self.process = None

    def start(self):
        self.process = subprocess.Popen(self.argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        stderr=subprocess.DEVNULL, env=dict(os.environ, **self.environment),
                                        start_new_session=True)
        self.lines = queue.Queue()
        threading.Thread(target=self.read, args=(self.process, self.lines), daemon=True).start()

    @staticmethod
    def read(process, lines):
        for line in process.stdout:
            if line.startswith("{"):
                lines.put(json.loads(line))
        lines.put(None)

    def measure(self, name):
        """Its answer, or None: it failed or took too long."""
        fresh = self.process is None
        if fresh:
            self.start()
        try:
            self.process.stdin.write(f"{SECONDS} {name}\n")
            self.process.stdin.flush()
            # both its measurements, and what nobody waits for in ours
            row = self.lines.get(timeout=3 * self.limit + (120 if fresh else 0))
        except (queue.Empty, OSError):
            row = None
        if row is None:
            print(f"bench: PyTorch {'failed' if self.failed() else 'was too slow'} on {name}", file=sys.stderr)
            self.stop()
        return row

    def failed(self):
        return self.process.poll() is not None

    def stop(self):
        if self.process is not None:
            try:
                os.killpg(self.process.pid, 9)
            except ProcessLookupError:
                pass
            self.process.wait()
            self.process = None


def cddp_step(bench, network, ranks, steps, limit):
    """(ms of a step, whether it finished) of some steps after warm-up."""
    conf, run = os.path.join(bench.BUILD, "shape.conf"), os.path.join(bench.BUILD, "run-shape")
    shutil.rmtree(run, ignore_errors=True)
    with open(conf, "w") as file:
        file.write(shapes.conf(network))
    batch = network["batch"] * ranks
    status, _, _ = bench.sh(
        [f"{bench.BUILD}/launcher/cddp-run", "--nproc", str(ranks), "--bind", "core", "--run-dir", run, conf,
         f"train.batch_size={batch}", f"train.max_steps={steps + 4}", "train.log_steps=1", "train.epochs=1000000",
         "train.eval_epochs=1000000", "train.eval_batches=1", f"train.eval_batch_size={batch}",
         "train.tensorboard=false", "data.threads=0"], limit, {"CDDP_PROGRESS": "off", "CDDP_THREADS": "1"})
    try:
        with open(os.path.join(run, "metrics.jsonl")) as file:
            rows = [json.loads(line) for line in file if line.endswith("}\n")]
    except OSError:
        rows = []
    taken = [row["step_ms"] for row in rows if "step_ms" in row]
    taken = taken[4:] or taken
    if status not in (0, 124):
        raise SystemExit(f"bench: cddp failed ({status}) on {network['name']}: see {conf} and {run}")
    return (statistics.median(taken) if taken else 1000 * limit), status == 0


def measure(bench, peer, network, rounds, limit, rows):
    """More rounds of one network, into @rows: ranks -> what was measured."""
    for _ in range(rounds):
        theirs = peer.measure(network["name"]) if peer else None
        for ranks in (1, 2):
            row = rows[ranks]
            if not row["finished"]:
                continue
            guess = theirs[f"x{ranks}_ms"] if theirs else 20
            steps = min(STEPS[1], max(STEPS[0], int(1000 * SECONDS / guess)))
            ms, row["finished"] = cddp_step(bench, network, ranks, steps, limit)
            row["cddp"].append(ms)
            if theirs:
                row["torch"].append(theirs[f"x{ranks}_ms"])


def result_row(network, ranks, row):
    result = {"name": network["name"], "ranks": ranks, "batch": network["batch"], "sizes": shapes.describe(network),
              "cddp_ms": statistics.median(row["cddp"]), "finished": row["finished"], "rounds": len(row["cddp"])}
    if row["torch"]:
        result["torch_ms"] = statistics.median(row["torch"])
        # each round's two sides met the same noise
        result["ratio"] = statistics.median(a / b for a, b in zip(row["cddp"], row["torch"]))
    return result


def run(bench, torch, rounds, count, limit):
    """All rows. @bench is the module of scripts/bench (its sh, say and BUILD)."""
    peer = Torch(torch, bench.PEER_ENV, limit) if torch else None
    found = []
    try:
        for network in shapes.networks(count):
            rows = {ranks: {"cddp": [], "torch": [], "finished": True} for ranks in (1, 2)}
            measure(bench, peer, network, rounds, limit, rows)
            both = [result_row(network, ranks, rows[ranks]) for ranks in (1, 2)]
            if any(row.get("ratio", 0) > LIMIT and row["finished"] for row in both):
                measure(bench, peer, network, AGAIN, limit, rows)
                both = [result_row(network, ranks, rows[ranks]) for ranks in (1, 2)]
            found += both
            bench.say("  ", network["name"] + ":", ", ".join(
                f"x{row['ranks']} {row['cddp_ms']:.3g} ms" + (f" ({row['ratio']:.2f} of PyTorch's)"
                                                              if "ratio" in row else "") for row in both))
    finally:
        if peer:
            peer.stop()
    return summary(found)


def summary(rows):
    compared = sorted((row for row in rows if "ratio" in row), key=lambda row: -row["ratio"])
    result = {"rows": rows, "unfinished": [f"{row['name']} x{row['ranks']}" for row in rows if not row["finished"]]}
    for ranks in (1, 2):
        ratios = [row["ratio"] for row in compared if row["ranks"] == ranks]
        if ratios:
            result[f"geometric_mean_x{ranks}"] = math.exp(statistics.fmean(map(math.log, ratios)))
            result[f"worst_x{ranks}"] = ratios[0]
    result["over_limit"] = sum(row["ratio"] > LIMIT for row in compared)
    return result


def table_row(row):
    return f"| {row['name']} | {row['ranks']} | {row['batch']} | {row['cddp_ms']:.3g}" \
           f"{'' if row['finished'] else ' (did not finish)'} | " \
           + (f"{row['torch_ms']:.3g} | {row['ratio']:.2f} |" if "ratio" in row else "- | - |") \
           + f" {row['sizes'] if len(row['sizes']) <= 100 else row['sizes'][:97] + '...'} |"


def table(result):
    rows = result["rows"]
    heading = "| ranks | batch a rank | cddp ms | PyTorch ms | ratio | sizes |\n" + "|---" * 7 + "|"
    print("| shapes: the worst |", heading[2:])
    worst = sorted(rows, key=lambda row: (row["finished"], -row.get("ratio", 0)))
    for row in worst[:SHOWN]:
        print(table_row(row))
    print("\n| shapes: by name |", heading[2:])
    for row in rows:
        if not row["name"].startswith("random"):
            print(table_row(row))
    print()
    for ranks in (1, 2):
        if f"worst_x{ranks}" in result:
            print(f"shapes, {ranks} rank{'s'[:ranks - 1]}: step over PyTorch's: worst {result[f'worst_x{ranks}']:.2f}, "
                  f"geometric mean {result[f'geometric_mean_x{ranks}']:.2f} of {len(rows) // 2} networks")
    print(f"shapes: {result['over_limit']} rows above {LIMIT}; did not finish: {', '.join(result['unfinished']) or 'none'}\n")
