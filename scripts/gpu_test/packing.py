"""packing - builds what is run, and packs it for machines that cannot build."""
import glob, os, re, shutil, subprocess, sys, tarfile, tempfile

from .machine import EMULATED, ROOT, say
from .text import TEXTS

PACK = "cddp-gpu.tar.gz"
MODULE = "src/runtime/device/cuda/libcddp-cuda.so"
PROGRAMS = ("src/cddp-train", "src/cddp-bench", "launcher/cddp-run", "examples/embed_cuda_alone",
            "examples/embed_cuda_trainer")
BENCHES = ("bench_cuda", "bench_cuda_param")
GPU_TESTS = re.compile(r"test_(\w*cuda\w*|\w*device\w*|transports|transport_\w+|train_(graphs|copies|fp16|profile)|"
                       r"group_stream|launcher_gpu|prefetcher)$")
MOST_BYTES = 64 << 20


def build(folder):
    if not os.path.exists(os.path.join(folder, "build.ninja")):
        subprocess.run(["meson", "setup", folder, "--buildtype=release", "-Dcuda=enabled", "-Dgpu_arch=90",
                        "-Ddocs=disabled"], cwd=ROOT, check=True, stdout=sys.stderr)
    known = subprocess.run(["ninja", "-C", folder, "-t", "targets", "all"], check=True, capture_output=True,
                           text=True).stdout
    names = {line.split(":")[0] for line in known.splitlines()}
    wanted = [name for name in (*PROGRAMS, MODULE, *(f"tests/{bench}" for bench in BENCHES)) if name in names]
    wanted += sorted(name for name in names if os.path.dirname(name) == "tests" and GPU_TESTS.match(name[6:]))
    subprocess.run(["ninja", "-C", folder, *wanted], check=True, stdout=sys.stderr)
    return wanted


def libraries_of(files):
    """What the loader takes for them, but glibc's and the loader itself."""
    glibc = re.compile(r"(ld-linux|libc\.|libm\.|libdl\.|libpthread\.|librt\.|libresolv\.|libutil\.|libanl\.)")
    found = {}
    for file in files:
        out = subprocess.run(["ldd", file], check=True, capture_output=True, text=True).stdout
        for name, path in re.findall(r"^\s*(\S+) => (/\S+)", out, re.M):
            if not glibc.match(name):
                found[name] = path
    return found


def own_files():
    """What is packed of the repository besides what is built."""
    names = ["scripts/gpu-test", "examples/gpt2_124m.conf", "examples/resnet50.conf", *TEXTS]
    for pattern in ("scripts/gpu_test/*.py", "scripts/peers/*cuda*.py"):
        names += sorted(os.path.relpath(path, ROOT) for path in glob.glob(f"{ROOT}/{pattern}"))
    return names


def stage_files(stage, built, wanted):
    """Put all of it below @stage, as it lies in the repository and its build folder."""
    for name in wanted:
        to = os.path.join(stage, "build", name)
        os.makedirs(os.path.dirname(to), exist_ok=True)
        subprocess.run(["strip", "-o", to, os.path.join(built, name)], check=True)
    for name, path in libraries_of(os.path.join(built, name) for name in wanted).items():
        # the C++ runtime apart: only for a machine without one
        to = os.path.join(stage, "build", "lib-cxx" if re.match(r"libstdc\+\+|libgcc_s", name) else "lib")
        os.makedirs(to, exist_ok=True)
        shutil.copy(path, os.path.join(to, name))
    for name in own_files():
        os.makedirs(os.path.dirname(os.path.join(stage, name)), exist_ok=True)
        shutil.copy(os.path.join(ROOT, name), os.path.join(stage, name))
    with open(os.path.join(stage, "build", "revision"), "w") as file:
        file.write(revision(ROOT))


