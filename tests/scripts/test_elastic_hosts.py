#!/usr/bin/env python3
"""test_elastic_hosts.py - jobs of cddp-run --nnodes MIN:MAX on hosts that scripts/hosts makes: hosts are lost, come back, come
late, freeze, are cut off and leave, with 1, 3 and 5 ranks each. The job goes on, its files are those of a run that nobody
disturbed, byte for byte, and nothing is left on any host.

    test_elastic_hosts.py BUILD [[--but] NAME...]
"""
import os, shutil, signal, sys, tempfile, time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))
import elastic_hosts as elastic
from elastic_hosts import Wrong

HANG_S = 150  # only what hangs takes so long
HOSTS = 4
RATE = "100mbit"  # so that a step takes as long on any machine, and a job outlives what happens to it
STEPS = 100
EARLY = 22  # the step after which something happens
STOPPED_EARLY, TOO_FEW = 3, 4
HEARD_S = 20  # how long a host that has been given up may take to end once it is awake


class Cases:
    def __init__(self, network, work, build):
        self.network, self.work, self.build = network, work, build

    def job(self, name, nnodes, hosts, nproc=1, options=(), store=None):
        job = elastic.Job(self.network, self.build, self.work.new_folder(name), nnodes, HANG_S, options, store=store)
        for host in hosts:
            job.start(host, nproc)
        return job

    def begun(self, job, ranks):
        job.until(lambda: job.trains_on(ranks), f"training on {ranks} ranks")
        job.until_step(EARLY)

    def ended(self, job, right):
        """Compare the nodes' exit statuses, in the order of their starts; None: any but 0."""
        statuses = job.end()
        if any(status == 0 if other is None else status != other for status, other in zip(statuses, right)):
            raise Wrong(f"exit statuses {statuses}, not {right}:\n{job.said()}")
        self.work.compare(job.folder)

    # Each case: a host or several, and what happens to them.

    def lost(self, nproc=1):
        """All processes of a host are killed: the others go on without it."""
        job = self.job("lost", "2:3", (1, 2, 3), nproc)
        self.begun(job, 3 * nproc)
        self.network.kill(2)
        job.until(lambda: job.trains_on(2 * nproc), "training without host2")
        self.ended(job, [0, 128 + signal.SIGKILL, 0])

    def lost_of_3_ranks(self):
        self.lost(3)

    def lost_of_5_ranks(self):
        self.lost(5)

    def two_of_four_are_lost_at_once(self):
        job = self.job("two", "1:4", (1, 2, 3, 4))
        self.begun(job, 4)
        self.network.kill(3)
        self.network.kill(2)
        job.until(lambda: job.trains_on(2), "training on two hosts")
        self.ended(job, [0, 137, 137, 0])

    def alone(self):
        """The last host goes on alone."""
        job = self.job("alone", "1:2", (1, 2))
        self.begun(job, 2)
        self.network.kill(2)
        self.ended(job, [0, 137])

    def rank_dies(self):
        """A rank that is killed is replaced: no host is lost."""
        job = self.job("rank", "1:2", (1, 2), 3)
        self.begun(job, 6)
        elastic.send(job.rank(4), signal.SIGKILL)
        job.until(lambda: len(job.begins()) > 1 and job.trains_on(6), "training on 6 ranks again")
        self.ended(job, [0, 0])

    def power(self):
        """A host is silent from one moment to the next, for good: the others go on, and the host's own processes end."""
        job = self.job("power", "2:3", (1, 2, 3))
        self.begun(job, 3)
        self.network.tell("link", "3", "down")
        try:
            job.until(lambda: job.trains_on(2), "training without host3")
            job.nodes[2].wait(HANG_S)
        finally:
            self.network.tell("link", "3", "up")
        self.ended(job, [0, 0, None])

    def cable(self):
        """The same, and the cable is put in again while the host may still hope. It takes no part any more."""
        job = self.job("cable", "2:3", (1, 2, 3))
        self.begun(job, 3)
        self.network.tell("link", "2", "down")
        try:
            job.until(lambda: job.trains_on(2), "training without host2")
        finally:
            self.network.tell("link", "2", "up")
        job.nodes[1].wait(HEARD_S)
        self.ended(job, [0, None, 0])

    def frozen(self):
        """A host stands still for longer than the limit. When it wakes it ends by itself, and takes no part any more."""
        job = self.job("frozen", "2:3", (1, 2, 3), 3)
        self.begun(job, 9)
        self.network.tell("freeze", "3")
        try:
            job.until(lambda: job.trains_on(6), "training without host3")
        finally:
            self.network.tell("thaw", "3")
        job.nodes[2].wait(HEARD_S)
        if "went on without" not in job.nodes[2].text() and "given up" not in job.nodes[2].text():
            raise Wrong(f"a host that was given up does not say so: {job.said()}")
        self.ended(job, [0, 0, None])

    def comes_back(self):
        """Too few are left: the job waits, and goes on with the host that comes again."""
        job = self.job("back", "2:2", (1, 2), options=["--timeout", "60"])
        self.begun(job, 2)
        self.network.kill(2)
        job.until(lambda: "waiting for others" in job.nodes[0].text(), "node 0 waits")
        job.start(2)
        job.until(lambda: len(job.begins()) > 1 and job.trains_on(2), "training on two hosts again")
        self.ended(job, [0, 137, 0])

    def too_few(self):
        """Nobody comes: a status of its own."""
        job = self.job("few", "2:2", (1, 2), options=["--timeout", "3"])
        self.begun(job, 2)
        self.network.kill(2)
        statuses = job.end()
        if statuses != [TOO_FEW, 137] or "too few nodes" not in job.nodes[0].text():
            raise Wrong(f"exit statuses {statuses}: {job.said()}")

    def late(self):
        """A host that comes late is let in, and no step is computed twice."""
        job = self.job("late", "2:3", (1, 2), 3)
        self.begun(job, 6)
        job.start(3, 3)
        job.until(lambda: job.trains_on(9), "training with host3")
        self.ended(job, [0, 0, 0])

    def spare(self):
        """More hosts than MAX: one waits, and takes the place of one that is lost."""
        job = self.job("spare", "1:2", (1, 2))
        self.begun(job, 2)
        job.start(3)
        job.until(lambda: job.nodes[2].text() != "", "the third says something")
        self.network.kill(2)
        job.until(lambda: len(job.begins()) > 1, "the next generation")
        self.ended(job, [0, 137, 0])

    def leaves(self, number=signal.SIGTERM):
        """A host that is asked to leave costs no step."""
        job = self.job("leaves", "1:3", (1, 2, 3))
        self.begun(job, 3)
        elastic.send(job.nodes[1].process.pid, number)
        job.nodes[1].wait(HANG_S)
        job.until(lambda: job.trains_on(2), "training without host2")
        before = job.begins()
        self.ended(job, [0, STOPPED_EARLY, 0])
        if before[1]["step"] < EARLY:
            raise Wrong(f"the next generation began at step {before[1]['step']}")

    def leaves_by_sigusr1(self):
        self.leaves(signal.SIGUSR1)

    def other_work_is_refused(self):
        """Who comes with another configuration is told the difference; the job goes on."""
        job = self.job("other", "1:2", (1,))
        self.begun(job, 1)
        node = job.start(2, words=["optimizer.lr=0.5"])
        if node.wait(HANG_S) == 0 or "optimizer.lr=0.5" not in node.text():
            raise Wrong(f"a node with other work: {job.said()}")
        self.ended(job, [0, None])

    def stops(self):
        """A signal to node 0 ends the whole job with a checkpoint."""
        job = self.job("stops", "1:2", (1, 2))
        self.begun(job, 2)
        elastic.send(job.nodes[0].process.pid, signal.SIGTERM)
        statuses = job.end()
        if statuses != [STOPPED_EARLY, STOPPED_EARLY]:
            raise Wrong(f"exit statuses {statuses}: {job.said()}")

    def node_0(self):
        """The host that holds the store is lost: the others end, and say why. Started again, the job goes on."""
        job = self.job("zero", "1:3", (1, 2, 3))
        self.begun(job, 3)
        self.network.kill(1)
        statuses = job.end()
        if 0 in statuses or "node 0 (host1)" not in job.nodes[1].text():
            raise Wrong(f"exit statuses {statuses}: {job.said()}")

    def job_with_store(self, name):
        """Three hosts with 3 ranks each, and the store on the fourth; None: not with this cddp-run."""
        if not elastic.has_store(self.build):
            print("skipped: cddp-run has no --store")
            return None
        job = self.job(name, "1:3", (1, 2, 3), 3, store=4)
        self.begun(job, 9)
        return job

    def node_0_and_no_store(self):
        """The first host is lost, and the store is on another: the others go on."""
        if job := self.job_with_store("first"):
            self.network.kill(1)
            job.until(lambda: job.trains_on(6), "training without host1")
            self.ended(job, [137, 0, 0])

    def node_0_leaves(self):
        if job := self.job_with_store("first-leaves"):
            elastic.send(job.nodes[0].process.pid, signal.SIGTERM)
            job.until(lambda: job.trains_on(6), "training without host1")
            self.ended(job, [STOPPED_EARLY, 0, 0])

    def node_0_is_frozen(self):
        """Its rank 0 holds the run's folder until it wakes: the others wait that long."""
        if job := self.job_with_store("first-frozen"):
            self.network.tell("freeze", "1")
            try:
                job.until(lambda: "still writes there" in job.nodes[1].text(), "host2 waits for the folder")
            finally:
                self.network.tell("thaw", "1")
            job.nodes[0].wait(HEARD_S)
            job.until(lambda: job.trains_on(6), "training without host1")
            self.ended(job, [None, 0, 0])

    def list_of_hosts(self, cut=False):
        """One cddp-run on the fourth host has started the others: it goes on without the host of node 0, and starts it again."""
        job = self.job("list-cut" if cut else "list", "1:3", ())
        head = job.start_list(4, (1, 2, 3), 3)
        self.begun(job, 9)
        if cut:
            self.network.tell("link", "1", "down")
        else:
            self.network.kill(1)
        try:
            job.until(lambda: len(job.begins()) > 1, "the next generation")
        finally:
            if cut:
                self.network.tell("link", "1", "up")
        self.ended(job, [0])
        if "node 0 (host1) is lost: " not in head.text() or "starting cddp-run on host1 again" not in head.text():
            raise Wrong(f"the loss of host1 is not told: {job.said()}")

    def list_of_hosts_is_cut(self):
        self.list_of_hosts(cut=True)


NAMES = [name for name, value in vars(Cases).items() if callable(value) and name not in
         ("__init__", "job", "begun", "ended", "job_with_store")]


def main():
    build, names = sys.argv[1], sys.argv[2:] or NAMES
    if names[0] == "--but":
        names = [name for name in NAMES if name not in names]
    network = elastic.Network(f"e{os.getpid()}", HOSTS, RATE)
    probe = network.check()
    if probe:
        print(probe)
        return 77
    base = os.path.join(os.path.abspath(build), "tests", "tmp")
    os.makedirs(base, exist_ok=True)
    folder = tempfile.mkdtemp(prefix="elastic-", dir=base)
    failed = 0
    with network:
        cases = Cases(network, elastic.Work(build, folder, STEPS), build)
        for name in names:
            begin = time.monotonic()
            try:
                getattr(cases, name)()
                print(f"{name}: right ({time.monotonic() - begin:.1f} s)", flush=True)
            except Wrong as wrong:
                failed += 1
                print(f"{name}: WRONG after {time.monotonic() - begin:.1f} s: {wrong}\nfiles: {folder}", flush=True)
                for host in range(1, HOSTS + 1):
                    network.kill(host)
    if failed == 0:
        shutil.rmtree(folder)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
