#!/usr/bin/env python3
"""test_bench_elastic.py - what scripts/bench_elastic.py makes of the lines of a job that lost a member, and what it prints."""
import contextlib, io, os, sys, time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))
import bench_elastic as bench


class Node:
    def __init__(self):
        self.is_running = True

    def runs(self):
        return self.is_running


class Job:
    """One that goes on half a second after it lost a member at step 12, with step 11."""

    def __init__(self):
        self.nodes, self.list = [Node()], [{"kind": "run", "step": 0, "world_size": 2}]
        self.list += [{"step": step, "loss": 1.0, "time_ms": 0} for step in range(1, 13)]

    def ranks(self):
        return {4, 5} if len(self.begins()) == 1 else {4, 6}

    def rows(self):
        return self.list

    def begins(self):
        return [row for row in self.list if row.get("kind") == "run"]

    def last(self):
        return self.list[-1]["step"], 2

    def lose(self):
        now = time.time() * 1000
        self.list = self.list + [{"kind": "run", "step": 10, "world_size": 1},
                                 {"step": 11, "loss": 1.0, "time_ms": now + 500}, {"step": 12, "loss": 1.0, "time_ms": now + 900}]


job = Job()
row = bench.recover(job, job.lose)
assert 0.4 < row["seconds"] < 5 and row["twice"] == 2 and row["ranks"] == 1 and row["started"] == 1, row
job = Job()
assert "ended_s" in bench.recover(job, lambda: setattr(job.nodes[0], "is_running", False))

say = {"where": "two hosts", "what": "node", "who": "cddp", "whole": None}
rows = [say | {"seconds": 0.987, "twice": 10, "started": 1, "status": 0, "same": True},
        say | {"seconds": 0.5, "twice": 1, "started": 0, "status": 0, "same": False},
        say | {"who": "torchrun", "seconds": 9.77, "twice": 10, "started": 2, "status": 0, "loss": 0.25, "whole": 0.5},
        say | {"ended_s": 1.26, "status": 1}, say | {"hangs": True}, say | {"failed": "no\nmore"}]
said = io.StringIO()
with contextlib.redirect_stdout(said):
    bench.table({"rows": rows, "peers": {"horovod": None}})
for line in ("| two hosts | node | cddp | 0.99 | 10 | 1 | 0 | the same bytes |", "| 0.50 | 1 | 0 | 0 | OTHER BYTES |",
             "| torchrun | 9.77 | 10 | 2 | 0 | loss 0.250000, not 0.500000 |", "| the job ends after 1.3 s |  |  | 1 |  |",
             f"| none within {bench.END_S} s |", "| could not be measured |", "horovod: is not installed"):
    assert line in said.getvalue(), (line, said.getvalue())
