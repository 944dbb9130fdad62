"""disturb - training runs, one of whose ranks is killed or stands still: what becomes of the others."""
import os, re, signal, subprocess, tempfile, time

from .machine import file_text, shorten
from .training import MEASURED, TINY

# {name: (signal, options of cddp-run, environment, what has to be said, whether training goes on)}
KINDS = {"killed": (signal.SIGKILL, [], {}, r"signal 9|SIGKILL", False),
         "killed, one restart": (signal.SIGKILL, ["--max-restarts", "1"], {}, r"signal 9|SIGKILL", True),
         "stands still": (signal.SIGSTOP, [], {"CDDP_TIMEOUT_MS": "10000"}, r"rank LAST\b", False)}


class Run:
    """Ranks that train until they are stopped, or until @steps."""

    def __init__(self, machine, ranks, options, env, steps=0):
        self.run_dir = tempfile.mkdtemp(dir=machine.scratch)
        self.argv = [f"{machine.build}/launcher/cddp-run", "--nproc", str(ranks), *options, "--run-dir", self.run_dir,
                     f"{machine.root}/examples/gpt2_124m.conf", "train.device=cuda", *MEASURED, "train.log_steps=1",
                     f"train.batch_size={32 * ranks}", "train.micro_batch=32", "model.blocks=2",
                     *(TINY["gpt2_124m"] if machine.emulated else []), f"train.max_steps={steps}",
                     "data.samples=100000"]
        self.process = subprocess.Popen(self.argv, env=dict(machine.env, **env), stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True)

    def steps(self):
        return file_text(f"{self.run_dir}/metrics.jsonl").count('"loss"')

    def wait_for_steps(self, count, seconds):
        """Whether that many more steps were reported in time."""
        wanted, end = self.steps() + count, time.monotonic() + seconds
        while self.process.poll() is None and self.steps() < wanted and time.monotonic() < end:
            time.sleep(0.1)
        return self.steps() >= wanted

    def end(self, seconds):
        """What it said; None: it was still there, and was killed."""
        try:
            return self.process.communicate(timeout=seconds)[0].decode(errors="replace"), True
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            return self.process.communicate()[0].decode(errors="replace"), False


def one(machine, log, ranks, kind, env=None):
    """The last of some ranks is killed or stopped in the middle of training. What went wrong ("": nothing), and the
    seconds until the job was over, or until it had made two more steps."""
    sent, options, more, says, goes_on = KINDS[kind]
    run = Run(machine, ranks, options, {**more, **(env or {})})
    # On the emulation only a hang takes so long: machines that test it may be loaded.
    begin, finish = (400, 200) if machine.emulated else (40, 45)
    problem = "" if run.wait_for_steps(3, max(1, min(begin, machine.left()))) else "training did not begin"
    pid = None if problem else pid_of_rank(run.process.pid, ranks - 1)
    start = time.monotonic()
    if not problem and pid is None:
        problem = f"rank {ranks - 1} of the run was not found"
    if not problem:
        os.kill(pid, sent)
        if goes_on and not run.wait_for_steps(2, finish):
            problem = f"no step followed within {finish} s"
    seconds = time.monotonic() - start
    if problem or goes_on:
        run.process.terminate()
    text, ended = run.end(1 if problem else finish)
    if not goes_on:
        seconds = time.monotonic() - start
    if not problem and not ended:
        problem = f"the others were still there after {finish} s"
    elif not problem and (run.process.returncode == 0 and not goes_on or not re.search(says.replace("LAST", str(ranks - 1)), text)):
        problem = f"status {run.process.returncode}, and nothing said of it"
    log.write(f"$ {' '.join(run.argv)}\n{shorten(text)}[{kind}; status {run.process.returncode}]\n\n")
    return {"problem": problem, "seconds": round(seconds, 2)}


def pid_of_rank(launcher, rank):
    """The process of cddp-train below @launcher that has this rank, by who started whom as /proc/PID/stat says it,
    which every /proc has; None: there is none."""
    parents, names = {}, {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        stat = file_text(f"/proc/{pid}/stat")
        name, _, rest = stat.partition("(")[2].rpartition(")")
        if len(rest.split()) > 1:
            parents[int(pid)], names[int(pid)] = int(rest.split()[1]), name
    for pid, name in names.items():
        above = pid
        while above in parents and above != launcher:
            above = parents[above]
        if name == "cddp-train" and above == launcher and \
                f"CDDP_RANK={rank}" in file_text(f"/proc/{pid}/environ").split("\0"):
            return pid
    return None
