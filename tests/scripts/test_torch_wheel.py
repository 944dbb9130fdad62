#!/usr/bin/env python3
"""scripts/wheel and scripts/wheel_check: a wheel is built, and pip installs it in a bare Debian, where ranks train with it.
Skipped (77) without root, debootstrap, or a Python with PyTorch and auditwheel, which $CDDP_TORCH_PYTHON names.
Usage: test_torch_wheel.py SOURCE_ROOT BUILD_ROOT"""
import glob
import os
import subprocess
import sys
import tempfile

SOURCE, BUILD = (os.path.abspath(path) for path in sys.argv[1:3])
SCRIPTS = os.path.join(SOURCE, "scripts")


def skip(why):
    print("skipped: " + why)
    sys.exit(77)


# Before anything is needed: paths are those of the caller's folder.
with tempfile.TemporaryDirectory() as folder:
    with open(os.path.join(folder, "made.whl"), "w", encoding="utf-8"):
        pass
    for wheel, expected in ("made.whl", "there is no no-such-python"), ("none.whl", "none.whl: No such file"):
        said = subprocess.run([os.path.join(SCRIPTS, "wheel_check"), wheel, "--python", "no-such-python"], check=False, cwd=folder,
                              capture_output=True, text=True).stderr
        if expected not in said:
            sys.exit(f"wheel_check {wheel} says: {said}")
python = os.environ.get("CDDP_TORCH_PYTHON") or os.path.join(SOURCE, ".venv-bench", "bin", "python")
if not os.path.exists(python) or subprocess.run([python, "-c", "import auditwheel, setuptools, torch, wheel"], check=False,
                                                capture_output=True).returncode != 0:
    skip(f"{python} is not there, or lacks one of torch, setuptools, wheel, auditwheel; CDDP_TORCH_PYTHON may name one")
if os.geteuid() != 0:
    skip("not root, which alone may chroot")
with tempfile.TemporaryDirectory(dir=BUILD) as folder:
    subprocess.run([os.path.join(SCRIPTS, "wheel"), "--python", python, "--out", folder, "--build",
                    os.path.join(folder, "build")], check=True)
    wheel, = glob.glob(os.path.join(folder, "*.whl"))
    said = subprocess.run(["unshare", "--mount", "--propagation", "private", os.path.join(SCRIPTS, "wheel_check"), wheel, "--python", python,
                           "--root", os.path.join(folder, "root")], check=False)
    sys.exit(said.returncode)