def check_stage(stage):
    """Problems of the packed programs on a machine that has glibc and nothing else: by what the loader would take
    for each of them with an empty library path, and by starting two."""
    loader = next(iter(glob.glob("/lib64/ld-linux-x86-64.so.2") + glob.glob("/lib/ld-linux-aarch64.so.1")), None)
    own = ":".join(f"{stage}/build/{name}" for name in ("lib", "lib-cxx"))
    problems = []
    for at, _, names in os.walk(f"{stage}/build"):
        for name in sorted(names):
            path = os.path.join(at, name)
            with open(path, "rb") as file:
                if file.read(4) != b"\x7fELF" or loader is None:
                    continue
            done = subprocess.run([loader, "--inhibit-cache", "--library-path", own, "--list", path],
                                  capture_output=True, text=True, env={"PATH": "/nowhere"})
            problems += foreign(done.stdout + done.stderr, stage, os.path.relpath(path, stage))
    for program, word in (("src/cddp-train", "--version"), ("launcher/cddp-run", "--check")):
        done = subprocess.run([f"{stage}/build/{program}", word], capture_output=True, text=True,
                              env={"PATH": "/nowhere", "LD_LIBRARY_PATH": own}, cwd=stage)
        if done.returncode != 0 or not done.stdout:
            problems.append(f"{program} {word} does not start: status {done.returncode}: {done.stderr.strip()}")
    return problems


GLIBC = re.compile(r"(ld-linux[\w-]*|lib(c|m|dl|pthread|rt|resolv|util|anl))\.so")


def foreign(text, stage, of):
    """Libraries in the loader's list that lie neither below @stage nor belong to glibc."""
    problems = []
    for line in text.splitlines():
        found = re.match(r"\s*(\S+) => (.*?)( \(0x|$)", line)
        if "error while loading" in line or (found and "not found" in line):
            problems.append(f"{of}: {line.strip()}")
        elif found and not found[2].startswith(stage) and not GLIBC.match(os.path.basename(found[1])):
            problems.append(f"{of}: {found[1]} comes from {found[2]}")
    return problems


def write_pack(stage, folder):
    with tarfile.open(os.path.join(folder, PACK), "w:gz", compresslevel=6) as archive:
        for name in sorted(os.listdir(stage)):
            archive.add(os.path.join(stage, name), name)
    with open(os.path.join(folder, "gpu-test"), "w") as file:
        file.write('#!/bin/sh\n# Unpacks what lies beside this and runs it: gpu-test OUT_DIR [--call A] ...\n'
                   'at=$(mktemp -d) && trap \'rm -rf "$at"\' EXIT || exit\n'
                   f'tar -xzf "$(dirname "$0")/{PACK}" -C "$at" || exit\n'
                   'python3 "$at/scripts/gpu-test" --build "$at/build" "$@"\n')
    os.chmod(os.path.join(folder, "gpu-test"), 0o755)


def emulated_files(built):
    """Of a build with tests: what shows, without a GPU, that a pack starts."""
    names = ("src/cddp-train", "launcher/cddp-run", EMULATED, "tests/bench_cuda", "tests/test_cuda_squares",
             "tests/test_cuda_images")
    return [name for name in names if os.path.exists(os.path.join(built, name))]


def pack(folder, built=None, emulated=False):
    """@built: a build folder (None: build-gpu). It is brought up to date, but for one that is emulated."""
    built = built or os.path.join(ROOT, "build-gpu")
    wanted = emulated_files(built) if emulated else build(built)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    with tempfile.TemporaryDirectory() as stage:
        stage_files(stage, built, wanted)
        problems = check_stage(stage)
        if problems:
            raise SystemExit("gpu-test: " + "\n  ".join(problems))
        write_pack(stage, folder)
        unpacked = sum(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(stage) for name in names)
    size = sum(os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder))
    say(f"{folder}: {size / (1 << 20):.1f} MiB, {unpacked / (1 << 20):.1f} MiB unpacked, {len(wanted)} files built")
    if size > MOST_BYTES:
        shutil.rmtree(folder)
        raise SystemExit(f"gpu-test: {folder} would be larger than {MOST_BYTES >> 20} MiB")


def revision(folder):
    if not shutil.which("git"):
        return ""
    out = subprocess.run(["git", "-C", folder, "describe", "--always", "--dirty"], capture_output=True, text=True)
    return out.stdout.strip()


def find_build(given, scratch):
    """A build folder: the given one, the one in a given pack, or a new one."""
    if not given:
        if not shutil.which("meson") or not shutil.which("ninja"):
            raise SystemExit("gpu-test: no meson and ninja here: carry a build (gpu-test --pack DIR) and name it "
                             "by --build")
        build(os.path.join(ROOT, "build-gpu"))
        return os.path.join(ROOT, "build-gpu")
    archive = os.path.join(given, PACK)
    if os.path.exists(archive):
        with tarfile.open(archive) as file:
            file.extractall(scratch, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
        return os.path.join(scratch, "build")
    return os.path.abspath(given)
