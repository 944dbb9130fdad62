"""The part `elastic` of scripts/bench: how long a job that loses a member takes until it has completed a step again, beside
torchrun, and torchft and Horovod elastic where they are installed.

One machine, and two and three hosts (network namespaces, scripts/hosts; root only), a rank each, on links of 100 Mbit/s. The work is a small
MLP on synthetic images with checkpoints every 20 steps (elastic_hosts.py, peers/elastic_ddp.py). Something happens after step 50:
  rank     kill -9 of one rank (the last)
  node     kill -9 of all processes of the last host
  node 0   the same of the first host, when the store is on another host; and when it is on this one
  cable    the last host's link goes down for good
Seconds count to the end of the first step of the next generation, by the clock in the programs' own lines. For all: a host
may be silent for LIMIT_S (cddp: CDDP_HEARTBEAT_MS; torchrun: the rendezvous's keep-alive, and gloo's timeout), the loss
of one member does not end the job, and agents look every 0.1 s."""
import json, os, shutil, subprocess, sys, tempfile, time

import elastic_hosts as elastic
from elastic_hosts import Wrong

LIMIT_S = 5
STEPS, AT, CHECKPOINT = 150, 50, 20
LOCAL = 10  # one machine: this many times as many, since no link takes time
END_S = 75
RATE = "100mbit"
WHERE = {"one machine": 1, "two hosts": 2, "three hosts": 3}
STORE_TOO = "node 0 and the store"
STORE_HOST = 4
WHAT = ("rank", "node", "node 0", "cable", STORE_TOO)
TARGETS = ("launcher/cddp-run", "src/cddp-train")


class Peer(elastic.Job):
    """A job of torchrun's agents, with the methods of one of cddp-run's. Its store, and torchft's lighthouse, may be on a host of its
    own."""
    CONF = (f"join_timeout=60,last_call_timeout=1,read_timeout={LIMIT_S},keep_alive_interval=1,"
            f"keep_alive_max_attempt={LIMIT_S}")
    SERVE = "import sys, time, torch.distributed as d; s = d.TCPStore(sys.argv[1], int(sys.argv[2]), is_master=True, " \
            "wait_for_workers=False); time.sleep(600)"

    def __init__(self, python, network, folder, hosts, work, scale, store):
        super().__init__(network, ".", folder, None, END_S, store=store)
        self.python, self.count, self.script = python, hosts, "elastic_ddp.py"
        self.words = ["--data", f"{work.folder}/data", "--folder", folder, "--steps", str(STEPS * scale),
                      "--checkpoint-steps", str(CHECKPOINT * scale), "--limit", str(LIMIT_S)]

    def environment(self, variables):
        name, value = self.mark.split("=")
        interface = "eth0" if self.network.count else "lo"
        return {**os.environ, name: value, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": interface,
                "TP_SOCKET_IFNAME": interface, "PYTHONDONTWRITEBYTECODE": "1", **variables}

    def serve(self):
        self.server = self.launch(self.store, [self.python, "-c", self.SERVE, self.network.address(self.store), str(self.port)],
                                  f"{self.folder}/store.log", self.environment({}))

    def agent(self, nnodes, endpoint, conf, host, nproc):
        return [self.python, "-m", "torch.distributed.run", "--nnodes", nnodes, "--nproc-per-node", str(nproc),
                "--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint, "--rdzv-id", "bench", "--local-addr",
                self.network.address(host), "--max-restarts", "3", "--monitor-interval", "0.1", "--rdzv-conf", conf,
                os.path.join(elastic.ROOT, "scripts/peers", self.script), *self.words]

    def start(self, host, nproc=1, words=None, **variables):
        if self.store and not self.server:
            self.serve()
        node = elastic.Node(self, host, nproc, f"{self.folder}/node-{host}.log")
        node.process = self.launch(host, self.argv(host, nproc), node.log, self.environment(
            {"HOST_ADDRESS": self.network.address(host), "TORCHFT_LIGHTHOUSE": self.url(node).replace("tcp:", "http:")}))
        self.nodes.append(node)
        return node

    def argv(self, host, nproc):
        is_host = host == 1 and not self.store
        return self.agent(f"1:{self.count}", self.url(None).replace("tcp://", "") if self.store else
                          f"{self.network.address(1)}:{self.port}", f"{self.CONF},is_host={str(is_host).lower()}", host, nproc)

    def rows(self):
        return [json.loads(line) for line in elastic.read(f"{self.folder}/steps.jsonl").rpartition(b"\n")[0].splitlines()]

    def rank(self, number):
        for pid in self.processes():
            words = elastic.read(f"/proc/{pid}/environ").decode(errors="replace").split("\0")
            # the agent's own environment has no RANK
            if self.is_rank(words, number) and self.script.encode() in elastic.read(f"/proc/{pid}/cmdline"):
                return pid
        raise Wrong(f"there is no rank {number}")

    def is_rank(self, words, number):
        return f"RANK={number}" in words

    def final(self):
        return next((row["final_loss"] for row in self.rows() if row.get("kind") == "end"), None)


