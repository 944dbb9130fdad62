#!/usr/bin/env python3
"""test_bench_micro_batch.py - what scripts/bench_micro_batch.py compares, and what it prints of invented numbers."""
import contextlib, io, os, sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))
import bench_micro_batch as bench

ways = bench.ways(256)
assert ways["M = N = 1"] == (1, [], ["train.micro_batch=256"])
assert ways["M = N = 2"] == (2, [], ["train.micro_batch=128"])
assert ways["M = 8, N = 2"] == (2, ["train.accumulate=4"], ["train.micro_batch=32"])
row = {"without": {"step_ms": 10.0, "processor_ms": 18.0, "peak_rss_mib": 50},
       "micro_batch": {"step_ms": 10.2, "processor_ms": 18.9, "peak_rss_mib": 58}, "step_ms": 1.02, "processor_ms": 1.05}
said = io.StringIO()
with contextlib.redirect_stdout(said):
    bench.table({"net": {"M = N = 1": row}}, str)
assert "| net, M = N = 1 | 10.0 | 10.2 | +2.0 % | 18.0 | 18.9 | +5.0 % | 50 | 58 |" in said.getvalue(), said.getvalue()
