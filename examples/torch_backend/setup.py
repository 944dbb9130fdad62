"""Builds cddp_torch. Where cddp is: $CDDP_INCLUDE_DIR and $CDDP_LIB_DIR, else what pkg-config says. $CDDP_RUN names a
cddp-run that the package brings (scripts/wheel); without it, it brings none."""
import os
import shutil
import subprocess

import torch
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCES = ("arrivals.cpp", "backend.cpp", "callbacks.cpp", "module.cpp", "numbers.cpp", "p2p.cpp", "partings.cpp",
           "worker.cpp")


def variable(name):
    return subprocess.run(["pkg-config", "--variable=" + name, "cddp"], check=True, capture_output=True,
                          text=True).stdout.strip()


include_dir = os.environ.get("CDDP_INCLUDE_DIR") or variable("includedir")
lib_dir = os.environ.get("CDDP_LIB_DIR") or variable("libdir")
os.chdir(HERE)
# C++ has no stable interface between two versions of PyTorch: with another one the extension does not load, or crashes
built_for = "torch==" + torch.__version__.split("+")[0]
packages, entry_points = ["cddp_torch"], {"torch.backends": ["cddp = cddp_torch:_autoload"]}
if "CDDP_RUN" in os.environ:
    shutil.copy(os.environ["CDDP_RUN"], os.path.join(HERE, "cddp_run", "cddp-run"))
    packages.append("cddp_run")
    entry_points["console_scripts"] = ["cddp-run = cddp_run:main"]
setup(name="cddp_torch", version="0.2.0", description="PyTorch's DistributedDataParallel on cddp",
      packages=packages, package_data={"cddp_run": ["cddp-run"]}, entry_points=entry_points,
      install_requires=[built_for], cmdclass={"build_ext": BuildExtension},
      ext_modules=[CppExtension("cddp_torch._C", [os.path.join("csrc", name) for name in SOURCES],
                                include_dirs=[include_dir], library_dirs=[lib_dir],
                                runtime_library_dirs=[lib_dir], libraries=["cddp"],
                                extra_compile_args=["-std=c++20", "-O1", "-g0", "-fvisibility=hidden"])])
