"""The part `network` of scripts/bench: two emulated hosts with one rank each, on links of several rates, beside PyTorch
(gloo), Open MPI and plain TCP.

Hosts are network namespaces (scripts/hosts; root only). Each rate's rows are measured by turns in one call:
  link       a TCP stream in both directions at once, and the round trip of 4 KiB messages (peers/tcp_link.c)
  all_reduce 4 KiB and 64 MiB of f32; with two hosts each sends and receives as many bytes as the data has
  training   the MLP and the mini GPT-2 of the other parts. The best possible schedule for them takes as long as the same
             work on both hosts at once without a link, where it is recorded when each gradient is ready
             (CDDP_ARRIVALS), and then until the last of them is over: each is sent as soon as it is ready and the
             link is free, at the link's rate, and communication takes no time of the processor. A second bound counts what
             a plain TCP stream takes of it, as the rank has but one core: for what is sent and received while it computes.
             f32 is cddp's default, with a sharded optimizer; whole: without; the bf16 wire: without, too.
Once, on this machine alone: what encryption costs the tcp carrier (tests/bench/bench_carrier.c), and what a rank holds when
there are 1 to 4 hosts (tests/bench/bench_footprint.c). cddp is measured on both carriers: tcp, and, started by mpirun as the
peer is, mpi.
"""
import glob, json, os, re, shutil, signal, subprocess, sys, time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HOSTS = os.path.join(ROOT, "scripts", "hosts")
PEERS = os.path.join(ROOT, "scripts", "peers")
RATES = ("none", "10gbit", "1gbit", "100mbit")
NAMES = {"none": "unshaped", "10gbit": "10 Gbit/s", "1gbit": "1 Gbit/s", "100mbit": "0.1 Gbit/s", "loopback": "loopback"}
SMALL, LARGE = 4096, 64 << 20
# steps (and how many a line of metrics), by model and rate
STEPS = {"mlp": {"none": (600, 50), "10gbit": (600, 50), "1gbit": (200, 20), "100mbit": (30, 5)},
         "gpt2": {"none": (24, 4), "10gbit": (24, 4), "1gbit": (20, 4), "100mbit": (10, 2)}}
BUCKET_MB = {"mlp": {"none": 25, "10gbit": 25, "1gbit": 1, "100mbit": 1},  # PyTorch's best, as measured
             "gpt2": {"none": 8, "10gbit": 8, "1gbit": 4, "100mbit": 4}}
VARIANTS = {"f32": [], "whole": ["ddp.shard_optimizer=false"], "bf16": ["ddp.shard_optimizer=false", "ddp.wire=bf16"]}
PORT = 29600
TARGETS = ("src/cddp-bench", "src/cddp-train", "launcher/cddp-run", "tests/bench_carrier", "tests/bench_footprint")
MPI_MODULE = "src/runtime/group/net/mpi/libcddp-mpi.so"


