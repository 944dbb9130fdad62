#!/usr/bin/env python3
"""test_same_bits - scripts/same-bits finds equal bits where they are promised, and others where they are not. Usage: test_same_bits.py BUILD"""
import os, re, subprocess, sys, tempfile, unittest

BUILD = os.path.abspath(sys.argv[1])
SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../scripts/same-bits")
CONF = """data = { type = "synthetic"; samples = 40; image = [1, 8, 8]; classes = 4; };
model = { hidden = [16]; dropout = 0.2; };
train = { batch_size = 12; eval_batch_size = 4; };
"""


class SameBits(unittest.TestCase):
    def run_script(self, *words, folder=None):
        return subprocess.run([SCRIPT, "--build", BUILD, *words], cwd=folder, capture_output=True, text=True, timeout=600, check=False)

    def in_folder(self, *words):
        with tempfile.TemporaryDirectory() as folder:
            with open(f"{folder}/small.conf", "w", encoding="utf-8") as file:
                file.write(CONF)
            done = self.run_script("small.conf", *words, folder=folder)
            self.assertEqual(os.listdir(folder), ["small.conf"])
        return done, re.findall(r"^(\S.*): +([0-9a-f]{64})  ", done.stdout, re.M)

    def test_its_example_has_the_same_bits(self):
        done = self.run_script("1", "3", "train.max_steps=6")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("\nequal: 3 runs of 6 steps have the same bits\n", done.stdout)

    def test_a_configuration_with_micro_batches(self):
        done, rows = self.in_folder("1", "2", "5", "train.micro_batch=2")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual([name for name, _ in rows], ["1 rank", "2 ranks", "5 ranks", "2, then 5, then 5"])
        self.assertEqual(len({value for _, value in rows}), 1)

    def test_a_configuration_without(self):
        done, rows = self.in_folder("1", "3")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertGreater(len({value for _, value in rows}), 1)
        self.assertIn("not equal: train.micro_batch is not set in small.conf\n", done.stdout)

    def test_a_run_that_fails(self):
        done, _ = self.in_folder("1", "3", "train.micro_batch=6")
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertIn("use at most 2", done.stderr)
        self.assertEqual(self.run_script("--no-such-option").returncode, 2)
        self.assertEqual(self.run_script("0").returncode, 2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
