#!/usr/bin/env python3
"""test_chaos - scripts/chaos detects the violations that it looks for. Usage: test_chaos.py BUILD_FOLDER"""
import argparse, importlib.machinery, importlib.util, os, shutil, subprocess, sys, unittest

sys.dont_write_bytecode = True
SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../scripts/chaos")
loader = importlib.machinery.SourceFileLoader("chaos", SCRIPT)
chaos = importlib.util.module_from_spec(importlib.util.spec_from_loader("chaos", loader))
loader.exec_module(chaos)
LAST = f"checkpoints/step-{chaos.STEPS:08}"


class Noticed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.chaos = chaos.Chaos(argparse.Namespace(build=sys.argv[1], limit=300, kinds=None, seed=1))
        cls.chaos.run_through(cls.chaos.new_folder("whole"))

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.chaos.folder)

    def setUp(self):
        self.folder = f"{self.chaos.folder}/{self.id()}"
        shutil.copytree(f"{self.chaos.folder}/whole", self.folder)

    def change(self, name, change):
        path = f"{self.folder}/run/{name}"
        with open(path, "rb") as file:
            data = file.read()
        with open(path, "wb") as file:
            file.write(change(data))

    def is_refused(self, part):
        with self.assertRaisesRegex(chaos.Failed, part):
            self.chaos.compare(self.folder, [])

    def test_the_same_run_passes(self):
        self.chaos.compare(self.folder, [])

    def test_a_changed_bit_of_each_file(self):
        for name in ("model.safetensors", "optimizer.safetensors", "state.json"):
            self.change(f"{LAST}/{name}", lambda data: data[:-1] + bytes([data[-1] ^ 1]))
            self.is_refused(name)
            self.change(f"{LAST}/{name}", lambda data: data[:-1] + bytes([data[-1] ^ 1]))
        self.chaos.compare(self.folder, [])

    def test_a_file_too_many(self):
        for name in (".latest.tmp-7", f"{LAST}/more", "checkpoints/.latest.tmp-7"):
            with open(f"{self.folder}/run/{name}", "wb"):
                pass
            self.is_refused("one side only")
            os.unlink(f"{self.folder}/run/{name}")

    def test_a_checkpoint_that_is_not_finished(self):
        os.mkdir(f"{self.folder}/run/checkpoints/.step-00000007.tmp-7")
        self.is_refused("no checkpoint")

    def test_a_file_too_few(self):
        os.unlink(f"{self.folder}/run/train.conf")
        self.is_refused("train.conf")

    def test_another_loss(self):
        self.change("metrics.jsonl", lambda data: data.replace(b'"loss":', b'"loss":1', 1))
        self.is_refused("step 1")

    def test_a_step_that_is_missing(self):
        self.change("metrics.jsonl", lambda data: b"".join(line for line in data.splitlines(True)
                                                           if not line.startswith(b'{"step":77,')))
        self.is_refused("steps are missing")
        self.chaos.compare(self.folder, ["full disk at step 70 (0)"])

    def ended_job(self):
        job = chaos.Job(self.chaos, self.folder)
        self.assertEqual(job.end(), 0)
        return job

    def test_a_process_that_is_left(self):
        job = self.ended_job()
        name, value = job.mark.split("=")
        with subprocess.Popen(["sleep", "1000"], env={**os.environ, name: value}):
            job.deadline = 0
            with self.assertRaisesRegex(chaos.Failed, "sleep 1000"):
                job.end()  # and it is killed

    def test_a_temporary_file_that_is_left(self):
        job = self.ended_job()
        os.mkdir(f"{job.tmp}/left")
        with self.assertRaisesRegex(chaos.Failed, "left in .TMPDIR"):
            job.end()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
