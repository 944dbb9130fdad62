"""examples/torch_backend: it builds, an unchanged DDP script has the losses of gloo on 2 and 3 ranks, every collective gives
the right result (torch_backend_rank.py), and a program may end while there is work (torch_backend_exit.py). Skipped (77)
without PyTorch: $CDDP_TORCH_PYTHON names an interpreter that has it; the default is that of .venv-bench.
Usage: test_torch_backend.py SOURCE_ROOT BUILD_ROOT"""
import os
import subprocess
import sys

from ports import free_port

SOURCE, BUILD = (os.path.abspath(path) for path in sys.argv[1:3])
SCRIPTS = os.path.join(SOURCE, "tests", "scripts")
LIMIT_S = 800


def skip(why):
    print("skipped: " + why)
    sys.exit(77)


def interpreter():
    python = os.environ.get("CDDP_TORCH_PYTHON") or os.path.join(SOURCE, ".venv-bench", "bin", "python")
    if not os.path.exists(python):
        skip(f"there is no {python}; CDDP_TORCH_PYTHON may name a Python that has PyTorch")
    if subprocess.run([python, "-c", "import torch.distributed, torch.utils.cpp_extension, setuptools"],
                      check=False, capture_output=True).returncode != 0:
        skip(f"{python} has no PyTorch, or no setuptools to build an extension with")
    return python


def build(python, where):
    environment = dict(os.environ, CDDP_INCLUDE_DIR=os.path.join(SOURCE, "include"),
                       CDDP_LIB_DIR=os.path.join(BUILD, "src"),
                       PATH=os.path.dirname(python) + os.pathsep + os.environ["PATH"])
    setup = os.path.join(SOURCE, "examples", "torch_backend", "setup.py")
    said = subprocess.run([python, setup, "build", "--build-base", os.path.join(where, "temp"), "--build-lib", where],
                          check=False, capture_output=True, text=True, env=environment)
    if said.returncode != 0:
        sys.exit("the extension does not build:\n" + said.stdout[-4000:] + said.stderr[-4000:])


def check_requirement(python, where):
    """Its metadata want the PyTorch that it was built with."""
    setup = os.path.join(SOURCE, "examples", "torch_backend", "setup.py")
    environment = dict(os.environ, CDDP_INCLUDE_DIR=SOURCE, CDDP_LIB_DIR=BUILD)
    subprocess.run([python, setup, "-q", "egg_info", "--egg-base", where], check=True, capture_output=True, env=environment)
    version = subprocess.run([python, "-c", "import torch; print(torch.__version__)"], check=True, capture_output=True,
                             text=True).stdout.strip()
    with open(os.path.join(where, "cddp_torch.egg-info", "requires.txt"), encoding="utf-8") as file:
        wanted = file.read().split()
    if wanted != ["torch==" + version.split("+")[0]]:
        sys.exit(f"built with PyTorch {version}, it requires {wanted}")


def run_ranks(python, where, words, size, hosts):
    """What each rank of the script and its arguments said."""
    port = free_port()
    ranks = []
    for rank in range(size):
        environment = dict(os.environ, PYTHONPATH=where, RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank),
                           MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        if hosts > 1:
            environment["CDDP_HOST_ID"] = f"test host {rank % hosts}"
        ranks.append(subprocess.Popen([python, os.path.join(SCRIPTS, words[0]), *words[1:]], stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, text=True, env=environment))
    out = []
    try:
        for one in ranks:
            out.append(one.communicate(timeout=LIMIT_S)[0])
    except subprocess.TimeoutExpired:
        sys.exit(f"{words} with {size} ranks did not end within {LIMIT_S} s")
    finally:
        for one in ranks:
            one.kill()
    if any(one.returncode != 0 for one in ranks):
        sys.exit(f"{words} with {size} ranks failed:\n" + "\n".join(out))
    return out


def losses(python, where, backend, size, hosts):
    out = run_ranks(python, where, ["torch_backend_rank.py", backend], size, hosts)
    return [float(line.split()[1]) for line in out[0].splitlines() if line.startswith("loss ")]


def check_ends(python, where):
    """A program that ends while there is work ends well."""
    flags = os.path.join(where, "flags")
    for case, said in (("a tensor", ""), ("a callback", "the callback has ended"), ("alone", "")):
        with open(flags, "wb") as file:
            file.write(bytes(2))
        out = run_ranks(python, where, ["torch_backend_exit.py", case, flags], 2, 1)
        if any(said not in text for text in out):
            sys.exit(f"{case}: the ranks said: {out}")


def main():
    python = interpreter()
    where = os.path.join(BUILD, "torch_backend")
    build(python, where)
    check_requirement(python, where)
    check_ends(python, where)
    for size in (2, 3):
        theirs = losses(python, where, "gloo", size, 1)
        for hosts in (1, 2) if size == 2 else (1, 2, 3):
            ours = losses(python, where, "cddp", size, hosts)
            far = max(abs(a - b) / abs(a) for a, b in zip(theirs, ours))
            print(f"{size} ranks on {hosts} hosts: {len(ours)} losses, at most {far:.1e} from gloo's", flush=True)
            if len(ours) != 20 or len(theirs) != 20 or far > 1e-6:
                sys.exit(f"losses differ: {theirs} and {ours}")


main()
