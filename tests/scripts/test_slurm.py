#!/usr/bin/env python3
"""test_slurm - a Slurm that this test sets up, with three nodes, starts cddp-train. A node is a slurmd with its own network,
host name and /etc/hosts; a bridge connects them.

Usage: test_slurm.py SOURCE_ROOT BUILD_FOLDER. Exits with 77, and prints why, if Slurm is not installed or cannot be
started: it needs root, slurmctld, slurmd, munged and unshare(1). Everything runs in separate namespaces and is gone
with them."""
import glob, json, os, shutil, subprocess, sys, tempfile, time, unittest

SOURCE, BUILD = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
INSIDE = "CDDP_TEST_SLURM"
LIMIT_S = int(os.environ.get("LIMIT_S", 600))
NODES = 3
CONFIG = """model = {{ type = "mlp"; hidden = [32]; }};
data = {{ type = "synthetic"; samples = 2000; }};
train = {{ batch_size = 60; max_steps = {steps}; epochs = 1000000; eval_epochs = 1000000; seed = 1; run_dir = "{run}"; }};
optimizer = {{ type = "sgd"; lr = 0.01; }};
"""
SLURM = """ClusterName=cddp
SlurmctldHost=control(10.79.0.254)
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmUser=root
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SwitchType=switch/none
SchedulerType=sched/builtin
SelectType=select/linear
ReturnToService=2
MinJobAge=3600
SlurmdParameters=config_overrides
SlurmdTimeout=3600
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmdPidFile={folder}/%n.pid
SlurmctldPidFile={folder}/control.pid
"""


def skip(why):
    print(f"skipped: {why}", flush=True)
    sys.exit(77)


def enter():
    """Start this program again in namespaces, where its daemons disturb nobody."""
    for program in ("slurmctld", "slurmd", "munged", "srun", "sbatch", "unshare", "ip"):
        if shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin") is None:
            skip(f"{program} is not installed (Debian: apt-get install slurm-wlm munge)")
    if os.geteuid() != 0:
        skip("Slurm's daemons are started as root here")
    unshare = ["unshare", "--net", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if subprocess.run([*unshare, "true"], stderr=subprocess.DEVNULL).returncode != 0:
        skip("namespaces cannot be made here")
    os.execvp("unshare", [*unshare, sys.executable, os.path.abspath(__file__), *sys.argv[1:]])


def sh(*words, **options):
    return subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=LIMIT_S, **options)


