# SPDX-License-Identifier: MIT
try:  # Spack 1.0 and later
    from spack_repo.builtin.build_systems.cuda import CudaPackage
    from spack_repo.builtin.build_systems.meson import MesonPackage
except ImportError:  # before, spack.package had them
    pass

from spack.package import *


class Cddp(MesonPackage, CudaPackage):
    """Data-parallel training in C, one process per device: a library for trainers in C, C++ and
    CUDA, a launcher, and a trainer for what a configuration file describes."""

    homepage = "@HOMEPAGE@"
    url = "@URL@"

    license("MIT")

    version("@VERSION@", sha256="@SHA256@")

    variant("tools", default=True, description="cddp-train, cddp-convert, cddp-tokenize and cddp-report")
    variant("images", default=True, when="+tools", description="JPEG and PNG files as data")
    variant("hwloc", default=True, description="What the machine looks like, in cddp-run --check")
    variant("mpi", default=False, description="The module that sends by MPI between machines")
    variant("nccl", default=True, when="+cuda", description="NCCL between GPUs")

    depends_on("c", type="build")
    depends_on("cxx", type="build", when="+cuda")
    depends_on("meson@1.0.1:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("jansson@2.13:")
    depends_on("libsodium")
    depends_on("hwloc@2:", when="+hwloc")
    depends_on("mpi", when="+mpi")
    with when("+tools"):
        depends_on("onednn@2:3")
        depends_on("libconfig")
        depends_on("libdeflate")
        depends_on("utf8proc+shared")
        depends_on("openblas", when="target=aarch64:")
    with when("+images"):
        depends_on("libjpeg-turbo")
        depends_on("libpng@1.6:")
    depends_on("cuda@12:", when="+cuda")
    depends_on("nccl", when="+nccl", type=("build", "run"))  # opened at run time
    conflicts("platform=darwin")
    conflicts("platform=windows")

    def meson_args(self):
        def feature(name, variant_name=None):
            wanted = self.spec.satisfies("+" + (variant_name or name))
            return "-D{0}={1}".format(name, "enabled" if wanted else "disabled")

        # Spack has no scdoc, which the manual pages need.
        args = ["-Ddocs=disabled", "-Dtests=disabled"]
        args += [feature(name) for name in ("tools", "hwloc", "mpi", "cuda")]
        args += [feature("jpeg", "images"), feature("png", "images")]
        if self.spec.satisfies("+cuda"):
            arch = [value for value in self.spec.variants["cuda_arch"].value if value != "none"]
            if arch:
                args.append("-Dgpu_arch=" + ",".join(arch))
        return args

    def setup_build_environment(self, env):
        if self.spec.satisfies("+cuda"):
            env.set("CUDA_HOME", self.spec["cuda"].prefix)

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def two_ranks_measure_collectives(self):
        bench = Executable(self.prefix.bin.join("cddp-bench"))
        bench("--nproc", "2", "all_reduce", "--max", "4K", "--check")
