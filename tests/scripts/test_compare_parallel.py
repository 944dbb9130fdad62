#!/usr/bin/env python3
"""test_compare_parallel.py - scripts/compare_parallel on a small network: the reported memory of each device, equal results of
all ways, the timeline of a step, the table and the picture. Usage: test_compare_parallel.py BUILD"""
import json, os, subprocess, sys, tempfile
import xml.etree.ElementTree as tree

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts", "compare_parallel")
BATCH, STEPS, MICRO, CLASSES = 24, 4, 4, 10
CONF = """model = { type = "mlp"; hidden = [32, 16]; };
data = { type = "synthetic"; samples = 96; image = [1, 8, 8]; };
optimizer = { type = "sgd"; lr = 0.05; momentum = 0.9; };
"""

if len(os.sched_getaffinity(0)) < 2:
    print("two devices are two processors, and there is one")
    sys.exit(77)


def compare(folder, *words):
    return subprocess.run([sys.executable, SCRIPT, "--build", sys.argv[1], "--steps", str(STEPS), "--batch", str(BATCH),
                           "--micro-batches", str(MICRO), *words], capture_output=True, text=True, cwd=folder)


def total(way, kind):
    return sum(memory[kind] for memory in way["memory"].values())


def spans(way, row, kind):
    return [span for span in way["timeline"]["rows"][row] if span["kind"] == kind]


def each_device_holds_what_it_should(ways):
    single = ways["single"]["memory"]["rank 0"]
    parameters = 4 * (64 * 32 + 32 + 32 * 16 + 16 + 16 * CLASSES + CLASSES)
    assert single["parameters"] == single["gradients"] == parameters, single
    assert single["optimizer"] >= parameters and single["activations"] > 0 and single["outputs"] == 0, single
    copies = ways["DataParallel"]["memory"]
    assert list(copies) == ["cpu:0", "cpu:1"], copies
    assert [copy["parameters"] for copy in copies.values()] == [parameters, parameters], copies
    assert [copy["gradients"] for copy in copies.values()] == [2 * parameters, parameters], copies
    assert [copy["optimizer"] for copy in copies.values()] == [single["optimizer"], 0], copies
    assert [copy["outputs"] for copy in copies.values()] == [2 * 4 * BATCH * CLASSES, 0], copies
    ranks = ways["DDP"]["memory"]
    assert list(ranks) == ["rank 0", "rank 1"], ranks
    assert all(rank["parameters"] == rank["gradients"] == parameters for rank in ranks.values()), ranks
    first = 4 * (64 * 32 + 32)
    for name, samples in (("model parallel", BATCH), ("pipeline", 2 * BATCH // MICRO)): # 1f1b keeps two
        halves = ways[name]["memory"]
        assert [half["parameters"] for half in halves.values()] == [first, parameters - first], halves
        assert total(ways[name], "optimizer") >= parameters and total(ways[name], "gradients") == parameters, halves
        assert [half["edges"] for half in halves.values()] == [2 * 4 * 32 * samples, 0], halves


def the_ways_compute_the_same(ways):
    loss = ways["single"]["loss"]
    assert ways["model parallel"]["loss"] == loss
    assert all(abs(way["loss"] - loss) < 1e-5 for way in ways.values()), {name: way["loss"] for name, way in ways.items()}


def the_timeline_says_who_does_what(ways):
    copies = ways["DataParallel"]
    for kind, counts in (("replicate", (0, 1)), ("sum", (1, 0)), ("forward", (2, 1)), ("backward", (2, 1))):
        assert tuple(len(spans(copies, row, kind)) for row in ("cpu:0", "cpu:1")) == counts, kind
    halves = ways["model parallel"]
    (f0,), (f1,) = (spans(halves, row, "forward") for row in ("cpu:0", "cpu:1"))
    (b0,), (b1,) = (spans(halves, row, "backward") for row in ("cpu:0", "cpu:1"))
    assert f0["end_ms"] <= f1["begin_ms"] <= f1["end_ms"] <= b1["begin_ms"] <= b1["end_ms"] <= b0["begin_ms"]
    for row in ("cpu:0", "cpu:1"):
        for kind in ("forward", "backward"):
            assert [span["micro_batch"] for span in spans(ways["pipeline"], row, kind)] == list(range(MICRO))
    for name, way in ways.items():
        assert sum(len(spans(way, row, "optimizer")) for row in way["timeline"]["rows"]) == (2 if name == "DDP" else 1)
        assert all(0 <= part <= 1 for part in way["busy"].values()), way["busy"]


def the_picture_has_a_bar_for_each(path, ways):
    svg = "{http://www.w3.org/2000/svg}"
    root = tree.parse(path).getroot()
    titles = [title.text for title in root.iter(f"{svg}title")]
    drawn = sum(len(row) for way in ways.values() for row in way["timeline"]["rows"].values())
    held = sum(size > 0 for way in ways.values() for memory in way["memory"].values() for size in memory.values())
    assert len(titles) == drawn + held, (len(titles), drawn, held)
    assert sum(title.startswith("outputs: ") for title in titles) == 1
    width, height = float(root.get("width")), float(root.get("height"))
    for rect in root.iter(f"{svg}rect"):
        if rect.get("x"):
            assert 0 <= float(rect.get("x")) and float(rect.get("x")) + float(rect.get("width")) <= width
            assert 0 <= float(rect.get("y")) and float(rect.get("y")) + float(rect.get("height")) <= height


with tempfile.TemporaryDirectory() as folder:
    conf, found, drawn = (os.path.join(folder, name) for name in ("train.conf", "found.json", "drawn.svg"))
    with open(conf, "w") as file:
        file.write(CONF)
    done = compare(folder, "--model", conf, "--stages", "fc2", "--json", found, "--plot", drawn)
    assert done.returncode == 0, done.stdout + done.stderr
    with open(found) as file:
        ways = json.load(file)["ways"]
    assert list(ways) == ["single", "DataParallel", "DDP", "model parallel", "pipeline"]
    rows = [line for line in done.stdout.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + 1 + 4 * 2 and len({row.count("|") for row in rows}) == 1, done.stdout
    each_device_holds_what_it_should(ways)
    the_ways_compute_the_same(ways)
    the_timeline_says_who_does_what(ways)
    the_picture_has_a_bar_for_each(drawn, ways)
    wrong = compare(folder, "--model", "nothing")
    assert wrong.returncode == 2 and "nothing is none of mlp, resnet20 and gpt2, and no file" in wrong.stderr, wrong.stderr
    wrong = compare(folder, "--model", conf, "--devices", "100000")
    assert wrong.returncode == 2 and "--devices 100000: this process may use " in wrong.stderr, wrong.stderr
