"""Elastic jobs of cddp-run on hosts of network namespaces (scripts/hosts; root only), to be disturbed: what the part `elastic` of
scripts/bench, scripts/chaos_hosts and tests/scripts/test_elastic_hosts.py have in common."""
import gzip, json, os, random, shutil, signal, struct, subprocess, time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HOSTS = os.path.join(ROOT, "scripts", "hosts")
SIDE, CLASSES = 8, 4
PORT = 7200
LIMIT_MS = 1000  # CDDP_HEARTBEAT_MS, the least that cddp-run takes
CONF = """data = {{ train_images = "{data}/images.gz"; train_labels = "{data}/labels";
  test_images = "{data}/images.gz"; test_labels = "{data}/labels"; }};
model = {{ hidden = [256, 256]; }};
train = {{ epochs = {epochs}; batch_size = {batch}; micro_batch = {micro_batch}; seed = 3; log_steps = 1; eval_epochs = 1000000;
  checkpoint_steps = {checkpoint_steps}; checkpoint_seconds = 0.0; keep = 2; resume = "auto"; run_dir = "run"; }};
optimizer = {{ lr = 0.05; momentum = 0.9; }};
"""
# Of a line of metrics.jsonl: what does not depend on the clock.
SAME = ("step", "epoch", "loss", "accuracy", "lr", "grad_norm", "eval_loss", "eval_accuracy")