class Cluster:
    """The daemons, each a child of this process."""

    def __init__(self, folder):
        self.folder = folder
        self.daemons = []
        names = [f"n{i + 1}" for i in range(NODES)]
        self.write_hosts("control", names)
        for command in ("hostname control", f"mount --bind {folder}/hosts-control /etc/hosts", "ip link set lo up",
                        "ip link add br0 type bridge", "ip addr add 10.79.0.254/24 dev br0", "ip link set br0 up"):
            subprocess.run(command.split(), check=True)
        nodes = "".join(f"NodeName={name} NodeAddr=10.79.0.{i + 1} CPUs=8 State=UNKNOWN\n" for i, name in enumerate(names))
        self.write("slurm.conf", SLURM.format(folder=folder) + nodes +
                   f"PartitionName=all Nodes=n[1-{NODES}] Default=YES MaxTime=60 State=UP\n")
        self.write("munge.key", os.urandom(512).hex())
        for path in ["state", "home", *(f"spool-{name}" for name in names)]:
            os.mkdir(f"{folder}/{path}")
        for name in [name for name in os.environ if name.startswith(("SLURM_", "CDDP_"))]:
            del os.environ[name]
        os.environ.update(SLURM_CONF=f"{folder}/slurm.conf", HOME=f"{folder}/home", CDDP_TRAIN=f"{BUILD}/src/cddp-train",
                          PATH=os.environ["PATH"] + ":/usr/sbin:/sbin", OMP_NUM_THREADS="1", CDDP_THREADS="1")
        self.start("munged", "-f", "-F", f"--key-file={folder}/munge.key", f"--socket={folder}/munge.socket",
                   f"--log-file={folder}/munge.log", f"--pid-file={folder}/munge.pid", f"--seed-file={folder}/munge.seed")
        self.wait(lambda: os.path.exists(f"{folder}/munge.socket"), "munged's socket", 60)
        self.start("slurmctld", "-D", "-i")
        for i, name in enumerate(names):
            self.start_node(name, i + 1, names)
        self.wait(lambda: sh("sinfo", "-h", "-o", "%D %t").stdout.split() == [str(NODES), "idle"], "idle nodes", 120)

    def write(self, name, text):
        with open(f"{self.folder}/{name}", "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(text)

    def write_hosts(self, name, names):
        """/etc/hosts of host NAME, which knows itself as 127.0.1.1, as Debian does."""
        self.write(f"hosts-{name}", "127.0.0.1 localhost\n10.79.0.254 control\n" + "".join(
            f"{'127.0.1.1' if other == name else f'10.79.0.{i + 1}'} {other}\n" for i, other in enumerate(names)))
        os.chmod(f"{self.folder}/hosts-{name}", 0o644)

    def start_node(self, name, number, names):
        up = f"{self.folder}/up-{name}"
        self.write_hosts(name, names)
        self.start("unshare", "--net", "--uts", "--mount", "sh", "-c", f"""
            hostname {name} && mount --bind {self.folder}/hosts-{name} /etc/hosts && touch {up} &&
            while ! ip link show eth0 >/dev/null 2>&1; do sleep 0.1; done &&
            ip link set lo up && ip addr add 10.79.0.{number}/24 dev eth0 && ip link set eth0 up && exec slurmd -D -N {name}""")
        self.wait(lambda: os.path.exists(up), "network of a node", 60)
        for words in (f"add v{number} type veth peer name eth0 netns {self.daemons[-1].pid}",
                      f"set v{number} master br0", f"set v{number} up"):
            subprocess.run(["ip", "link", *words.split()], check=True)

    def start(self, *words):
        log = open(f"{self.folder}/{words[0]}-{len(self.daemons)}.log", "w")
        self.daemons.append(subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL))

    def wait(self, holds, what, seconds=LIMIT_S):
        end = time.monotonic() + seconds
        while not holds():
            for daemon in self.daemons:
                if daemon.poll() is not None:
                    raise RuntimeError(f"{daemon.args[0]} ended: {self.logs()}")
            if time.monotonic() > end:
                raise RuntimeError(f"no {what} after {seconds} s: {self.logs()}")
            time.sleep(0.1)

    def logs(self):
        text = ""
        for name in sorted(glob.glob(f"{self.folder}/*.log") + glob.glob(f"{self.folder}/*.out")):
            with open(name, errors="replace") as file:
                text += f"\n{name}:\n{file.read()[-2000:]}"
        return text


