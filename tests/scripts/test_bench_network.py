#!/usr/bin/env python3
"""test_bench_network.py - what scripts/bench_network.py computes: the best possible schedule, and percentages."""
import json, os, sys, tempfile

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