class Torchft(Peer):
    """Each host's process is a replica under a torchrun of its own."""

    def __init__(self, *args):
        super().__init__(*args)
        self.script = "elastic_torchft.py"
        self.words += ["--replicas", str(self.count)]

    def serve(self):
        lighthouse = os.path.join(os.path.dirname(self.python), "torchft_lighthouse")
        self.server = self.launch(self.store, [
            lighthouse, "--min_replicas", "1", "--bind", f"[::]:{self.port}", "--heartbeat_timeout_ms", str(1000 * LIMIT_S),
            "--join_timeout_ms", "1000"], f"{self.folder}/store.log", self.environment({}))

    def argv(self, host, nproc):
        return self.agent("1", f"{self.network.address(host)}:{self.port + 100}", "is_host=true", host, nproc)

    def is_rank(self, words, number):
        return f"HOST_ADDRESS={self.network.address(number + 1)}" in words and "RANK=0" in words


class Cddp(elastic.Job):
    def __init__(self, network, build, folder, hosts, store):
        super().__init__(network, build, folder, f"1:{hosts}" if network.count else None, END_S,
                         [] if network.count else ["--elastic", "1:2"], store=store, CDDP_HEARTBEAT_MS=str(LIMIT_S * 1000))

    def final(self):
        return next((row["loss"] for row in reversed(self.rows()) if "loss" in row), None)


def recover(job, break_it):
    """What happens until the next generation has completed a step."""
    before = job.ranks()
    generations, begin = len(job.begins()), time.time()
    break_it()
    seen = job.last()[0]
    while True:
        rows = job.rows()
        begins = [i for i, row in enumerate(rows) if row.get("kind") == "run"]
        if len(begins) <= generations:
            seen = max([seen] + [row["step"] for row in rows if "loss" in row])
        else:
            first = next((row for row in rows[begins[generations]:] if "loss" in row), None)
            if first:
                return {"seconds": first["time_ms"] / 1000 - begin, "twice": seen - first["step"] + 1,
                        "ranks": rows[begins[generations]]["world_size"], "started": len(job.ranks() - before)}
        if not any(node.runs() for node in job.nodes):
            return {"ended_s": time.time() - begin}
        if time.time() - begin > END_S:
            return {"hangs": True}
        time.sleep(0.005)


def disturb(job, what, count):
    network, last = job.network, job.nodes[-1]
    if what == "rank":
        pid = job.rank(max(count, 2) - 1)
        return recover(job, lambda: elastic.send(pid, 9))
    if what == "node":
        return recover(job, lambda: network.kill(last.host))
    if what in ("node 0", STORE_TOO):
        return recover(job, lambda: network.kill(1))
    return recover(job, lambda: network.tell("link", str(last.host), "down"))


def measure(job, what, count, scale):
    """One disturbed job."""
    try:
        for host in range(1, count + 1):
            job.start(host, 2 if count == 1 else 1)
        job.until(lambda: job.trains_on(max(count, 2)), "training")
        job.until_step(AT * scale)
        row = disturb(job, what, count)
        gone = {"node": count, "node 0": 1, STORE_TOO: 1, "cable": count}.get(what)
        if not row.get("hangs"):
            for node in job.nodes:
                if node.host != gone:
                    node.process.wait(timeout=END_S)
        row["status"] = max([abs(node.process.returncode) for node in job.nodes if node.host != gone and not node.runs()],
                            default=None)
        row["loss"] = job.final()
        return row
    except (Wrong, subprocess.TimeoutExpired) as wrong:
        return {"failed": str(wrong)[:300]}
    finally:
        job.kill_all()
        if what == "cable":
            job.network.tell("link", str(count), "up")


