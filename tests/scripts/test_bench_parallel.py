#!/usr/bin/env python3
"""test_bench_parallel.py - what scripts/bench_parallel.py computes, prints and draws from invented numbers."""
import contextlib, io, os, sys, tempfile
import xml.etree.ElementTree as tree

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))
import bench_parallel as bench

assert bench.ideal(8) == 16 / 9 and bench.ideal(1) == 1 and bench.ideal(4, 4) == 16 / 7
assert bench.ideal(8, schedule="zero_bubble") == 48 / 25 and bench.ideal(1, 4, "zero_bubble") == 12 / 9
assert [bench.kept("gpipe", m) for m in (1, 8)] == [1, 8]
assert [bench.kept("1f1b", m) for m in (1, 8)] == [1, 2] and bench.kept("1f1b", 8, 4) == 4
assert [bench.kept("zero_bubble", m) for m in (1, 8)] == [1, 2]
assert bench.slope({4: 10.0, 16: 34.0, 8: 1000.0}) == 2

rows = {who: {"samples_per_s": 100.0 * ranks, "step_ms": 10.0, "exposed_comm_ms": 1.0, "peak_rss_mib": 50}
        for who, (ranks, _) in bench.ways(False).items()}
assert "DataParallel" not in rows and "DataParallel" in bench.ways(True)
rows["2 stages, 8"]["samples_per_s"] = 160.0
made = {"net": {"rows": rows, "memory": {"1f1b": {4: 20, 8: 20, 16: 20},
                                         "zero_bubble": {4: 23, 8: 23, 16: 23}, "gpipe": {4: 24, 8: 32, 16: 48}}}}
said = io.StringIO()
with contextlib.redirect_stdout(said):
    bench.table(made, str)
assert "| DDP | 200.0 | 2.00 | 2.00 | 10 | 50 |" in said.getvalue(), said.getvalue()
assert "at M = 8 1.60 of a single rank, 0.90 of the best possible" in said.getvalue(), said.getvalue()
assert "| 2 stages, 8 | 160.0 | 1.60 | 1.78 |" in said.getvalue(), said.getvalue()
assert "| 2 stages, 8, zero_bubble | 200.0 | 2.00 | 1.92 |" in said.getvalue(), said.getvalue()
assert "| 2 stages, 8, gpipe | 200.0 | 2.00 | 1.78 |" in said.getvalue(), said.getvalue()
assert "| zero_bubble: keeps 2, 2, 2 | 23 | 23 | 23 | 0.00 | 0.00 |" in said.getvalue(), said.getvalue()
assert "| gpipe: keeps 4, 8, 16 | 24 | 32 | 48 | 2.00 | 2.00 |" in said.getvalue(), said.getvalue()
assert "| 1f1b: keeps 2, 2, 2 | 20 | 20 | 20 | 0.00 | 0.00 |" in said.getvalue(), said.getvalue()
with tempfile.NamedTemporaryFile("r", suffix=".svg") as file:
    bench.plot(made, file.name)
    drawn = tree.parse(file.name).getroot()
assert len(drawn.findall("{http://www.w3.org/2000/svg}circle")) == len(bench.SPLITS)
assert len(drawn.findall("{http://www.w3.org/2000/svg}polyline")) == 2  # measured, and theory