class Started(unittest.TestCase):
    def config(self, name, steps):
        self.cluster.write(name, CONFIG.format(steps=steps, run=f"{self.cluster.folder}/run-{name}"))
        return f"{self.cluster.folder}/{name}"

    def steps(self, name):
        path = f"{self.cluster.folder}/run-{name}/metrics.jsonl"
        if not os.path.exists(path):
            return []
        with open(path) as file:
            rows = [json.loads(line) for line in file if line.endswith("\n")]
        return [row["step"] for row in rows if "loss" in row]

    def checkpoint(self, name, step):
        with open(f"{self.cluster.folder}/run-{name}/checkpoints/step-{step:08}/model.safetensors", "rb") as file:
            return file.read()

    def no_token_is_left(self):
        self.assertEqual(glob.glob(f"{self.cluster.folder}/home/.cddp/*"), [])

    def srun(self, *words):
        ran = sh("srun", *words, cwd=self.cluster.folder)
        self.assertEqual(ran.returncode, 0, ran.stderr + self.cluster.logs())
        return ran

    def test_srun_on_three_nodes_makes_one_job_of_all_ranks(self):
        self.srun("-N3", "-n5", os.environ["CDDP_TRAIN"], self.config("three", 7))
        self.no_token_is_left()
        self.srun("-N1", "-n5", os.environ["CDDP_TRAIN"], self.config("one", 7))
        self.assertEqual(self.checkpoint("three", 7), self.checkpoint("one", 7))

    def test_two_steps_of_one_job_do_not_disturb_each_other(self):
        configs = [self.config(name, 5) for name in ("first", "second")]
        script = f"srun --overlap -N3 -n3 $CDDP_TRAIN {configs[0]} & srun --overlap -N3 -n3 $CDDP_TRAIN {configs[1]} & wait"
        self.cluster.write("both", f"#!/bin/bash\nset -m\n{script}\n")
        ran = sh("sbatch", "--wait", "-N3", "-n3", f"--output={self.cluster.folder}/both.out", f"{self.cluster.folder}/both")
        with open(f"{self.cluster.folder}/both.out") as file:
            self.assertEqual(ran.returncode, 0, ran.stderr + file.read())
        self.assertEqual(self.checkpoint("first", 5), self.checkpoint("second", 5))
        self.no_token_is_left()

    def test_a_batch_script_that_forgets_srun_is_told_so(self):
        config = self.config("forgotten", 5)
        self.cluster.write("forgotten.sh", f"#!/bin/bash\nexec $CDDP_TRAIN {config}\n")
        ran = sh("sbatch", "--wait", "-N2", "-n2", f"--output={self.cluster.folder}/forgotten.out",
                 f"{self.cluster.folder}/forgotten.sh")
        with open(f"{self.cluster.folder}/forgotten.out") as file:
            self.assertIn("SLURM_STEP_ID not: this is the job's script itself, and a batch script starts ranks by srun", file.read())
        self.assertNotEqual(ran.returncode, 0)

    def test_the_example_saves_before_the_limit_and_is_requeued(self):
        config = self.config("requeued", 100000000)
        out = f"{self.cluster.folder}/requeued.out"
        ran = sh("sbatch", "--parsable", "-N3", "--ntasks-per-node=1", "--time=50", f"--output={out}",
                 f"{SOURCE}/examples/cluster/train.sbatch", config, cwd=self.cluster.folder)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        job = ran.stdout.strip()
        self.cluster.wait(lambda: len(self.steps("requeued")) > 0, "steps")
        sh("scancel", "--signal=USR1", job) # what Slurm sends at the time that --signal names
        self.cluster.wait(lambda: " PENDING" in self.state(job), "requeued job")
        with open(out) as file:
            text = file.read()
        self.assertIn("the time is up: job", text)
        stopped = int(text.split("stopped after step ")[1].split()[0].rstrip(";:,"))
        self.config("requeued", stopped + 9)
        self.cluster.wait(self.started(job), "completed job")
        with open(out) as file:
            text = file.read()
        self.assertIn("continuing from ", text)
        self.assertIn(f"after {stopped + 9} steps", text)
        self.assertTrue(self.checkpoint("requeued", stopped + 9))

    def state(self, job):
        return " " + sh("squeue", "-h", "-t", "all", "-j", job, "-o", "%T").stdout.strip()

    def started(self, job):
        """Slurm waits two minutes after a requeue; this does not."""
        def holds():
            sh("scontrol", "update", f"JobId={job}", "StartTime=now")
            return " COMPLETED" in self.state(job)
        return holds


if __name__ == "__main__":
    if os.environ.get(INSIDE) is None:
        os.environ[INSIDE] = "1"
        enter()
    with tempfile.TemporaryDirectory(prefix="cddp-slurm-") as work:
        try:
            Started.cluster = Cluster(work)
        except (OSError, RuntimeError, subprocess.SubprocessError) as error:
            skip(f"Slurm does not start here: {error}")
        ended = unittest.main(argv=[sys.argv[0], "-v", *sys.argv[3:]], exit=False)
    sys.exit(0 if ended.result.wasSuccessful() else 1)