def undisturbed(job, count):
    for host in range(1, count + 1):
        job.start(host, 2 if count == 1 else 1)
    for node in job.nodes:
        node.process.wait(timeout=2 * END_S)
    return job.final()


def version(python, name):
    if not python:
        return None
    done = subprocess.run([python, "-c", f"import importlib.metadata as m; print(m.version('{name}'))"], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def cases(torch, torchft, has_hosts, has_store):
    """(where, what, who) of each row."""
    for where, count in WHERE.items():
        if count > 1 and not has_hosts:
            continue
        for what in WHAT[:1] if count == 1 else WHAT if count == 3 else WHAT[:-1]:
            if what != "node 0" or has_store:
                yield where, what, "cddp"
            if torch:
                yield where, what, "torchrun"
            if torchft and count == 3 and what != STORE_TOO:
                yield where, what, "torchft"


def run(bench, torch, rounds):
    """The fastest of `rounds` of each row, which other programs have disturbed least."""
    network = elastic.Network(f"b{os.getpid()}", STORE_HOST, RATE)
    here, why = elastic.Network("none", 0), network.check()
    if why:
        bench.say(f"elastic: no hosts: {why}")
    folder = tempfile.mkdtemp(prefix="elastic-", dir=bench.BUILD)
    works = {scale: elastic.Work(bench.BUILD, f"{folder}/{scale}", STEPS * scale, checkpoint_steps=CHECKPOINT * scale)
             for scale in (1, LOCAL)}
    result = {"rows": [], "peers": {name: version(torch, name) for name in ("torchft", "horovod")}, "no_hosts": why}
    whole = {}

    def make(who, what, count):
        net, scale = (network, 1) if count > 1 else (here, LOCAL)
        path, store = works[scale].new_folder("run"), STORE_HOST if what == "node 0" or who == "torchft" else None
        if who == "cddp":
            return Cddp(net, bench.BUILD, path, count, store)
        return {"torchrun": Peer, "torchft": Torchft}[who](torch, net, path, count, works[scale], scale, store)

    with network if not why else tempfile.TemporaryDirectory():
        for where, what, who in cases(torch, result["peers"]["torchft"], not why, elastic.has_store(bench.BUILD)):
            count, found = WHERE[where], []
            scale = 1 if count > 1 else LOCAL
            for _ in range(rounds):
                job = make(who, what, count)
                row = measure(job, what, count, scale)
                if who == "cddp" and row.get("status") == 0:
                    row["same"] = same(works[scale], job.folder)
                found.append(row)
            best = min(found, key=lambda row: row.get("seconds", 1e9))
            bench.say(f"elastic: {where}, {what}, {who}: {best}")
            if who == "torchrun" and scale not in whole:
                whole[scale] = undisturbed(make(who, what, count), count)
            result["rows"].append({"where": where, "what": what, "who": who, "whole": None if who == "cddp" else whole.get(scale)}
                                  | best)
    shutil.rmtree(folder)
    return result


def same(work, path):
    try:
        work.compare(path)
        return True
    except Wrong as wrong:
        print(f"bench: {wrong}", file=sys.stderr)
        return False


def describe(row):
    """Of one row: seconds, steps computed twice, processes started, status, and the result beside that of an undisturbed run."""
    if "failed" in row:
        return "could not be measured", "", "", "", row["failed"].splitlines()[0][:80]
    if row.get("hangs"):
        return f"none within {END_S} s", "", "", "", ""
    status = "-" if row.get("status") is None else str(row["status"])
    if "ended_s" in row:
        return f"the job ends after {row['ended_s']:.1f} s", "", "", status, ""
    if row["who"] == "cddp":
        result = "the same bytes" if row.get("same") else "OTHER BYTES" if row.get("status") == 0 else ""
    else:
        result = f"loss {row['loss']:.6f}, not {row['whole']:.6f}" if row.get("loss") and row.get("whole") else ""
        if row.get("loss") and row["loss"] == row.get("whole"):
            result = "the same loss"
    return f"{row['seconds']:.2f}", str(row["twice"]), str(row["started"]), status, result


def table(result):
    print("| where | what is lost | who | s to the next completed step | steps computed twice | processes started | status | result beside an undisturbed run |")
    print("|---" * 8 + "|")
    for row in result["rows"]:
        print(f"| {row['where']} | {row['what']} | {row['who']} | " + " | ".join(describe(row)) + " |")
    for name, found in result["peers"].items():
        print(f"\n{name}: {'version ' + found if found else 'is not installed'}")
    print()
