#!/usr/bin/env python3
"""test_gpu_test - what scripts/gpu-test concludes from the output of programs, without running any of ours."""
import argparse, contextlib, io, json, os, re, stat, sys, tempfile, time, unittest

sys.dont_write_bytecode = True
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
sys.path.insert(0, os.path.join(ROOT, "scripts"))
from gpu_test import bits, main, packing, profile, ranks, scale, smoke, suites, tables, text, training  # noqa: E402
from gpu_test.machine import Failed, Machine, choose_libraries, fallbacks, file_text, library_version  # noqa: E402

STEP = {"loss": 4.0, "grad_norm": 1.0, "step_ms": 10.0, "tokens_per_s": 100.0}
SLOWER = "cddp rank 0 warn: cuDNN: no plan; slower kernels are taken instead"

NCU = '''==PROF== Connected to process 12
"ID","Process ID","Kernel Name","thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg",\
"dram__bytes.sum","gpu__time_duration.sum"
"","","","","Mbyte","usecond"
"0","12","gelu_kernel","""<default domain>:c_fc:none:none:none:none:none""","2,000","1,000"
"1","12","gelu_kernel","""<default domain>:c_fc:none:none:none:none:none""","2,000","1,000"
"2","12","norm_kernel","","100","500"
'''


class FakeRuns(unittest.TestCase):
    """A build folder whose programs are shell scripts."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.at = folder.name
        for name in ("launcher", "src", "tests", "out", "scratch"):
            os.mkdir(f"{self.at}/{name}")
        self.program("src/cddp-train", "echo 1")
        self.machine = self.make(["--emulated"])
        self.machine.save = lambda: None

    def program(self, name, text):
        with open(f"{self.at}/{name}", "w") as file:
            file.write(f"#!/bin/sh\n{text}\n")
        os.chmod(f"{self.at}/{name}", os.stat(f"{self.at}/{name}").st_mode | stat.S_IXUSR)

    def make(self, words):
        a = argparse.Namespace(emulated="--emulated" in words, limit=100, python=sys.executable, tests=None,
                               mixed_libraries=True)
        return Machine(a, self.at, f"{self.at}/scratch")

    def launcher(self, said):
        """A cddp-run that leaves metrics of two reports and says @said."""
        lines = "".join(json.dumps({"step": step, **STEP}) + "\n" for step in (1, 8))
        self.program("launcher/cddp-run", "while [ $# -gt 0 ]; do [ \"$1\" = --run-dir ] && at=$2; shift; done\n"
                     f"cat > \"$at/metrics.jsonl\" <<'END'\n{lines}END\necho '{said}'")

    def test_a_run_that_took_something_slower_is_a_failed_row(self):
        self.launcher("all was well")
        self.assertEqual(training.train(self.machine, None, "gpt2_124m", [])["step_ms"], 10)
        self.launcher(SLOWER)
        with self.assertRaisesRegex(Failed, r"not what was to be measured: .*slower kernels.*\(10.00 ms a step"):
            training.train(self.machine, None, "gpt2_124m", [])
        part = {}
        ranks.run_ranks(self.machine, io.StringIO(), part)
        self.assertEqual(part["rows"], {})
        self.assertEqual(len([text for text in part["failed"] if "slower kernels" in text]), len(ranks.SHARED))
        self.assertIn("slower kernels", "\n".join(tables.ranks(part)))

    def test_runs_that_differ_in_one_bit_are_told(self):
        self.launcher("all was well")
        part = {}
        bits.run_bits(self.machine, io.StringIO(), part)
        self.assertEqual((part["failed"], part["rows"]["resnet50"]["same"]), ([], True))
        self.assertIn("| resnet50 | 2 | the same bits |", "\n".join(tables.bits(part)))
        launcher = f"{self.at}/launcher/cddp-run"
        with open(launcher, "a") as file:  # each run has a loss of its own
            file.write(f"echo >> {self.at}/runs\nsed -i \"s/\\\"loss\\\": 4.0/\\\"loss\\\": 4.$(wc -l < {self.at}/runs)/\" "
                       "\"$at/metrics.jsonl\"\n")
        bits.run_bits(self.machine, io.StringIO(), part)
        self.assertEqual(len(part["failed"]), 2)
        self.assertIn("| resnet50 | 2 | DIFFER |", "\n".join(tables.bits(part)))

    def test_several_gpus_that_differ_from_one_are_told(self):
        """Ranks whose sums have other bits, wrong elements, and a job that does not end."""
        right = {"losses": [4.0, 3.0], "grad_norms": [1.0, 1.0]}

        def losses(_machine, _log, _device, _graph, _precision, _env, count=1, more=()):
            return right if count == 1 else {"losses": [4.0, 3.0 + 1e-6], "grad_norms": [1.0, 1.0 + 1e-7]}

        def bench(_machine, _log, _ranks, _env, backend, collective, _words, _deadline):
            wrong = 3 if (backend, collective) == ("ipc", "all_gather") else 0
            return [{"bytes": 8, "median_us": 1.0, "busbw_gb_per_s": 2.0, "wrong": wrong}]

        def one(_machine, _log, _ranks, kind, _env):
            return {"problem": "hangs" if kind == "stands still" else "", "seconds": 1.0}

        self.launcher("all was well")
        whole = scale.losses, scale.bench, scale.disturb.one
        scale.losses, scale.bench, scale.disturb.one = losses, bench, one
        part = {}
        try:
            scale.run_scale(self.machine, io.StringIO(), part)
        finally:
            scale.losses, scale.bench, scale.disturb.one = whole
        text = "\n".join(part["failed"])
        self.assertEqual(text.count("not the bits of one GPU"), 2)
        self.assertIn("ipc all_gather: 3 wrong elements in 1 sizes\na rank stands still: hangs", text)
        self.assertEqual(len(part["failed"]), 4)
        self.assertEqual(len(part["speed"]), 6)
        table = "\n".join(tables.scale(part))
        self.assertIn("| 2 ranks, shard true, graph never, deterministic false | 3.3e-07 | 1.0e-07 |", table)
        self.assertIn("| 2 ranks, shard false, graph auto, deterministic false | 100 | 10.00 | - | - | 50.0 % |", table)
        self.assertIn("a rank killed: as it should, 1.0 s", table)

    def test_one_gpu_has_ranks_that_share_it_where_nccl_allows(self):
        self.machine.emulated, seen = False, []
        self.machine.env["CDDP_TEST_GPU"] = "1"
        whole, scale.ON_ONE_GPU = scale.ON_ONE_GPU, (lambda _machine, _log, _part, ranks, env: seen.append((ranks, env)),)
        try:
            for version in ("2.28.9", "2.30.3"):
                part = {}
                self.program("launcher/cddp-run", f"echo CUDA; echo '  NCCL     {version}'")
                scale.run_scale(self.machine, io.StringIO(), part)
                self.assertEqual((len(seen), part["failed"]), (int(version == "2.30.3"), []))
                self.assertIn("2 ranks on 1 GPU" if seen else "nothing to compare", tables.scale(part)[0])
        finally:
            scale.ON_ONE_GPU = whole
        self.assertEqual(seen, [(2, {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "CDDP_BACKEND": "nccl"})])

    def test_only_the_emulated_modules_lack_of_cudnn_is_no_fallback(self):
        line = "libcudnn.so cannot be opened: the emulated module has none; slower kernels are taken instead"
        self.assertEqual(fallbacks(line, emulated=True), [])
        self.assertEqual(len(fallbacks(line)), 1)
        self.assertEqual(len(fallbacks(SLOWER, emulated=True)), 1)
        self.assertEqual(len(fallbacks("cddp rank 0 warn: CUDA graphs are not used: they cannot be captured: x")), 1)
        self.assertEqual(fallbacks("step 8/40  loss 4.1  1000 tokens/s"), [])

    def test_nothing_large_is_written_and_reports_are_rare_in_a_measured_run(self):
        self.assertIn("train.checkpoint_at_end=false", training.MEASURED)
        steps = next(int(word.split("=")[1]) for word in training.MEASURED if word.startswith("train.log_steps"))
        self.assertGreaterEqual(steps, 8)

    def test_what_a_part_has_found_is_on_disk_before_it_ends(self):
        results = main.Results(f"{self.at}/out", self.machine, {"gpu": "a card"})
        self.machine.save = results.save
        seen = []

        def ends_badly(machine, log, part):
            part |= {"rows": [{"op": "copy", "shape": "1", "type": "bf16", "us": 1.0, "gbs": 2.0}], "failed": []}
            log.write("a line\n")
            machine.save()
            seen.append((file_text(f"{self.at}/out/table.txt"), file_text(f"{self.at}/out/ops.txt")))
            raise Failed("cut off")

        whole, main.RUN = main.RUN, {**main.RUN, "ops": ends_badly, "gpt2": lambda machine, log, part: part.update(
            {"failed": [], "torch": None})}
        try:
            main.run_part(self.machine, results, "ops", ("gpt2",))
            main.run_part(self.machine, results, "gpt2", ())
        finally:
            main.RUN = whole
        self.assertIn("| copy | 1 |", seen[0][0])
        self.assertEqual(seen[0][1], "a line\n")
        self.assertEqual(results.problems(), ["ops: Failed: cut off"])
        with open(f"{self.at}/out/results.json") as file:
            self.assertEqual(sorted(json.load(file)["parts"]), ["gpt2", "ops"])

    def test_a_part_leaves_the_later_ones_their_seconds(self):
        self.machine.emulated, self.machine.end = False, time.monotonic() + main.LIMIT
        results, left = main.Results(f"{self.at}/out", self.machine, {}), []
        self.machine.save = results.save
        whole, main.RUN = main.RUN, {**main.RUN, "smoke": lambda machine, log, part: left.append(machine.left())}
        try:
            main.run_part(self.machine, results, "smoke", main.CALLS["A"][1:])
        finally:
            main.RUN = whole
        self.assertLessEqual(left[0], main.LIMIT - main.SECONDS["single"] - main.SECONDS["profile"])
        for parts in main.CALLS.values():
            self.assertLessEqual(sum(main.SECONDS[part] for part in parts), main.LIMIT)
        self.assertLessEqual(main.LIMIT, 8.5 * 60)

    def test_ncu_looks_at_one_step_and_its_refusal_is_told(self):
        self.program("ncu", "echo \"$@\" > said\nwhile [ \"$1\" != --log-file ]; do shift; done\n"
                     f"cat > \"$2\" <<'END'\n{NCU}END")
        whole, profile.find_tool = profile.find_tool, lambda name: f"{self.at}/{name}"
        try:
            found = profile.ncu_run(self.machine, io.StringIO(), {"bytes_per_s": 4e12}, 60)
            self.program("ncu", "echo '==ERROR== ERR_NVGPUCTRPERM'; exit 1")
            os.remove(f"{self.at}/scratch/ncu.csv")
            refused = profile.ncu_run(self.machine, io.StringIO(), {"bytes_per_s": 4e12}, 60)
        finally:
            profile.find_tool = whole
        self.assertEqual([row["kernel"] for row in found["rows"]], ["gelu_kernel", "norm_kernel"])
        self.assertIn("--clock-control none --profile-from-start off", file_text(f"{self.at}/scratch/said"))
        self.assertEqual(refused, {"refused": "ERR_NVGPUCTRPERM"})

    def test_a_program_that_hangs_is_ended_with_its_children(self):
        self.program("tests/test_cuda_hangs", "sleep 1000 & sleep 1000")
        row, _ = suites.one_test(self.machine, "test_cuda_hangs", 1.5)
        self.assertEqual((row["result"], row["status"]), ("too slow", 124))


class Conclusions(unittest.TestCase):
    def test_libraries_come_from_one_place(self):
        system = {"libcublasLt.so.13": "/usr/a", "libcudnn.so.9": "/usr/b", "libnccl.so.2": "/usr/c"}
        wheels = {name: "/wheels" + path for name, path in system.items()}
        self.assertEqual(choose_libraries(system, wheels), ("the system", system))
        part = {"libnccl.so.2": "/usr/c"}
        self.assertEqual(choose_libraries(part, wheels), ("the wheels", wheels))
        del wheels["libcudnn.so.9"]
        with self.assertRaisesRegex(Failed, "no set from one place"):
            choose_libraries(part, wheels)
        place, found = choose_libraries(part, wheels, mixed=True)
        self.assertEqual((place, found["libnccl.so.2"]), ("mixed", "/usr/c"))
        self.assertRegex(choose_libraries(part, {})[0], "incomplete, without libcublasLt.so.13, libcudnn.so.9")

    def test_a_version_is_read_off_the_file(self):
        with tempfile.TemporaryDirectory() as at:
            open(f"{at}/libcudnn.so.9.19.0", "w").close()
            os.symlink("libcudnn.so.9.19.0", f"{at}/libcudnn.so.9")
            self.assertEqual(library_version(f"{at}/libcudnn.so.9"), "9.19.0")

    def test_the_profile_begins_with_what_loses_most(self):
        card = {"bytes_per_s": 1e12, "flops_per_s": 1e14}
        lines = [{"steps": 2, "step_us": 1000.0, "missed": 0},
                 {"op": "good", "shape": "", "calls": 4, "us": 100.0, "total_us": 400.0, "bytes": 9e7,
                  "flops": 0, "pass_bytes": 0},
                 {"op": "bad", "shape": "", "calls": 8, "us": 50.0, "total_us": 400.0, "bytes": 1e6,
                  "flops": 1e9, "pass_bytes": 5e6}]
        found = profile.weigh(lines, 2, card)
        self.assertEqual([row["op"] for row in found["rows"]], ["bad", "good"])
        bad, good = found["rows"]
        self.assertAlmostEqual(bad["of_ceiling"], (1e9 / 1e14 + 5e6 / 1e12) / 50e-6)
        self.assertAlmostEqual(bad["lost_ms"], 2 * (0.050 - 0.015))
        self.assertAlmostEqual(good["of_ceiling"], 0.9)
        self.assertAlmostEqual(found["kernels_ms"], 0.2)
        self.assertAlmostEqual(found["between_ms"], 0.3)
        lines[0]["missed"] = 3
        with self.assertRaisesRegex(Failed, "misses 3 calls"):
            profile.weigh(lines, 2, card)

    def test_ncu_is_read_and_its_refusal_told(self):
        text = NCU
        rows = profile.ncu_rows(text, {"bytes_per_s": 4e12})
        self.assertEqual([(row["kernel"], row["calls"]) for row in rows], [("gelu_kernel", 2), ("norm_kernel", 1)])
        self.assertAlmostEqual(rows[0]["ms"], 2)
        self.assertAlmostEqual(rows[0]["of_memory"], 0.5)
        with self.assertRaisesRegex(Failed, "no kernels"):
            profile.ncu_rows("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n", {})

    def test_losses_that_differ_or_are_no_numbers_fail_the_smoke(self):
        def row(loss, norm=1.0):
            return {"losses": [4.0, loss], "grad_norms": [1.0, norm]}

        good = {"always": row(3.0), "never": row(3.001), "ipc x2": row(3.02), "cpu f32": row(3.01)}
        self.assertTrue(smoke.side_by_side(good)["ok"])
        for name, wrong in (("always", row(3.2)), ("never", row(float("nan"))), ("ipc x2", row(3.01, 1.2)),
                            ("always", row(3.03)), ("cpu f32", {"ok": False, "why": "it did not run"})):
            self.assertFalse(smoke.side_by_side({**good, name: wrong})["ok"], (name, wrong))

    def test_sixteen_bits_that_learn_something_else_fail_the_text(self):
        rows = {name: {"loss": [5.0, 4.0], "grad_norm": [1.0, 2.0]} for name in ("f32", "bf16", "fp16")}
        self.assertEqual(text.compare(rows)[1], [])
        for what, values in (("loss", [5.0, 4.1]), ("loss", [5.0, float("nan")]), ("grad_norm", [1.1, 2.2])):
            apart, bad = text.compare({**rows, "bf16": {**rows["bf16"], what: values}})
            self.assertEqual(len(bad), 1, (what, values, apart))
            self.assertIn(f"bf16: {what} is", bad[0])
        self.assertIn("fp16 has nothing", text.compare({"f32": rows["f32"], "bf16": rows["bf16"]})[1][0])

    def test_ci_runs_every_call_and_the_calls_every_part(self):
        build = file_text(os.path.join(ROOT, "tests/meson.build"))
        calls = re.search(r"foreach call : \[([^\]]*)\]\n\s*test\('gpu_test_' \+ call", build)
        self.assertEqual(re.findall(r"'(\w)'", calls[1]), list(main.CALLS))
        self.assertEqual(sorted(main.PARTS), sorted(main.RUN))
        self.assertEqual(sorted(main.PARTS), sorted(tables.TABLE))
        self.assertEqual(sorted(main.PARTS), sorted(main.SECONDS))

    def test_a_sanitizer_that_is_refused_says_nothing_of_us(self):
        self.assertIsNone(smoke.sanitizer_row(1, "Error: Device not supported")["ok"])
        self.assertTrue(smoke.sanitizer_row(0, "========= ERROR SUMMARY: 0 errors")["ok"])
        self.assertFalse(smoke.sanitizer_row(0, "========= ERROR SUMMARY: 2 errors")["ok"])

    def test_programs_that_need_the_building_machines_libraries_are_found(self):
        listed = ("\tlibconfig.so.9 => /usr/lib/libconfig.so.9 (0x1)\n\tlibm.so.6 => /lib/libm.so.6 (0x1)\n"
                  "\tlibjansson.so.4 => /stage/build/lib/libjansson.so.4 (0x1)\n\tlibz.so.1 => not found\n")
        self.assertEqual(packing.foreign(listed, "/stage", "a"),
                         ["a: libconfig.so.9 comes from /usr/lib/libconfig.so.9", "a: libz.so.1 => not found"])

    def test_calls_and_parts_are_chosen_in_order(self):
        parser = argparse.ArgumentParser()

        def chosen(call, only):
            return main.chosen(argparse.Namespace(call=call, only=only), parser)

        self.assertEqual(chosen(None, None), list(main.PARTS))
        self.assertEqual(chosen("B", None), ["ops", "gpt2"])
        self.assertEqual(chosen(None, "multi,smoke"), ["smoke", "multi"])
        self.assertEqual(chosen(None, "tests"), ["single", "multi"])
        with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(SystemExit):
            chosen(None, "everything")


if __name__ == "__main__":
    unittest.main()
