#!/usr/bin/env python3
"""test_strangers.py - every way to start ranks, without a given token: no listening socket accepts a client without the token, neither from
another address nor as another user of this machine; and ports that other machines could reach require a token first.

    test_strangers.py BUILD [WAY...]
"""
import concurrent.futures
import glob, os, re, shutil, socket, subprocess, sys, tempfile, time

from ports import free_port

BUILD, ONLY = os.path.abspath(sys.argv[1]), sys.argv[2:]
STRANGER, RUN = f"{BUILD}/tests/stranger", f"{BUILD}/launcher/cddp-run"
NOBODY, LIMIT_S = 65534, 120
LAUNCHERS = "CDDP_|RANK$|WORLD_SIZE$|LOCAL_|MASTER_|OMPI_|PMIX_|PMI_|MPI_|SLURM_|TORCHELASTIC_|PET_|JOB_COMPLETION|KUBERNETES_"


def own_addresses():
    """Of this machine, but for loopback: what another machine would connect to."""
    found = []
    for family, target in ((socket.AF_INET, "192.0.2.77"), (socket.AF_INET6, "2001:db8::77")):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as one:
                one.connect((target, 9))  # sends nothing
                found.append(one.getsockname()[0])
        except OSError:
            pass
    return [address for address in found if not address.startswith(("127.", "::1"))]


def torchrun(rank, port, **more):
    return dict(RANK=rank, WORLD_SIZE=2, LOCAL_RANK=rank, LOCAL_WORLD_SIZE=2, MASTER_ADDR="127.0.0.1", MASTER_PORT=port, **more)


def slurm(rank, nodes, name):
    place = dict(SLURM_STEP_TASKS_PER_NODE="1(x2)", SLURM_NODEID=rank, SLURM_LOCALID=0) if nodes == 2 else \
        dict(SLURM_STEP_TASKS_PER_NODE="2", SLURM_NODEID=0, SLURM_LOCALID=rank)
    return dict(SLURM_PROCID=rank, SLURM_NTASKS=2, SLURM_JOB_ID=os.getpid(), SLURM_STEP_ID=0, SLURM_STEP_NUM_NODES=nodes,
                SLURM_STEP_NODELIST=name, SLURM_JOB_NODELIST=name, **place)


def each(words, environment):
    """A process a rank."""
    return [(words(rank) if callable(words) else words, environment(rank)) for rank in (0, 1)]


JOIN = [STRANGER, "rank", "env"]
# name, what starts it in folder @p f with port @p p: a list of (command, variables); jobs that a stranger may guess; how many
# ports there are at least while ranks come, and once they have
WAYS = {
    "cddp-run": (lambda f, p: [([RUN, "--nproc", "2", "--", *JOIN], {})], [], 1, 3),
    "cddp-run on two nodes, file": (lambda f, p: each(
        lambda r: [RUN, "--nnodes", "2", "--node-rank", str(r), "--rdzv", f"file://{f}", "--nproc", "1", "--", *JOIN], lambda r: {}),
        [], 1, 3),
    "file": (lambda f, p: each(lambda r: [STRANGER, "rank", f"file://{f}/meet", str(r), "2"], lambda r: {}), ["cddp"], 0, 3),
    "file, by variables": (lambda f, p: each(JOIN, lambda r: dict(CDDP_RANK=r, CDDP_WORLD_SIZE=2, CDDP_STORE=f"file://{f}/meet")),
                           ["cddp"], 0, 3),
    "options, loopback": (lambda f, p: each(lambda r: [STRANGER, "rank", f"tcp://127.0.0.1:{p}", str(r), "2"], lambda r: {}),
                          ["cddp"], 1, 3),
    "options, localhost": (lambda f, p: each(lambda r: [STRANGER, "rank", f"tcp://localhost:{p}", str(r), "2"], lambda r: {}),
                           ["cddp"], 1, 3),
    "torchrun": (lambda f, p: each(JOIN, lambda r: torchrun(r, p)), ["cddp"], 1, 3),
    "torchrun with its agent's store": (lambda f, p: each(JOIN, lambda r: torchrun(
        r, p, TORCHELASTIC_USE_AGENT_STORE="True", TORCHELASTIC_RUN_ID="none")), ["cddp", "none"], 0, 3),
    "Slurm, a node": (lambda f, p: each(JOIN, lambda r: slurm(r, 1, "localhost")), [f"slurm-{os.getpid()}.0"], 0, 3),
    "Slurm, two nodes": (lambda f, p: each(JOIN, lambda r: slurm(r, 2, "localhost,localhost")), [f"slurm-{os.getpid()}.0"], 1, 3),
    # (MPI's libraries leave memory, which is not what this is about)
    "mpirun": (lambda f, p: [(["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", *JOIN], dict(ASAN_OPTIONS="detect_leaks=0", TMPDIR=f))],
               ["cddp"], 0, 2),
    "cddp_spawn": (lambda f, p: [([STRANGER, "rank", "spawn", "2"], {})], [], 1, 3),
}
SECRET, SHORT = "needs a secret", "can be guessed"
# name, command, variables, what it must say instead of listening
REFUSED = {
    "cddp-run --rdzv tcp": (lambda p: [RUN, "--nnodes", "2", "--node-rank", "0", "--rdzv", f"tcp://127.0.0.1:{p}", "--", "true"], {}, SECRET),
    "cddp-run --rdzv tcp, short": (lambda p: [RUN, "--nnodes", "2", "--node-rank", "0", "--rdzv", f"tcp://0.0.0.0:{p}", "--", "true"],
                                   dict(CDDP_TOKEN="hunter2"), SHORT),
    "cddp-run --rdzv file, short": (lambda p: [RUN, "--nnodes", "2", "--rdzv", "file:///tmp", "--", "true"], dict(CDDP_TOKEN="hunter2"),
                                    SHORT),
    "torchrun elsewhere": (lambda p: JOIN, {**torchrun(0, 29500), "MASTER_ADDR": "192.0.2.9", "LOCAL_WORLD_SIZE": 1}, SECRET),
    "torchrun elsewhere, short": (lambda p: JOIN, {**torchrun(0, 29500), "MASTER_ADDR": "192.0.2.9", "LOCAL_WORLD_SIZE": 1,
                                                   "CDDP_TOKEN": "REPLACE-ME"}, SHORT),
    "options, all addresses": (lambda p: [STRANGER, "rank", f"tcp://0.0.0.0:{p}", "0", "2"], {}, SECRET),
    "an indexed Job": (lambda p: JOIN, dict(JOB_COMPLETION_INDEX=0, WORLD_SIZE=2, MASTER_ADDR="192.0.2.9", RANK=""), SECRET),
}