class Hosts:
    """Two hosts, or, as `loopback`, ranks that are told so on this one."""

    def __init__(self, rate):
        self.name, self.rate, self.port = f"b{os.getpid()}", rate, PORT

    def __enter__(self):
        if self.rate != "loopback":
            subprocess.run([HOSTS, "--name", self.name, "up", "2", self.rate], check=True, stdout=subprocess.DEVNULL)
        return self

    def __exit__(self, *_):
        subprocess.run([HOSTS, "--name", self.name, "down"])

    def on(self, i, argv, pin):
        pinned = ["taskset", "-c", str(i % (os.cpu_count() or 1)), *argv] if pin else argv
        return pinned if self.rate == "loopback" else [HOSTS, "--name", self.name, "exec", str(i + 1), "--", *pinned]

    def address(self, i):
        return "127.0.0.1" if self.rate == "loopback" else f"10.77.0.{i + 1}"

    def store(self, port):
        return f"/tmp/{self.name}-{port}.store"

    def environment(self, i):
        """What torchrun would set, for PyTorch; for cddp the same with a store in a file, which both hosts see."""
        name = "lo" if self.rate == "loopback" else "eth0"
        extra = dict(CDDP_HOST_ID=f"bench-{i}") if self.rate == "loopback" else {}
        return dict(os.environ, RANK=str(i), WORLD_SIZE="2", LOCAL_RANK="0", LOCAL_WORLD_SIZE="1",
                    MASTER_ADDR=self.address(0), MASTER_PORT=str(self.port), GLOO_SOCKET_IFNAME=name,
                    TP_SOCKET_IFNAME=name, CDDP_RANK=str(i), CDDP_WORLD_SIZE="2", CDDP_LOCAL_RANK="0",
                    CDDP_LOCAL_WORLD_SIZE="1", CDDP_STORE=f"file://{self.store(self.port)}", CDDP_JOB=f"{self.name}-{self.port}",
                    CDDP_TOKEN="a token of scripts/bench, no secret", CDDP_THREADS="1", CDDP_PROGRESS="off", OMP_NUM_THREADS="1",
                    OPENBLAS_NUM_THREADS="1", **extra)

    def both(self, argv, seconds, environment=None, pin=True):
        """Run argv(i) as rank i on host i, and on core i; rank 0's output, or None with the reason on stderr."""
        self.port += 1
        more = environment or (lambda i: {})
        ranks = [subprocess.Popen(self.on(i, argv(i), pin), env=dict(self.environment(i), **more(i)), cwd=ROOT,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                 for i in (0, 1)]
        end = time.monotonic() + seconds
        texts = []
        for rank in ranks:
            try:
                texts.append(rank.communicate(timeout=max(0.1, end - time.monotonic())))
            except subprocess.TimeoutExpired:
                for other in ranks:
                    other.kill()
                texts.append(rank.communicate())
        for path in glob.glob(self.store(self.port) + "*"):
            os.remove(path)
        if any(rank.returncode != 0 for rank in ranks):
            for rank, (_, err) in zip(ranks, texts):
                print(f"bench: {argv(0)[0]}: status {rank.returncode}: {err.strip()[-400:]}", file=sys.stderr)
            return None
        return texts[0][0]


def can_run():
    """None, or why there can be no hosts."""
    row = subprocess.run([HOSTS, "--name", f"b{os.getpid()}", "check"], capture_output=True, text=True)
    return None if row.returncode == 0 else row.stderr.strip() or f"scripts/hosts check ended with {row.returncode}"


def compile_link(build):
    binary = os.path.join(build, "tcp_link")
    subprocess.run(["cc", "-O2", "-o", binary, os.path.join(PEERS, "tcp_link.c"), "-lpthread"], check=True)
    return binary


def megabit(rate):
    return {"gbit": 1000, "mbit": 1}[rate[-4:]] * float(rate[:-4]) if rate not in ("none", "loopback") else None


def last_json(text):
    lines = [line for line in (text or "").splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else None


# ---------------------------------------------------------------- one rate's measurements, each once
def measure_link(hosts, binary):
    slow = (megabit(hosts.rate) or 10000) < 500
    out = hosts.both(lambda i: [binary, "serve", "5001"] if i == 1 else
                     [binary, hosts.address(1), "5001", str(LARGE // (4 if slow else 1)), "500" if slow else "2000"], 120,
                     pin=False)
    return last_json(out)


def measure_cddp(hosts, build, size, calls, words=()):
    out = hosts.both(lambda i: [f"{build}/src/cddp-bench", "all_reduce", "--in-place", "--min", str(size), "--max", str(size), "-n",
                                str(calls), "-w", str(max(1, calls // 10)), "--json", "-", *words], 180)
    return json.loads(out)["rows"][0]["median_us"] if out else None


def measure_ping_pong(hosts, build, calls):
    """Of cddp's own messages: the round trip."""
    out = hosts.both(lambda i: [f"{build}/src/cddp-bench", "send_recv", "--min", str(SMALL), "--max", str(SMALL), "-n",
                                str(calls), "--json", "-"], 180)
    return 2 * json.loads(out)["rows"][0]["median_us"] if out else None


def measure_gloo(hosts, torch, sizes):
    out = hosts.both(lambda i: [torch, f"{PEERS}/allreduce_gloo.py", "--ranks", "2", "--pin", "none", "--rounds", "1", "--bytes",
                                ",".join(map(str, sizes))], 240)
    row = last_json(out)
    return {at["bytes"]: at["us"]["med"] for at in row["rows"]} if row else {}


def mpirun(hosts, words):
    """Its own launcher on the first host, which reaches the second by scripts/hosts in the place of ssh."""
    if hosts.rate == "loopback":
        return ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "core", "--mca", "btl", "self,tcp", "-n", "2",
                *words]
    return [HOSTS, "--name", hosts.name, "exec", "1", "--", "mpirun", "--allow-run-as-root", "--host", "host1:1,host2:1",
            "--bind-to", "none", "--mca", "plm_rsh_agent", f"{HOSTS} --name {hosts.name} ssh", "--mca", "btl", "self,tcp",
            "--mca", "btl_tcp_if_include", "eth0", "--mca", "oob_tcp_if_include", "eth0", "-n", "2", *words]


def run_mpi(hosts, words):
    """What rank 0 printed, or None with the reason on stderr."""
    try:
        done = subprocess.run(mpirun(hosts, words), capture_output=True, text=True, timeout=240, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        print(f"bench: mpirun {words[0]}: not within 240 s", file=sys.stderr)
        return None
    if done.returncode != 0:
        print(f"bench: mpirun {words[0]}: status {done.returncode}: {done.stderr.strip()[-400:]}", file=sys.stderr)
        return None
    return done.stdout


def measure_mpi(hosts, mpi, size):
    row = last_json(run_mpi(hosts, [mpi, "1", str(size), str(size)]))
    return row["rows"][0]["us"]["med"] if row else None


def measure_cddp_mpi(hosts, build, size, calls):
    """cddp on MPI's carrier, where ranks have hosts of their own or are told so."""
    command = (f"exec {build}/src/cddp-bench all_reduce --transport mpi --in-place --min {size} --max {size} -n {calls} "
               f"-w {max(1, calls // 10)} --json -")
    if hosts.rate == "loopback":
        command = "CDDP_HOST_ID=bench-$OMPI_COMM_WORLD_RANK " + command.replace("exec ", "", 1)
    out = run_mpi(hosts, ["sh", "-c", command])
    row = json.loads(out) if out else None
    return row["rows"][0]["median_us"] if row and row["carrier"] == "mpi" else None


def best_schedule(path, wire, bytes_per_s):
    """Milliseconds that a step must wait after its backward, at least; and the lines' totals."""
    free, totals = 0.0, {}
    gradients = []
    for line in map(json.loads, open(path)):
        if "gradient" in line:
            gradients.append((line["ready_s"], line["bytes"]))
        elif "backward_end_s" in line:
            totals = line
    for ready, size in sorted(gradients):
        free = max(free, ready) + size * wire / bytes_per_s
    return max(0.0, free - totals["backward_end_s"]) * 1000, sum(size for _, size in gradients)


def train(hosts, bench, model, conf, words, environment):
    """Rank 0's lines of metrics behind the warm-up, and the file of arrivals."""
    steps, log = STEPS[model].get(hosts.rate, STEPS[model]["none"])
    run_dir = os.path.join(bench.BUILD, "run-net")
    for i in (0, 1):
        shutil.rmtree(f"{run_dir}{i}", ignore_errors=True)
    out = hosts.both(lambda i: [f"{bench.BUILD}/src/cddp-train", conf, f"train.run_dir={run_dir}{i}", f"train.max_steps={steps}",
                                f"train.log_steps={log}", "train.epochs=1000000", "train.eval_epochs=1000000",
                                "train.tensorboard=false", *words], 300,
                     lambda i: dict(CDDP_ARRIVALS=f"{run_dir}{i}.arrivals", **environment))
    if out is None:
        return None
    lines = [json.loads(line) for line in open(f"{run_dir}0/metrics.jsonl")]
    return [line for line in lines if "loss" in line and "step_ms" in line][2:], f"{run_dir}0.arrivals"


def core_ms(size, wait_ms, bytes_per_s, ns_per_byte):
    """What the kernel's TCP takes of a core beside backward: to send and receive what is not moved while the step waits."""
    return 2 * max(0.0, size - wait_ms / 1000 * bytes_per_s) * ns_per_byte / 1e6


def measure_alone(hosts, bench, model, conf, words, batch, bytes_per_s, ns_per_byte):
    """Both hosts with half of the work each, as two jobs of one rank: what no communication can make faster."""
    result = train(hosts, bench, model, conf, [*words, f"train.batch_size={batch}"],
                   dict(CDDP_RANK="0", CDDP_WORLD_SIZE="1", CDDP_STORE=""))
    if result is None:
        return {}
    rows, arrivals = result
    alone = bench.med([row["step_ms"] for row in rows])
    row = {"alone_ms": alone}
    for wire, factor in (("f32", 1), ("bf16", 0.5)):
        wait_ms, size = best_schedule(arrivals, factor, bytes_per_s)
        row[f"{wire} best_ms"] = alone + wait_ms
        row[f"{wire} core_ms"] = alone + wait_ms + core_ms(factor * size, wait_ms, bytes_per_s, ns_per_byte)
    return row


def measure_training(hosts, bench, model, conf, words, batch, variant):
    result = train(hosts, bench, model, conf, [*words, f"train.batch_size={2 * batch}", *VARIANTS[variant]], {})
    if result is None:
        return {}
    return {f"{variant} {key}": bench.med([row[name] for row in result[0]])
            for key, name in (("step_ms", "step_ms"), ("exposed_ms", "exposed_comm_ms"))}


def measure_torch(hosts, torch, model, tokens, batch):
    steps = max(2, STEPS[model].get(hosts.rate, STEPS[model]["none"])[0] // 5)
    words = ["--model", "gpt2mini", "--tokens", tokens, "--fused"] if model == "gpt2" else ["--model", "mlp"]
    out = hosts.both(lambda i: [torch, f"{PEERS}/ddp_train.py", *words, "--ranks", "2", "--pin", "none", "--batch", str(batch),
                                "--bucket-view", "--bucket-mb", str(BUCKET_MB[model].get(hosts.rate, 25)), "--steps", str(steps),
                                "--blocks", "3", "--warmup", "3", "--modes", "ddp"], 400)
    row = last_json(out)
    return row["modes"]["ddp"]["block_mean_ms"]["med"] if row else None


def link_rate(rate, stream):
    """Bytes of data a second. A stream that is all but as fast as Ethernet's frames and TCP's headers permit was disturbed."""
    most = (megabit(rate) or 0) / 1000 * 1448 / 1514
    return (most if 0.9 * most < stream < most else stream) * 1e9 / 8


# ---------------------------------------------------------------- on this machine alone, once
def read_carrier(text):
    """{("tcp" or "encrypted tcp", "one way", "both ways" or "round trip"): median} of bench_carrier's rows with two sockets."""
    kinds = {"64 MiB": "one way", "64 MiB each way": "both ways", "round trip, sleeping": "round trip"}
    found = {}
    for line in text.splitlines():
        row = re.fullmatch(r"((?:encrypted )?tcp), 2 sockets, (.*?) +best +[\d.]+, median +([\d.]+) (?:GB/s|us)", line)
        if row and row[2] in kinds:
            found[row[1], kinds[row[2]]] = float(row[3])
    return found


def measure_encryption(bench, rounds):
    """What CDDP_ENCRYPT=1 costs the carrier over loopback: both kinds from each run."""
    rows = {}
    for _ in range(rounds):
        done = subprocess.run([f"{bench.BUILD}/tests/bench_carrier", "3"], capture_output=True, text=True, timeout=300)
        for key, value in read_carrier(done.stdout).items():
            add(rows, key, value)
    return {f"{kind}, {what}": bench.med(values) for (kind, what), values in rows.items()}


def measure_footprint(bench):
    """What a rank holds, by the number of hosts, a rank each, which are this one under several names."""
    result = {}
    for count in (1, 2, 3, 4):
        out = subprocess.run([f"{bench.BUILD}/launcher/cddp-run", "--nproc", str(count), "--", "sh", "-c",
                              f"CDDP_HOST_ID=bench-$RANK exec {bench.BUILD}/tests/bench_footprint"], capture_output=True,
                             text=True, timeout=120).stdout
        result[str(count)] = last_json(out)
    return result


def torch_mpi(torch):
    """Why PyTorch over MPI is not measured."""
    if not torch:
        return "there is no PyTorch here"
    done = subprocess.run([torch, "-c", "import torch.distributed as d; print(d.is_mpi_available())"], capture_output=True,
                          text=True, timeout=120)
    return {"False": "this PyTorch was built without MPI, as all on PyPI are (torch.distributed.is_mpi_available() is False)",
            "True": "this PyTorch has MPI, but scripts/bench does not start it"}.get(done.stdout.strip(),
                                                                                      done.stderr.strip()[-200:])


# ---------------------------------------------------------------- rates
def add(rows, key, value):
    if value is not None:
        rows.setdefault(key, []).append(value)


def calls_of(rate, size):
    """As many as two seconds hold, where the rate says how many that are."""
    limit = 2e6 * (megabit(rate) or 10000) / 8 / size
    return int(max(3, min(20 if size == LARGE else 2000, limit)))


def measure_rate(bench, hosts, link, torch, mpi, models, rounds):
    rows = {}
    for _ in range(rounds):
        at = measure_link(hosts, link)
        if at:
            for key in ("rtt_us", "rtt_asleep_us", "gbit_per_s", "cpu_ns_per_byte"):
                add(rows, key, at[key])
        for size in (SMALL, LARGE):
            add(rows, f"cddp {size}", measure_cddp(hosts, bench.BUILD, size, calls_of(hosts.rate, size)))
        add(rows, "cddp ping-pong", measure_ping_pong(hosts, bench.BUILD, calls_of(hosts.rate, SMALL)))
        for size, us in (measure_gloo(hosts, torch, (SMALL, LARGE)) if torch else {}).items():
            add(rows, f"gloo {size}", us)
        for size in (SMALL, LARGE) if mpi else ():  # by turns
            add(rows, f"Open MPI {size}", measure_mpi(hosts, mpi, size))
            add(rows, f"cddp mpi {size}", measure_cddp_mpi(hosts, bench.BUILD, size, calls_of(hosts.rate, size)))
        for model, (conf, words, tokens, batch) in models.items() if at else ():
            row = measure_alone(hosts, bench, model, conf, words, batch, link_rate(hosts.rate, at["gbit_per_s"]),
                                at["cpu_ns_per_byte"])
            for variant in VARIANTS:
                row.update(measure_training(hosts, bench, model, conf, words, batch, variant))
            for key, value in row.items():
                add(rows, f"{model} {key}", value)
            if torch:
                add(rows, f"{model} torch step_ms", measure_torch(hosts, torch, model, tokens, batch))
    return {key: bench.med(values) for key, values in rows.items()}


def models_of(bench):
    conf, train = bench.setup_gpt()
    mlp = ["data.crop_padding=0", "data.flip=false", "optimizer.schedule.type=constant",
           "optimizer.schedule.warmup_steps=0", "optimizer.nesterov=false", *bench.SAME["mlp"]]
    return {"mlp": (bench.CONF["mlp"], mlp, None, 128),
            "gpt2": (conf, [], train, bench.GPT_BATCH)}


def run(bench, torch, mpi, rounds, rates):
    why = can_run()
    if why:
        bench.say("no network of hosts here:", why)
        return {"skipped": why}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # hosts do not stay
    link = compile_link(bench.BUILD)
    if mpi:
        subprocess.run(["ninja", "-C", bench.BUILD, MPI_MODULE], stdout=subprocess.DEVNULL)
    models = models_of(bench)
    bench.say("network, on this machine alone")
    result = {"encryption": measure_encryption(bench, rounds), "footprint": measure_footprint(bench),
              "torch mpi": torch_mpi(torch)}
    for rate in rates:
        bench.say("network,", NAMES[rate])
        with Hosts(rate) as hosts:
            result[rate] = measure_rate(bench, hosts, link, torch, mpi, {} if rate == "loopback" else models, rounds)
    return result


# ---------------------------------------------------------------- what is printed
def ratio(over, under, digits=2):
    return "-" if not over or not under else f"{over / under:.{digits}f}"


def percent_of_link(rate, us, stream):
    """Of the nominal rate, headers and all; and of what a plain stream carries."""
    if not us:
        return "-"
    gbit = LARGE * 8 / us / 1e3
    nominal = f"{100 * gbit / (megabit(rate) / 1000):.1f}, " if megabit(rate) else ""
    return f"{nominal}{100 * gbit / stream:.1f}"


def table(result, number):
    if "skipped" in result:
        print(f"network: skipped: {result['skipped']}\n")
        return
    rates = {rate: result[rate] for rate in NAMES if rate in result}
    print("| all-reduce, 2 hosts | stream Gbit/s, both ways | 64 MiB cddp ms | % of the rate, of the stream | gloo ms | "
          "gloo / cddp | cddp on mpi ms | Open MPI ms | mpi / Open MPI | 4 KiB cddp us | gloo us | cddp on mpi us | Open MPI us | "
          "mpi / Open MPI | round trip us (spinning, asleep) | cddp / round trip |")
    print("|---" * 16 + "|")
    for rate, row in rates.items():
        get = row.get
        large, small = ([get(f"{who} {size}") for who in ("cddp", "gloo", "cddp mpi", "Open MPI")] for size in (LARGE, SMALL))
        ms = [us and us / 1e3 for us in large]
        print(f"| {NAMES[rate]} | {number(get('gbit_per_s'))} | {number(ms[0])} | "
              f"{percent_of_link(rate, large[0], get('gbit_per_s'))} | {number(ms[1])} | {ratio(ms[1], ms[0])} | {number(ms[2])} | "
              f"{number(ms[3])} | {ratio(ms[2], ms[3])} | {number(small[0])} | {number(small[1])} | {number(small[2])} | "
              f"{number(small[3])} | {ratio(small[2], small[3])} | {number(get('rtt_us'))}, {number(get('rtt_asleep_us'))} | "
              f"{ratio(small[0], get('rtt_us'))} |")
    print("\n| step, 2 hosts | without link ms | f32 ms | best possible ms | over it | over it with TCP's time of the core | "
          "whole ms | bf16 wire ms | best possible ms | over it | the same with TCP's | PyTorch ms | f32 / PyTorch | "
          "bf16 wire / PyTorch |")
    print("|---" * 14 + "|")
    for rate, row in rates.items():
        for model, name in (("mlp", "MLP"), ("gpt2", "mini GPT-2")):
            f32, bf16 = ({key: row.get(f"{model} {wire} {key}") for key in ("step_ms", "best_ms", "core_ms", "exposed_ms")}
                         for wire in ("f32", "bf16"))
            theirs = row.get(f"{model} torch step_ms")
            if f32["step_ms"] or theirs:
                print(f"| {name}, {NAMES[rate]} | {number(row.get(f'{model} alone_ms'))} | {number(f32['step_ms'])} | "
                      f"{number(f32['best_ms'])} | {ratio(f32['step_ms'], f32['best_ms'])} | "
                      f"{ratio(f32['step_ms'], f32['core_ms'])} | "
                      f"{number(row.get(f'{model} whole step_ms'))} | {number(bf16['step_ms'])} | "
                      f"{number(bf16['best_ms'])} | {ratio(bf16['step_ms'], bf16['best_ms'])} | "
                      f"{ratio(bf16['step_ms'], bf16['core_ms'])} | {number(theirs)} | "
                      f"{ratio(f32['step_ms'], theirs)} | {ratio(bf16['step_ms'], theirs)} |")
    print()
    print(f"PyTorch over MPI: not measured: {result.get('torch mpi')}\n")
    table_alone(result, number)


def table_alone(result, number):
    secret = result.get("encryption", {})
    if secret:
        print("| tcp carrier over loopback, 2 sockets | plain | encrypted | factor |\n|---|---|---|---|")
        for what, unit in (("one way", "GB/s"), ("both ways", "GB/s"), ("round trip", "us")):
            plain, other = (secret.get(f"{kind}, {what}") for kind in ("tcp", "encrypted tcp"))
            factor = ratio(other, plain) if unit == "us" else ratio(plain, other)
            size = "4 KiB, round trip" if unit == "us" else f"64 MiB, {what}"
            print(f"| {size} | {number(plain)} {unit} | {number(other)} {unit} | {factor} |")
        print()
    rows = {count: row for count, row in result.get("footprint", {}).items() if row}
    if rows:
        print("| hosts, a rank each | joined: heap KiB | 1 MiB reduced: heap KiB besides | private MiB | threads |\n"
              "|---|---|---|---|---|")
        for count, row in rows.items():
            print(f"| {count} | {number(row['joined_bytes'] / 1024)} | {number(row['reduced_bytes'] / 1024)} | "
                  f"{number(row['private_bytes'] / 1048576)} | {row['threads']} |")
        print()
