"""machine - how programs are run here: with which libraries, until when, and what they said."""
import glob, json, os, re, select, shutil, signal, statistics, subprocess, sys, time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
EMULATED = "tests/fake_cuda/libcddp-cuda-emulated.so"
LIBRARIES = ("libcublasLt.so.13", "libcudnn.so.9", "libnccl.so.2")
OLDER = {"libcublasLt.so.13": "libcublasLt.so.12"}
med = statistics.median


def say(*words):
    print("gpu-test:", *words, file=sys.stderr, flush=True)


class Failed(Exception):
    pass


class Slower(Failed):
    """A run ended well, but on something slower than what it is called. Its metrics are @lines."""

    def __init__(self, text, lines):
        super().__init__(text)
        self.lines = lines


def output(argv, timeout=60, env=None):
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout, env=env,
                              stdin=subprocess.DEVNULL)
        return done.stdout.strip() if done.returncode == 0 else ""
    except (OSError, subprocess.TimeoutExpired):
        return ""


def shorten(text, most=200000):
    return text if len(text) <= most else text[:most // 2] + "\n[...]\n" + text[-most // 2:]


def json_lines(text):
    rows = []
    for line in text.splitlines():
        if line.startswith("{"):
            try:
                rows.append(json.loads(line))
            except ValueError:
                pass
    return rows


def file_text(path):
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def first_reason(text):
    """The first line that says what is wrong."""
    for line in text.splitlines():
        if re.search(r"error|not so|should be|differ|!=|Error|signal|is not|cannot|rank \d", line) \
                and not line.startswith("[ RUN") and "slower kernels" not in line:
            return re.sub(r"^\[ +(ERROR|  LINE)? *-*\]? *(--- )?", "", line)[:200]
    return next((line[:200] for line in reversed(text.splitlines()) if line.strip()), "")


def fallbacks(text, emulated=False):
    """Warnings, above all that something slower was taken than what was meant to run. A row with one is no
    measurement of what it is called."""
    found = [line.strip()[:200] for line in text.splitlines()
             if re.search(r" warn: |slower kernels|taken instead|cannot be captured|falls? back", line)]
    return [line for line in found if not (emulated and "the emulated module has none" in line)]


# ---------------------------------------------------------------- libraries
def library_version(path):
    """As the file is called where its links end: libcudnn.so.9.19.0."""
    found = re.search(r"\.so\.([\d.]+)$", os.path.realpath(path))
    return found.group(1) if found else "?"


def choose_libraries(system, wheels, mixed=False):
    """Where cuBLASLt, cuDNN and NCCL are taken from: all from the system, else all from the wheels. @system and
    @wheels: {library: path}. Returns (name of the place, {library: path}); a mix is an error unless asked for,
    since each is built and tested with the others of its release."""
    for place, found in (("the system", system), ("the wheels", wheels)):
        if all(name in found for name in LIBRARIES):
            return place, {name: found[name] for name in LIBRARIES}
    both = {**wheels, **system}
    lacking = [name for name in LIBRARIES if name not in both]
    if not mixed and system and wheels:
        raise Failed("CUDA's libraries are no set from one place: the system has " +
                     (", ".join(sorted(system)) or "none") + "; the wheels have " +
                     (", ".join(sorted(wheels)) or "none") + "; --mixed-libraries takes them as they are")
    return "mixed" if system and wheels else "incomplete, without " + ", ".join(lacking), both


def system_libraries():
    known = output(["ldconfig", "-p"]) or output(["/sbin/ldconfig", "-p"])
    paths = dict(reversed(re.findall(r"^\s*(\S+) \(.*\) => (\S+)$", known, re.M)))
    for folder in filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":")):
        for name in (*LIBRARIES, *OLDER.values(), "libcuda.so.1"):
            path = os.path.join(folder, name)
            if os.path.exists(path):
                paths[name] = path
    return paths


def wheel_libraries(python):
    sites = output([python, "-c", "import site, sysconfig; "
                    "print(sysconfig.get_paths()['purelib'], *site.getsitepackages(), sep='\\n')"]).split("\n")
    found = {}
    for site in filter(None, sites):
        for path in sorted(glob.glob(f"{site}/nvidia/*/lib/lib*.so.*")):
            found.setdefault(os.path.basename(path), path)
    return found


def pick(paths):
    return {name: paths.get(name) or paths[OLDER[name]] for name in LIBRARIES
            if name in paths or OLDER.get(name) in paths}


