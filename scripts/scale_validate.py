"""What scripts/scale_model --validate does: trains a small MLP on hosts that scripts/hosts makes (root only), one rank each,
on slow links, and holds the measured step against the predicted one.

Gradients' arrivals, and what a step takes beside communication, are recorded in the run itself (CDDP_ARRIVALS), as the
processors are shared by all hosts. The link is measured before by a TCP stream in both directions at once and by small messages
(peers/tcp_link.c), and so is what a byte takes of a processor. The emulated link carries some bytes at once after a pause, as
scripts/hosts makes it: a real one does not."""
import json, os, subprocess, sys, tempfile, time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HOSTS = os.path.join(ROOT, "scripts", "hosts")
RATES = ("1gbit", "300mbit", "100mbit")
COUNTS = (2, 3, 4)
STREAM_S = 0.4
PORT = 5001
CONF = """model = { type = "mlp"; hidden = [512, 512]; };
data = { type = "synthetic"; samples = 4096; };
train = { epochs = 1000000; eval_epochs = 1000000; log_steps = 1; tensorboard = false; };
ddp = { shard_optimizer = false; };
"""


class Failed(Exception):
    """What went wrong, in words."""


def can_run():
    """None, or why there can be no hosts."""
    row = subprocess.run([HOSTS, "--name", f"v{os.getpid()}", "check"], capture_output=True, text=True)
    return None if row.returncode == 0 else row.stderr.strip() or f"scripts/hosts check ended with {row.returncode}"


def median(values):
    values = sorted(values)
    return (values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2


def nominal(rate):
    """Bytes a second, headers and all."""
    return float(rate[:-4]) * {"gbit": 1e9, "mbit": 1e6}[rate[-4:]] / 8


def burst(rate):
    """Bytes that the link carries at once after a pause: as in scripts/hosts."""
    return max(140000, nominal(rate) / 500)


def free_cores():
    """How many cores' time this process would get here now: what others leave of them."""
    spin = "import time; e = time.monotonic() + 0.3\nwhile time.monotonic() < e: pass\nprint(time.process_time())"
    spinning = [subprocess.Popen([sys.executable, "-S", "-E", "-c", spin], stdout=subprocess.PIPE, text=True)
                for _ in range(os.cpu_count() or 1)]
    return sum(min(1.0, float(one.communicate()[0]) / 0.3) for one in spinning)


def start_rank(name, build, folder, rank, count, steps):
    env = dict(os.environ, CDDP_RANK=str(rank), CDDP_WORLD_SIZE=str(count), CDDP_LOCAL_RANK="0", CDDP_LOCAL_WORLD_SIZE="1",
               CDDP_STORE=f"file://{folder}/store", CDDP_JOB=name, CDDP_TOKEN="a token of scale_model, no secret", CDDP_THREADS="1",
               CDDP_PROGRESS="off", CDDP_LOG="info", CDDP_ARRIVALS=f"{folder}/arrivals-{rank}")
    return subprocess.Popen([HOSTS, "--name", name, "exec", str(rank + 1), "--", f"{build}/src/cddp-train",
                             f"{folder}/train.conf", f"train.run_dir={folder}/run-{rank}", f"train.max_steps={steps}",
                             f"train.batch_size={16 * count}"],
                            env=env, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True)


def train(name, build, folder, count, steps, seconds=240):
    """(milliseconds of a step, rank 0's file of arrivals)."""
    ranks = [start_rank(name, build, folder, rank, count, steps) for rank in range(count)]
    end = time.monotonic() + seconds
    try:
        texts = [rank.communicate(timeout=max(0.1, end - time.monotonic()))[0] for rank in ranks]
    except subprocess.TimeoutExpired:
        raise Failed(f"{count} hosts: training has not ended after {seconds} s") from None
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    for rank, text in zip(ranks, texts):
        if rank.returncode != 0:
            raise Failed(f"{count} hosts: cddp-train ended with {rank.returncode}: {text.strip()[-400:]}")
    with open(f"{folder}/run-0/metrics.jsonl") as file:
        rows = [row for row in map(json.loads, file) if "loss" in row and "step_ms" in row]
    return median([row["step_ms"] for row in rows[2:]]), f"{folder}/arrivals-0"


def ask_link(name, binary, rate):
    server = subprocess.Popen([HOSTS, "--name", name, "exec", "2", "--", binary, "serve", str(PORT)],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        row = subprocess.run([HOSTS, "--name", name, "exec", "1", "--", binary, "10.77.0.2", str(PORT),
                              str(int(STREAM_S * nominal(rate))), "500"], capture_output=True, text=True, timeout=120)
    finally:
        server.kill()
        server.wait()
    if row.returncode != 0:
        raise Failed(f"the link cannot be measured: {row.stderr.strip()}")
    return json.loads(row.stdout.strip().splitlines()[-1])


def best_of(rows):
    """(latency, bytes a second, processor's seconds a byte): what disturbs a measurement makes each of them worse. Where
    processes outnumber cores, those that spin wait for each other's time, and those that sleep do not."""
    return (min(min(row["rtt_us"], row["rtt_asleep_us"]) for row in rows) / 2 * 1e-6,
            max(row["gbit_per_s"] for row in rows) * 1e9 / 8, min(row["cpu_ns_per_byte"] for row in rows) * 1e-9)


def measure(build, count, rate, steps):
    """What one run gave: the measured step (seconds), the link, and the trace's lines."""
    name = f"v{os.getpid()}"
    with tempfile.TemporaryDirectory(prefix="cddp-validate-") as folder:
        binary = f"{folder}/tcp_link"
        subprocess.run(["cc", "-O2", "-o", binary, os.path.join(ROOT, "scripts/peers/tcp_link.c"), "-lpthread"], check=True)
        with open(f"{folder}/train.conf", "w") as file:
            file.write(CONF)
        subprocess.run([HOSTS, "--name", name, "up", str(count), rate], check=True, stdout=subprocess.DEVNULL)
        try:
            cores = free_cores()
            latency, bandwidth, cpu = best_of([ask_link(name, binary, rate) for _ in range(3)])  # any two are alike
            step_ms, path = train(name, build, folder, count, steps)
        finally:
            subprocess.run([HOSTS, "--name", name, "down"])
        with open(path) as file:
            lines = file.read().splitlines()
    return {"step_s": step_ms * 1e-3, "latency_s": latency, "bytes_per_s": bandwidth, "cpu_s_per_byte": cpu, "cores": cores,
            "lines": lines}
