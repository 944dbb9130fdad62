"""PyTorch's own tests of a backend of torch.distributed (DistributedTest of its wheel), run with this one.

    python tests/scripts/torch_c10d.py [--backend cddp|gloo] [--ranks N] [NAME_PART...]

Prints a line for each test, then how many passed, were skipped (by PyTorch, which says why: no GPU, for other backends ...) and
failed. Needs PyTorch with its test modules (pip install torch numpy expecttest hypothesis) and cddp_torch."""
import argparse
import os
import sys
import tempfile
import unittest

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--backend", default="cddp")
parser.add_argument("--ranks", type=int, default=3)
parser.add_argument("names", nargs="*", help="only tests whose name has one of these in it")
options = parser.parse_args()
os.environ.update(BACKEND=options.backend, WORLD_SIZE=str(options.ranks), TEMP_DIR=tempfile.mkdtemp(), OMP_NUM_THREADS="1")

import torch  # noqa: E402: which reads the environment
from torch.testing._internal import common_distributed  # noqa: E402

import cddp_torch  # noqa: E402,F401

if options.backend == "cddp":  # what PyTorch's table says of gloo, but for GPUs
    common_distributed.DistTestCases.backend_feature["ddp"].add("cddp")
    common_distributed.DistTestCases.backend_feature["subgroup"].add("cddp")
from torch.testing._internal.distributed import distributed_test  # noqa: E402


class Tests(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    """Each test in as many processes as ranks."""

    def setUp(self):
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)  # which need not import PyTorch again


class Lines(unittest.TextTestResult):
    """A line for each test: its result, and why."""

    def addSuccess(self, test):
        unittest.TestResult.addSuccess(self, test)
        print("passed ", test._testMethodName, flush=True)

    def addSkip(self, test, reason):
        unittest.TestResult.addSkip(self, test, reason)
        print("skipped", test._testMethodName, reason.splitlines()[0], flush=True)

    def addError(self, test, err):
        unittest.TestResult.addError(self, test, err)
        print("failed ", test._testMethodName, str(err[1]).strip().splitlines()[-1:], flush=True)

    addFailure = addError


suite = unittest.TestSuite(test for test in unittest.defaultTestLoader.loadTestsFromTestCase(Tests)
                           if not options.names or any(part in test._testMethodName for part in options.names))
result = Lines(sys.stderr, False, 0)
suite.run(result)
failed = len(result.errors) + len(result.failures)
print(f"PyTorch {torch.__version__}, {options.backend}, {options.ranks} ranks: {result.testsRun - failed - len(result.skipped)} passed, "
      f"{len(result.skipped)} skipped, {failed} failed")
sys.exit(1 if failed else 0)
