"""Builds cddp_torch. Where cddp is: $CDDP_INCLUDE_DIR and $CDDP_LIB_DIR, else what pkg-config says."""
import os
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
setup(name="cddp_torch", version="0.1.0", packages=["cddp_torch"], install_requires=[built_for], cmdclass={"build_ext": BuildExtension},
      ext_modules=[CppExtension("cddp_torch._C", [os.path.join("csrc", name) for name in SOURCES],
                                include_dirs=[include_dir], library_dirs=[lib_dir],
                                runtime_library_dirs=[lib_dir], libraries=["cddp"],
                                extra_compile_args=["-std=c++20", "-O1", "-g0", "-fvisibility=hidden"])])