# ---------------------------------------------------------------- the machine
class Machine:
    def __init__(self, a, built, scratch):
        self.build, self.emulated, self.scratch = built, a.emulated, scratch
        self.end = time.monotonic() + a.limit
        self.python, self.root = a.python, ROOT
        self.tests = a.tests.split(",") if a.tests else []
        self.env = dict(os.environ, CDDP_TEST_BUILD=built, CDDP_TEST_SOURCE=ROOT, CDDP_PROGRESS="off",
                        CDDP_CACHE=os.path.join(scratch, "cache"))
        self.libraries, self.place = {}, "none: emulated"
        folders = [os.path.join(built, "lib")] * os.path.isdir(os.path.join(built, "lib"))
        if a.emulated:
            self.env["CDDP_CUDA_MODULE"] = os.path.join(built, EMULATED)
        else:
            self.env.pop("CDDP_CUDA_MODULE", None)
            folders += self.find_libraries(a)
        self.set_folders(folders)
        if not self.starts() and os.path.isdir(f"{built}/lib-cxx"):
            self.set_folders(folders + [f"{built}/lib-cxx"])
        if not self.starts():
            raise SystemExit(f"gpu-test: {built}/src/cddp-train does not start here")
        if not a.emulated:
            self.env["CDDP_TEST_GPU"] = str(self.count_devices())

    def count_devices(self):
        """Asked once for all tests; each question is a process that initialises CUDA."""
        told = output([f"{self.build}/launcher/cddp-run", "--check"], env=self.env)
        return len(re.findall(r"^  cuda:\d+ ", told, re.M))

    def find_libraries(self, a):
        """Folders that the loader has to look into first; ours stay first, they hold no CUDA."""
        known, wheels = system_libraries(), wheel_libraries(a.python)
        folders = []
        if "libcuda.so.1" not in known:
            folders += [place for place in ("/usr/local/nvidia/lib64", "/usr/local/nvidia/lib")
                        if os.path.exists(f"{place}/libcuda.so.1")][:1]
        try:
            self.place, self.libraries = choose_libraries(pick(known), pick(wheels), a.mixed_libraries)
        except Failed as error:
            raise SystemExit(f"gpu-test: {error}")
        if a.mixed_libraries:
            self.env["CDDP_MIXED_LIBRARIES"] = "1"
        if self.place != "the system":
            names = [*self.libraries.values(), *(wheels[name] for name in wheels if name.startswith("libnvrtc.so"))]
            folders += [os.path.dirname(path) for path in names if path not in known.values()]
        return list(dict.fromkeys(folders))

    def set_folders(self, folders):
        given = filter(None, [os.environ.get("LD_LIBRARY_PATH")])
        self.env["LD_LIBRARY_PATH"] = ":".join([*folders, *given])

    def starts(self):
        return output([f"{self.build}/src/cddp-train", "--version"], env=self.env) != ""

    def left(self):
        return self.end - time.monotonic()

    def run(self, argv, deadline, log=None, env=None, plain=False):
        """Status, output and seconds; what is still there at the deadline is ended, its children too. @plain: with
        this process's own environment, for programs that are not ours."""
        deadline = min(deadline, self.left())
        start = time.monotonic()
        if deadline < 1:
            return 124, "no time was left\n", 0
        try:
            process = subprocess.Popen(argv, env=dict(os.environ if plain else self.env, **(env or {})),
                                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                       stdin=subprocess.DEVNULL, start_new_session=True, cwd=self.scratch)
        except OSError as error:
            return 127, f"{argv[0]}: {error}\n", 0
        try:
            out, _ = process.communicate(timeout=deadline)
            status = process.returncode
        except BaseException as error:  # a signal that ends this call ends its children, too
            os.killpg(process.pid, signal.SIGKILL)
            out, _ = process.communicate()
            status = 124
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
        text = out.decode(errors="replace")
        if status == 124:
            text += f"\ngpu-test: not done after {deadline:.0f} s\n"
        if log is not None:
            words = " ".join(argv)
            extra = "".join(f"{key}={value} " for key, value in (env or {}).items())
            log.write(f"$ {extra}{words}\n{shorten(text)}[status {status}, "
                      f"{time.monotonic() - start:.1f} s]\n\n")
        return status, text, time.monotonic() - start


# Without a process that keeps the card open, each start and end of one of ours initialises the driver anew.
KEEPER = """
import ctypes, sys
try:
    cuda = ctypes.CDLL("libcuda.so.1")
except OSError as error:
    sys.exit(str(error))
context = ctypes.c_void_p()
for status in (cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)):
    if status != 0:
        sys.exit(f"CUDA error {status}")
print("ready", flush=True)
sys.stdin.read()
"""


class Keeper:
    """An idle process with a context on the card, from `with` to its end."""

    def __init__(self, machine):
        self.process = None
        self.said = "not needed: emulated"
        if not machine.emulated:
            self.process = subprocess.Popen([sys.executable, "-c", KEEPER], stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                            env=machine.env)

    def __enter__(self):
        if self.process is not None:
            ready, _, _ = select.select([self.process.stdout], [], [], 60)
            line = self.process.stdout.readline().strip() if ready else "CUDA does not answer within 60 s"
            self.said = "a process holds a context" if line == "ready" else f"none: {line}"
        return self

    def __exit__(self, *_):
        if self.process is not None:
            self.process.stdin.close()
            try:
                self.process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                self.process.kill()


def find_tool(name):
    """A program of the CUDA toolkit or of Nsight, on the path or where they are installed; None: there is none."""
    places = [shutil.which(name), *sorted(glob.glob(f"/usr/local/cuda*/bin/{name}"), reverse=True),
              *sorted(glob.glob(f"/opt/nvidia/nsight-compute/*/{name}"), reverse=True)]
    return next((place for place in places if place and os.access(place, os.X_OK)), None)
