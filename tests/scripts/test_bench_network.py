#!/usr/bin/env python3
"""test_bench_network.py - the computations of scripts/bench_network.py: the best possible schedule, and percentages."""
import contextlib, io, json, os, sys, tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))
import bench_network


def best(gradients, backward_end, rate, wire=1):
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        for ready, size in gradients:
            file.write(json.dumps({"gradient": "g", "bytes": size, "ready_s": ready}) + "\n")
        file.write(json.dumps({"bucket": 0, "bytes": 1 << 30, "ready_s": 0, "done_s": 1}) + "\n")
        file.write(json.dumps({"backward_end_s": backward_end, "step_s": backward_end}) + "\n")
        file.flush()
        return bench_network.best_schedule(file.name, wire, rate)


def near(what, got, wanted):
    if abs(got - wanted) > 1e-9 * max(1, abs(wanted)):
        raise SystemExit(f"test_bench_network: {what}: {got}, not {wanted}")


# Everything is hidden but the last gradient.
near("the last one", best([(0.1, 1000), (1.0, 500)], 1.0, 10000)[0], 50)
# The link is busy from the first on: the order of lines does not matter.
near("a slow link", best([(1.0, 500), (0.5, 1000)], 1.0, 1000)[0], 1000)
near("half of the bytes", best([(1.0, 500), (0.5, 1000)], 1.0, 1000, 0.5)[0], 250)
near("nothing is exposed", best([(0.1, 100), (0.2, 100)], 1.0, 1e6)[0], 0)
near("bytes", best([(0.1, 100), (0.2, 100)], 1.0, 1e6)[1], 200)
near("a rate", bench_network.megabit("10gbit"), 10000)
near("a slow rate", bench_network.megabit("100mbit"), 100)
near("a rate that frames permit", bench_network.link_rate("1gbit", 0.91), 1e9 / 8 * 1448 / 1514)
near("a rate that the processor does not reach", bench_network.link_rate("10gbit", 5), 5e9 / 8)
near("no nominal rate", bench_network.link_rate("none", 13), 13e9 / 8)
near("few calls on a slow link", bench_network.calls_of("100mbit", bench_network.LARGE), 3)
assert bench_network.percent_of_link("1gbit", 64 * 1024 * 1024 * 8 / 0.95 / 1e3, 0.95) == "95.0, 100.0"

# What bench_carrier prints is found again; other numbers of sockets are not.
CARRIER = """plain socket, 64 MiB                         best     2.00, median     1.50 GB/s
tcp, 1 sockets, 64 MiB                       best     9.00, median     9.00 GB/s
tcp, 2 sockets, 64 MiB                       best     3.00, median     2.00 GB/s
tcp, 2 sockets, 64 MiB each way              best     3.50, median     3.00 GB/s
tcp, 2 sockets, round trip, sleeping         best    10.00, median    12.50 us
tcp, 2 sockets, round trip, spinning         best     5.00, median     6.00 us
encrypted tcp, 2 sockets, 64 MiB             best     0.60, median     0.50 GB/s
encrypted tcp, 2 sockets, 64 MiB each way    best     0.80, median     0.75 GB/s
encrypted tcp, 2 sockets, round trip, sleeping best    20.00, median    25.00 us
"""
found = bench_network.read_carrier(CARRIER)
assert found == {("tcp", "one way"): 2, ("tcp", "both ways"): 3, ("tcp", "round trip"): 12.5, ("encrypted tcp", "one way"): 0.5,
                 ("encrypted tcp", "both ways"): 0.75, ("encrypted tcp", "round trip"): 25}, found

# The tables are whole: each row has as many cells as its head, and ratios are ours over theirs where that is said.
HOLDS = {"ranks": 2, "joined_bytes": 102400, "reduced_bytes": 204800, "private_bytes": 1 << 20, "threads": 2}
LARGE, SMALL = bench_network.LARGE, bench_network.SMALL
RESULT = {"encryption": {f"{kind}, {what}": value for (kind, what), value in found.items()}, "footprint": {"2": HOLDS, "3": None},
          "torch mpi": "why", "loopback": {"gbit_per_s": 20, "rtt_us": 10, f"cddp {LARGE}": 1e5, f"gloo {LARGE}": 2.5e5,
                                           f"cddp mpi {LARGE}": 1.02e5, f"Open MPI {LARGE}": 1e5, f"cddp {SMALL}": 12}}
said = io.StringIO()
with contextlib.redirect_stdout(said):
    bench_network.table(RESULT, lambda value: "-" if value is None else f"{value:g}")
cells, lines = 0, said.getvalue().splitlines()
for line, before in zip(lines, [""] + lines):
    cells = line.count("|") if line.startswith("|") and not before.startswith("|") else cells
    assert not line.startswith("|") or line.count("|") == cells, line
for part in ("| loopback | 20 | 100 | 26.8 | 250 | 2.50 | 102 | 100 | 1.02 | 12 |", "PyTorch over MPI: not measured: why",
             "| 64 MiB, one way | 2 GB/s | 0.5 GB/s | 4.00 |", "| 4 KiB, round trip | 12.5 us | 25 us | 2.00 |",
             "| 2 | 100 | 200 | 1 | 2 |"):
    assert part in said.getvalue(), (part, said.getvalue())


# cddp and its peer are started by the same mpirun, on hosts of their own or as if they were.
class Here:
    name, rate = "x", "loopback"


asked = []
bench_network.run_mpi = lambda hosts, words: asked.append(words) or '{"carrier": "mpi", "rows": [{"median_us": 5}]}'
assert bench_network.measure_cddp_mpi(Here, "/b", 4096, 20) == 5
assert asked[0][:2] == ["sh", "-c"] and "CDDP_HOST_ID=bench-$OMPI_COMM_WORLD_RANK /b/src/cddp-bench" in asked[0][2]
assert "--transport mpi" in asked[0][2]
bench_network.run_mpi = lambda hosts, words: '{"carrier": null, "rows": [{"median_us": 5}]}'
assert bench_network.measure_cddp_mpi(Here, "/b", 4096, 20) is None, "what was not on MPI does not count"