def environment(folder, more):
    kept = {name: value for name, value in os.environ.items() if not re.match(LAUNCHERS, name)}
    # ranks find no other way than the network: each is on a host of its own
    kept.update(GO=folder, HOME=folder, TMPDIR=folder, HOSTS="1", CDDP_LOG="error", CDDP_TIMEOUT_MS=str(LIMIT_S * 1000), CDDP_DEVICE="cpu")
    return {**kept, **{name: str(value) for name, value in more.items()}}


def descendants(pids):
    children = {}
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                words = file.read().rpartition(")")[2].split()
            children.setdefault(int(words[1]), []).append(int(path.split("/")[2]))
        except OSError:
            pass
    found, todo = set(), list(pids)
    while todo:
        pid = todo.pop()
        found.add(pid)
        todo += children.get(pid, [])
    return found


def ours(pid):
    """Not MPI's own daemons, whose ports are theirs."""
    try:
        return os.path.realpath(f"/proc/{pid}/exe").startswith(BUILD)
    except OSError:
        return False


def sockets_of(pids):
    found = set()
    for pid in filter(ours, descendants(pids)):
        for path in glob.glob(f"/proc/{pid}/fd/*"):
            try:
                found.update(re.findall(r"^socket:\[(\d+)\]$", os.readlink(path)))
            except OSError:
                pass
    return found


def listening(pids):
    """Ports, and names of local sockets, at which these processes listen."""
    inodes, ports, names = sockets_of(pids), set(), set()
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(path, encoding="utf-8") as file:
            for words in map(str.split, file.readlines()[1:]):
                if words[3] == "0A" and words[9] in inodes:
                    ports.add(int(words[1].rpartition(":")[2], 16))
    with open("/proc/net/unix", encoding="utf-8") as file:
        for words in map(str.split, file.readlines()[1:]):
            if int(words[3], 16) & 0x10000 and words[6] in inodes:
                names.add(words[7] if len(words) > 7 else "unnamed")
    return ports, names


def knock(way, ports, names, jobs, folder):
    """Returns how many of the ports are a store's or a carrier's."""
    if names:
        raise SystemExit(f"test_strangers: {way}: local sockets listen: {names}")
    other = NOBODY if os.geteuid() == 0 else None
    who = {("127.0.0.1", None), ("127.0.0.1", other), *((address, other) for address in own_addresses())}

    def try_door(door):
        port, (host, user) = door
        return port, user, subprocess.run([f"{folder}/stranger", "knock", host, str(port), *jobs], capture_output=True, text=True,
                                          timeout=LIMIT_S, user=user, cwd="/", env={"PATH": os.environ["PATH"], "HOME": "/proc/none"})

    known = set()
    with concurrent.futures.ThreadPoolExecutor(16) as threads:  # a stranger mostly waits for an answer
        for port, user, done in threads.map(try_door, [(port, one) for port in sorted(ports) for one in who]):
            if done.returncode != 0:
                raise SystemExit(f"test_strangers: {way}, as user {user}: {done.stdout}{done.stderr}")
            if done.stdout.strip() in ("a store", "a carrier"):
                known.add(port)
    return len(known)


