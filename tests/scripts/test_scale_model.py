#!/usr/bin/env python3
"""test_scale_model - scripts/scale_model overlaps as documented, and uses the library's formulas. Usage: test_scale_model.py BUILD"""
import contextlib, importlib.machinery, importlib.util, io, json, os, subprocess, sys, tempfile, unittest
import xml.etree.ElementTree

sys.dont_write_bytecode = True
SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../scripts/scale_model")
loader = importlib.machinery.SourceFileLoader("scale_model", SCRIPT)
scale_model = importlib.util.module_from_spec(importlib.util.spec_from_loader("scale_model", loader))
loader.exec_module(scale_model)
scale_validate = scale_model.scale_validate
BUILD = sys.argv.pop(1)
PROGRAM = os.path.join(BUILD, "tests", "net_cost")
TRACE = ['{"bucket": 1, "bytes": 26214400, "ready_s": 0.06}', '{"bucket": 0, "bytes": 1048576, "ready_s": 0.02}', "",
         '{"bucket": 2, "bytes": 26214400, "ready_s": 0.1}', '{"backward_end_s": 0.1, "step_s": 0.12}']


class Model(unittest.TestCase):
    def is_refused(self, lines, part):
        with self.assertRaisesRegex(scale_model.Wrong, part):
            scale_model.read_trace(lines, "t")

    def test_a_trace_is_read_in_the_order_of_buckets(self):
        buckets, end, step = scale_model.read_trace(TRACE, "t")
        self.assertEqual([ready for _, _, ready in buckets], [0.02, 0.06, 0.1])
        self.assertEqual((end, step), (0.1, 0.12))
        self.assertEqual(scale_model.read_trace(TRACE[:1] + ['{"backward_end_s": 3}'], "t")[1:], (3, 3))

    def test_what_is_wrong_with_a_trace_is_said_with_its_line(self):
        self.is_refused(["", "{"], "t, line 2: this is not JSON")
        self.is_refused(["[]"], "line 1: this is not an object")
        self.is_refused(['{"bucket": 0, "bytes": "many"}'], '"bytes" is "many"')
        self.is_refused(['{"bucket": 0, "bytes": NaN, "ready_s": 0}'], '"bytes" is NaN')
        self.is_refused(TRACE[:1] * 2, "line 2: bucket 1 was there before")
        self.is_refused(['{"bucket": 0, "bytes": 1, "ready_s": 0, "type": "f8"}'], '"type" is "f8"')
        self.is_refused(['{"backward_end_s": 2, "step_s": 1}'], '"step_s" is 1, it must be a number of at least 2')
        self.is_refused(TRACE[:4], "no backward_end_s")
        self.is_refused(TRACE[4:], "no bucket")

    def test_a_faster_device_gives_all_times_divided(self):
        buckets, end, step = scale_model.faster(scale_model.read_trace(TRACE, "t"), 10)
        self.assertEqual([round(ready, 6) for _, _, ready in buckets], [0.002, 0.006, 0.01])
        self.assertEqual([size for size, _, _ in buckets], [1048576, 26214400, 26214400])
        self.assertEqual((round(end, 6), round(step, 6)), (0.01, 0.012))

    def test_a_trace_or_validation_is_asked_for(self):
        for words in ([], ["--validate", "trace"], ["--validate", "--steps", "3"]):
            with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()):
                scale_model.options(words)

    def test_only_what_the_backward_pass_does_not_cover_is_exposed(self):
        trace = scale_model.read_trace(TRACE, "t")
        self.assertEqual(scale_model.overlap(trace, [0, 0, 0]), (0.12, 0))
        for seconds, exposed in (([0.04, 0.04, 0.03], 0.03), ([0.05, 0.05, 0.03], 0.05), ([0.1, 0, 0], 0.02)):
            step, got = scale_model.overlap(trace, seconds)
            self.assertAlmostEqual(got, exposed)
            self.assertAlmostEqual(step, 0.12 + exposed)

    def test_what_a_link_carries_at_once_is_not_waited_for(self):
        trace = scale_model.read_trace(TRACE, "t")
        self.assertAlmostEqual(scale_model.overlap(trace, [0.04, 0.04, 0.03], 0.01)[1], 0.03)  # the first is hidden anyway
        self.assertAlmostEqual(scale_model.overlap(trace, [0.1, 0, 0], 0.015)[1], 0.005)
        self.assertAlmostEqual(scale_model.overlap(trace, [0.01, 0, 0.03], 0.03)[1], 0.01)

    def test_a_bucket_takes_at_least_what_the_core_that_talks_takes(self):
        bucket = (1000, "f32", 0)
        args = scale_model.options(["trace", "--cpu-ns-per-byte", "2"])
        self.assertAlmostEqual(scale_model.processor_s(2, 1000, 1e-9), 2e-6)  # half of it twice out and twice in
        self.assertAlmostEqual(scale_model.bucket_s(2, bucket, args, 1e-6), 4e-6)
        self.assertAlmostEqual(scale_model.bucket_s(2, bucket, args, 1e-5), 1e-5)
        args = scale_model.options(["trace", "--cpu-ns-per-byte", "2", "--wire", "bf16"])
        self.assertAlmostEqual(scale_model.bucket_s(4, bucket, args, 0), 3e-6)

    def test_a_link_is_what_the_least_disturbed_measurement_says(self):
        rows = [{"rtt_us": 30, "rtt_asleep_us": 40, "gbit_per_s": 0.8, "cpu_ns_per_byte": 1},
                {"rtt_us": 5e4, "rtt_asleep_us": 36, "gbit_per_s": 0.4, "cpu_ns_per_byte": 3}]
        for got, wanted in zip(scale_validate.best_of(rows), (15e-6, 1e8, 1e-9)):
            self.assertAlmostEqual(got, wanted)
        self.assertAlmostEqual(scale_validate.best_of(rows[1:])[0], 18e-6)
        self.assertEqual((scale_validate.nominal("1gbit"), scale_validate.burst("1gbit")), (1.25e8, 2.5e5))
        self.assertEqual((scale_validate.nominal("100mbit"), scale_validate.burst("100mbit")), (1.25e7, 140000))

    def test_it_is_held_against_hosts_of_this_machine(self):
        """Only that it runs: how near the prediction is depends on who else uses the processors."""
        reason = scale_validate.can_run()
        if reason is not None:
            self.skipTest(reason)
        if not os.path.exists(os.path.join(BUILD, "src", "cddp-train")):
            self.skipTest("cddp-train is not built")
        with tempfile.TemporaryDirectory() as folder:
            numbers = os.path.join(folder, "n.json")
            done = subprocess.run([sys.executable, SCRIPT, "--validate", "--build", BUILD, "--rates", "300mbit", "--hosts", "2",
                                   "--steps", "20", "--json", numbers], capture_output=True, text=True, timeout=240)
            self.assertEqual(done.stderr, "")
            self.assertIn(done.returncode, (0, 1))
            with open(numbers) as file:
                row, = json.load(file)
        self.assertEqual((row["rate"], row["hosts"]), ("300mbit", 2))
        self.assertIn(row["algorithm"], ("exchange", "direct", "doubling", "halving"))
        bound = 2678848 / 37.5e6 - 140000 / 37.5e6  # two hosts send all gradients once, at the link's rate but for its burst
        for key in ("predicted_s", "measured_s"):
            self.assertGreater(row[key], bound)
        self.assertEqual(done.returncode, 0 if abs(row["error"]) < 0.1 else 1)
        self.assertIn("300mbit", done.stdout)

    def test_the_library_is_asked(self):
        bytes_per_s, n = 1.25e9, 64 << 20
        (small, _, small_s), (large, piece, large_s) = scale_model.ask(
            PROGRAM, [(2, 1, 2e-5, bytes_per_s, 8e9, 1024.0, 1024.0), (4, 2, 2e-5, bytes_per_s, 8e9, float(n), float(n))])
        self.assertEqual(small, "exchange")
        self.assertIn(large, ("direct", "halving"))
        self.assertAlmostEqual(small_s, 2e-5 + 1024 / bytes_per_s + 1024 / 8e9)
        self.assertTrue(1.5 * n / bytes_per_s < large_s < 1.05 * 1.5 * n / bytes_per_s and 65536 <= piece < n)
        with self.assertRaisesRegex(scale_model.Wrong, "line 1 is not seven numbers"):
            scale_model.ask(PROGRAM, [(0, 1, 2e-5, bytes_per_s, 8e9, 1.0, 1.0)])
        with self.assertRaisesRegex(scale_model.Wrong, "build it first"):
            scale_model.ask(PROGRAM + "-missing", [])

    def test_16_bit_types_halve_what_is_sent_but_not_partial_sums(self):
        self.assertEqual(scale_model.on_wire((400, "f32", 0), None), (400, 400))
        self.assertEqual(scale_model.on_wire((400, "f32", 0), "bf16"), (200, 400))
        self.assertEqual(scale_model.on_wire((400, "bf16", 0), "f32"), (400, 800))

    def test_the_whole_of_it(self):
        with tempfile.TemporaryDirectory() as folder:
            trace, numbers, svg = (os.path.join(folder, name) for name in ("t.jsonl", "n.json", "p.svg"))
            with open(trace, "w") as file:
                file.write("\n".join(TRACE))
            with contextlib.redirect_stdout(io.StringIO()) as out:
                scale_model.main([trace, "--build", BUILD, "--json", numbers, "--svg", svg, "--ranks-per-host", "4"])
            with open(numbers) as file:
                rows = json.load(file)
            self.assertEqual(len(rows), 3 * 15)
            self.assertEqual(len(out.getvalue().splitlines()), 1 + len(rows))
            by = {(row["gbit_per_s"], row["ranks"]): row for row in rows}
            self.assertEqual(by[10, 1]["exposed_s"], 0)
            self.assertEqual(by[10, 16384]["hosts"], 4096)
            for ranks in (8, 512, 16384):
                self.assertTrue(by[10, ranks]["exposed_s"] > by[100, ranks]["exposed_s"] > by[400, ranks]["exposed_s"])
            self.assertEqual(xml.etree.ElementTree.parse(svg).getroot().tag, "{http://www.w3.org/2000/svg}svg")


if __name__ == "__main__":
    unittest.main(verbosity=2)