class Wrong(Exception):
    """What a job did that it must not."""


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def send(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def stat(pid):
    """State and parent of a process; None: it is gone."""
    words = read(f"/proc/{pid}/stat").decode(errors="replace").rpartition(")")[2].split()
    return (words[0], int(words[1])) if words else None


class Network:
    """`count` hosts, numbered from 1; with 0, this machine as it is."""

    def __init__(self, name, count, rate="none"):
        self.name, self.count, self.rate, self.port = name, count, rate, PORT

    def check(self):
        """Why there can be no hosts; None: there can."""
        row = subprocess.run([HOSTS, "--name", self.name, "check"], capture_output=True, text=True)
        return None if row.returncode == 0 else row.stderr.strip() or f"scripts/hosts check ended with {row.returncode}"

    def tell(self, *words):
        row = subprocess.run([HOSTS, "--name", self.name, *words], capture_output=True, text=True, timeout=120)
        if row.returncode != 0:
            raise Wrong(f"scripts/hosts {' '.join(words)}: {row.stderr}")
        return row.stdout

    def __enter__(self):
        self.tell("up", str(self.count), self.rate)
        return self

    def __exit__(self, *_):
        subprocess.run([HOSTS, "--name", self.name, "down"])

    def on(self, host, words):
        return [HOSTS, "--name", self.name, "exec", str(host), "--", *words] if self.count else words

    def address(self, host):
        return f"10.77.0.{host}" if self.count else "127.0.0.1"

    def pids(self, host):
        out = subprocess.run(["ip", "netns", "pids", f"{self.name}-{host}"], capture_output=True, text=True).stdout.split()
        return [int(pid) for pid in out if (stat(pid) or "Z")[0] != "Z"]

    def kill(self, host):
        """All processes of a host, also those that others start meanwhile."""
        while pids := self.pids(host):
            for pid in pids:
                send(pid, signal.SIGKILL)

    def left(self):
        """What is on the hosts: processes, and names in their shared memory."""
        found = []
        for host in range(1, self.count + 1):
            found += [f"host{host}: {read(f'/proc/{pid}/cmdline').replace(bytes(1), b' ').decode(errors='replace')}"
                      for pid in self.pids(host)]
            shm = f"/run/cddp-hosts/{self.name}/{host}/shm"
            found += [f"host{host}: /dev/shm/{name}" for name in os.listdir(shm)]
        return found


class Node:
    """One cddp-run on a host; its process is the launcher, which has the supervisor below it, which has the ranks."""

    def __init__(self, job, host, nproc, log):
        self.job, self.host, self.nproc, self.log = job, host, nproc, log
        self.process = None

    def runs(self):
        return self.process.poll() is None

    def text(self):
        return read(self.log).decode(errors="replace")

    def wait(self, limit_s):
        try:
            return self.process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise Wrong(f"the cddp-run of host{self.host} has not ended after {limit_s} s: {self.log}") from None


def has_store(build):
    """Whether cddp-run can serve a store outside of the nodes."""
    return "--store" in subprocess.run([os.path.join(build, "launcher/cddp-run"), "--help"], capture_output=True, text=True).stdout


class Job:
    """A job of cddp-run, a node a host, with a run's folder that all hosts see. The first node that is started is node 0.
    With `nnodes` None: a job on this machine. With `store`, a process of its own on that host serves the store."""

    def __init__(self, network, build, folder, nnodes, limit_s, options=(), words=(), store=None, **variables):
        self.network, self.build, self.folder, self.nnodes = network, os.path.abspath(build), folder, nnodes
        self.deadline, self.limit_s, self.options, self.words = time.monotonic() + limit_s, limit_s, options, words
        self.nodes, self.variables, self.store, self.server = [], variables, store, None
        network.port += 1
        self.port = network.port
        self.mark = f"CDDP_CHAOS={network.name}-{self.port}"
        os.makedirs(f"{folder}/tmp", exist_ok=True)

    def launch(self, host, argv, log, environment):
        with open(log, "wb") as to:
            return subprocess.Popen(self.network.on(host, argv), cwd=self.folder, env=environment, stdin=subprocess.DEVNULL,
                                    stdout=to, stderr=to)

    def environment(self, variables):
        name, value = self.mark.split("=")
        return {**os.environ, name: value, "CDDP_TOKEN": "no-secret-but-a-token-of-these-hosts", "CDDP_DEVICE": "cpu",
                "CDDP_HEARTBEAT_MS": str(LIMIT_MS), "CDDP_THREADS": "1", "CDDP_PROGRESS": "plain",
                "TMPDIR": f"{self.folder}/tmp", **self.variables, **variables}

    def url(self, node):
        host = self.store or (self.nodes[0] if self.nodes else node).host
        return f"tcp://{self.network.address(host)}:{self.port}"

    def serve(self):
        """The store's own process. Nodes may be started before or after it."""
        self.server = self.launch(self.store, [os.path.join(self.build, "launcher/cddp-run"), "--store", self.url(None),
                                               "--timeout", "60"], f"{self.folder}/store.log", self.environment({}))

    def start(self, host, nproc=1, words=None, **variables):
        if self.store and not self.server:
            self.serve()
        node = Node(self, host, nproc, f"{self.folder}/node-{len(self.nodes)}-host{host}.log")
        number = ["--node-rank", str(len(self.nodes))] if not self.nodes or (self.store and not self.begins()) else []
        meet = ["--nnodes", self.nnodes, *number, "--rdzv", self.url(node)] \
            if self.nnodes else []
        node.process = self.launch(host, [os.path.join(self.build, "launcher/cddp-run"), *meet, "--nproc", str(nproc),
                                          *self.options, "train.conf", *(self.words if words is None else words)], node.log,
                                   self.environment(variables))
        self.nodes.append(node)
        return node

    def start_list(self, head, hosts, nproc=1):
        """One cddp-run on host `head`, which starts those on `hosts`."""
        node = Node(self, head, nproc, f"{self.folder}/node-{len(self.nodes)}-host{head}.log")
        node.process = self.launch(head, [os.path.join(self.build, "launcher/cddp-run"), "--hosts",
                                          ",".join(f"host{host}:{nproc}" for host in hosts), "--ssh", f"{HOSTS} ssh", "--nnodes",
                                          self.nnodes, *self.options, "train.conf", *self.words], node.log,
                                   self.environment({"CDDP_HOSTS": self.network.name}))
        self.nodes.append(node)
        return node

    def processes(self):
        """All that live, on any host."""
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and
                self.mark in read(f"/proc/{name}/environ").decode(errors="replace").split("\0")]

    def ranks(self):
        """Those of them that are ranks, whoever started them: their launchers set RANK."""
        return {pid for pid in self.processes()
                if any(word.startswith(b"RANK=") for word in read(f"/proc/{pid}/environ").split(b"\0"))}

    def kill_all(self):
        while pids := [pid for pid in self.processes() if (stat(pid) or "Z")[0] != "Z"]:
            for pid in pids:
                send(pid, signal.SIGKILL)
        for process in [node.process for node in self.nodes] + ([self.server] if self.server else []):
            process.wait()

    def rank(self, number):
        """Its process."""
        for pid in self.processes():
            if f"CDDP_RANK={number}" in read(f"/proc/{pid}/environ").decode(errors="replace").split("\0"):
                return pid
        raise Wrong(f"there is no rank {number}")

    def rows(self):
        found = []
        for line in read(f"{self.folder}/run/metrics.jsonl").rpartition(b"\n")[0].splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                pass
        return found

    def begins(self):
        """For each generation that has begun to train: its line."""
        return [row for row in self.rows() if row.get("kind") == "run"]

    def last(self):
        """The last step that was completed, and how many processes there are."""
        step = ranks = 0
        for row in self.rows():
            if row.get("kind") == "run":
                step, ranks = row["step"], row["world_size"]
            elif "loss" in row:
                step = row["step"]
        return step, ranks

    def trains_on(self, ranks):
        """Whether the last generation has `ranks` ranks, and has completed a step."""
        rows = self.rows()
        begin = max((i for i, row in enumerate(rows) if row.get("kind") == "run"), default=None)
        return begin is not None and rows[begin]["world_size"] == ranks and any("loss" in row for row in rows[begin:])

    def until(self, condition, what):
        """Wait for it, while a node runs."""
        while not condition():
            ended = not any(node.runs() for node in self.nodes)
            if ended and not condition():
                raise Wrong(f"{what}: the job ended before: {self.said()}")
            if time.monotonic() > self.deadline:
                raise Wrong(f"{what}: not within {self.limit_s} s: {self.said()}")
            time.sleep(0.01)

    def until_step(self, step):
        self.until(lambda: self.last()[0] >= step, f"step {step}")

    def end(self):
        """Exit statuses of the nodes, in the order of their starts; 128 + signal."""
        for node in self.nodes:
            try:
                node.process.wait(timeout=max(0.1, self.deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise Wrong(f"the cddp-run of host{node.host} has not ended after {self.limit_s} s: {self.said()}") from None
        if self.server:
            try:
                self.server.wait(timeout=max(0.1, self.deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise Wrong(f"the store has not ended: {self.said()}") from None
            if self.server.returncode != 0 and 0 in [node.process.returncode for node in self.nodes]:
                raise Wrong(f"the store ended with {self.server.returncode}: {read(f'{self.folder}/store.log')}")
        while left := self.network.left():
            if time.monotonic() > self.deadline:
                raise Wrong(f"left on hosts: {left}; {self.said()}")
            time.sleep(0.02)
        if os.listdir(f"{self.folder}/tmp"):
            raise Wrong(f"left in $TMPDIR: {os.listdir(f'{self.folder}/tmp')}")
        return [node.process.returncode if node.process.returncode >= 0 else 128 - node.process.returncode
                for node in self.nodes]

    def said(self):
        return "\n".join(f"--- node on host{node.host}, status {node.process.poll()}: ...{node.text()[-1500:]}"
                         for node in self.nodes)


def write_data(folder, count):
    """Images of noise with one bright quarter, which is the class."""
    rng = random.Random(1)
    pictures, labels = bytearray(), bytearray()
    for _ in range(count):
        label = rng.randrange(CLASSES)
        labels.append(label)
        pictures += bytes(rng.randrange(150) + (60 if 2 * (i // 32) + i % 8 // 4 == label else 0) for i in range(SIDE * SIDE))
    with open(f"{folder}/images.gz", "wb") as file:
        file.write(gzip.compress(struct.pack(">IIII", 0x803, count, SIDE, SIDE) + pictures, mtime=0))
    with open(f"{folder}/labels", "wb") as file:
        file.write(struct.pack(">II", 0x801, count) + labels)


class Work:
    """What jobs compute, and the files of one that nobody disturbed. `steps` is a multiple of 25."""
    EPOCH_STEPS = 25

    def __init__(self, build, folder, steps, batch=64, micro_batch=4, checkpoint_steps=20):
        self.build, self.folder, self.steps, self.batch = os.path.abspath(build), folder, steps, batch
        os.makedirs(f"{folder}/data")
        write_data(f"{folder}/data", self.EPOCH_STEPS * batch)
        self.conf = CONF.format(data=f"{folder}/data", epochs=steps // self.EPOCH_STEPS, batch=batch, micro_batch=micro_batch,
                                checkpoint_steps=checkpoint_steps)
        self.whole = self.new_folder("whole")
        with open(f"{self.whole}/output", "wb") as log:
            status = subprocess.run([f"{self.build}/launcher/cddp-run", "--nproc", "1", "train.conf"], cwd=self.whole, stdout=log,
                                    stderr=log, env={**os.environ, "CDDP_PROGRESS": "plain", "CDDP_DEVICE": "cpu"}).returncode
        if status != 0:
            raise Wrong(f"the undisturbed run ended with {status}: {self.whole}/output")

    def new_folder(self, name):
        path = f"{self.folder}/{name}"
        shutil.rmtree(path, ignore_errors=True)
        os.makedirs(path)
        with open(f"{path}/train.conf", "w", encoding="utf-8") as file:
            file.write(self.conf)
        return path

    def is_through(self, folder):
        return read(f"{folder}/run/checkpoints/latest").strip() == f"step-{self.steps:08}".encode()

    def metrics(self, folder):
        found = {}
        for line in read(f"{folder}/run/metrics.jsonl").splitlines():
            try:
                row = json.loads(line)
            except ValueError:
                raise Wrong(f"{folder}/run/metrics.jsonl: a line is no JSON: {line}") from None
            if "loss" in row or "eval_loss" in row:
                key = row["step"], "eval_loss" in row
                if key in found:
                    raise Wrong(f"{folder}/run/metrics.jsonl: step {row['step']} is there twice")
                found[key] = {name: row[name] for name in SAME if name in row}
        return found

    def compare(self, folder, has_words=False):
        """What must be as in the run that nobody disturbed; with words after train.conf, this file differs."""
        last = f"run/checkpoints/step-{self.steps:08}"
        for name in (f"{last}/model.safetensors", f"{last}/optimizer.safetensors", f"{last}/state.json",
                     "run/checkpoints/latest", *([] if has_words else ["run/train.conf"])):
            if read(f"{folder}/{name}") != read(f"{self.whole}/{name}"):
                raise Wrong(f"{folder}/{name} is another than in {self.whole}")
        names = [name for name in os.listdir(f"{folder}/run/checkpoints") if name != "latest"]
        if len(names) > 2 or any(name.startswith(".") for name in names):
            raise Wrong(f"{folder}/run/checkpoints: more than 2, or what is no checkpoint: {names}")
        numbers, right = self.metrics(folder), self.metrics(self.whole)
        if numbers != right:
            differ = [(key, numbers.get(key), right.get(key)) for key in sorted(set(numbers) | set(right))
                      if numbers.get(key) != right.get(key)]
            raise Wrong(f"{folder}/run/metrics.jsonl: {differ[:2]}")