def wait_for(what, ranks, outputs, processes):
    """Until all ranks have said it, however long that takes on a busy machine; or one ends without, and says why."""
    while True:
        ended = [one.returncode for one in processes if one.poll() is not None]
        text = "".join(open(path, encoding="utf-8", errors="replace").read() for path in outputs)
        if len(re.findall(rf"\b{what} \d", text)) >= ranks:
            return
        if any(ended) or len(ended) == len(processes):
            raise SystemExit(f"test_strangers: {ranks} ranks have not said \"{what}\", and some ended: {ended}: {text}")
        time.sleep(0.02)


def try_way(way, start, jobs, coming, joined):
    folder = tempfile.mkdtemp(prefix="strangers-")
    os.chmod(folder, 0o711)  # for the stranger's own copy of his program
    shutil.copy(STRANGER, folder)
    outputs, processes = [], []
    try:
        for i, (words, more) in enumerate(start(folder, free_port())):
            outputs.append(f"{folder}/output-{i}")
            with open(outputs[-1], "w", encoding="utf-8") as output:
                processes.append(subprocess.Popen(words, stdout=output, stderr=output, env=environment(folder, more), cwd=folder))
        pids = [process.pid for process in processes]
        seen = []
        for what, least, go in (("coming", coming, "go"), ("joined", joined, "end")):
            wait_for(what, 2, outputs, processes)
            end = time.monotonic() + 10
            while len((found := listening(pids))[0]) < least and time.monotonic() < end:
                time.sleep(0.05)
            if len(found[0]) < least:
                raise SystemExit(f"test_strangers: {way}: {len(found[0])} ports when ranks are {what}, not {least}")
            seen.append(knock(way, *found, sorted({*jobs, "cddp"}), folder))
            if seen[-1] < least:
                raise SystemExit(f"test_strangers: {way}: {seen[-1]} of {found[0]} greeted, when ranks are {what}, not {least}")
            open(f"{folder}/{go}", "w", encoding="utf-8").close()
        wait_for("ended", 2, outputs, processes)  # and the job did not mind
        for process in processes:
            if process.wait(LIMIT_S) != 0:
                raise SystemExit(f"test_strangers: {way}: status {process.returncode}: {open(outputs[0], encoding='utf-8').read()}")
        print(f"{way}: {seen[0]} ports while ranks come, {seen[1]} then: nobody was let in", flush=True)
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def try_with_the_token():
    """Who knows the token is let in at the same doors, so the stranger knocks as one does."""
    token, folder, port = "a token that this stranger knows", tempfile.mkdtemp(prefix="strangers-"), free_port()
    outputs, processes = [f"{folder}/output-{rank}" for rank in (0, 1)], []
    try:
        for rank, output in enumerate(outputs):
            with open(output, "w", encoding="utf-8") as file:
                processes.append(subprocess.Popen([STRANGER, "rank", f"tcp://127.0.0.1:{port}", str(rank), "2"], stdout=file, stderr=file,
                                                  env=environment(folder, dict(CDDP_TOKEN=token)), cwd=folder))
        for what, go in (("store", "go"), ("carrier", "end")):
            wait_for("coming" if what == "store" else "joined", 2, outputs, processes)
            pids, end, said = [one.pid for one in processes], time.monotonic() + 10, []
            while not listening(pids)[0] and time.monotonic() < end:
                time.sleep(0.05)
            said = [subprocess.run([STRANGER, "knock", "127.0.0.1", str(door), "cddp"], capture_output=True, text=True, timeout=LIMIT_S,
                                   env={**os.environ, "KNOWN": token}).stdout for door in listening(pids)[0]]
            if not any(text.startswith(f"in: the {what}") for text in said):
                raise SystemExit(f"test_strangers: who knows the token is not let in by the {what}: {said}")
            open(f"{folder}/{go}", "w", encoding="utf-8").close()
        print("with the token: let in", flush=True)
    finally:
        for process in processes:
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def try_refused(way, words, more, text):
    folder = tempfile.mkdtemp(prefix="strangers-")
    open(f"{folder}/go", "w", encoding="utf-8").close()
    variables = {name: value for name, value in environment(folder, more).items() if value != ""}
    done = subprocess.run(words(free_port()), capture_output=True, text=True, timeout=LIMIT_S, env=variables, cwd=folder)
    shutil.rmtree(folder)
    if done.returncode == 0 or text not in done.stderr or "CDDP_TOKEN" not in done.stderr:
        raise SystemExit(f"test_strangers: {way}: status {done.returncode}, not \"{text}\": {done.stdout}{done.stderr}")
    print(f"{way}: refused", flush=True)


if not ONLY:
    try_with_the_token()
for way, row in WAYS.items():
    if ONLY and way not in ONLY:
        continue
    if way == "mpirun" and shutil.which("mpirun") is None:
        print("mpirun: skipped, there is none")
        continue
    try_way(way, *row)
for way, row in REFUSED.items():
    if not ONLY or way in ONLY:
        try_refused(way, *row)
if os.geteuid() != 0:
    print("not as root: another user was not tried")
