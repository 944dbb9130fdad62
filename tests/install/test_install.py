#!/usr/bin/env python3
"""test_install.py - the result of `meson install` can be used: by pkg-config, by CMake, as a subproject, and after it was moved. Its
manual pages and completions match the installed programs.
Usage: test_install.py CASE BUILD_ROOT SOURCE_ROOT. Each case installs into its own folder."""
import ast, configparser, json, os, shutil, subprocess, sys, tempfile

CASE, BUILD, SOURCE = sys.argv[1:4]
HERE = os.path.dirname(os.path.abspath(__file__))
SECONDS = 600


def cross_files():
    """Those that BUILD was configured with, as Meson keeps them; none, where it is for this processor."""
    kept = configparser.ConfigParser(interpolation=None)
    kept.read(os.path.join(BUILD, "meson-private", "cmd_line.txt"))
    return ast.literal_eval(kept.get("properties", "cross_file", fallback="[]"))


def tools():
    """Programs that a cross file names, by Meson's names for them."""
    files = configparser.ConfigParser(interpolation=None)
    files.read(cross_files())
    return {name: ast.literal_eval(value) for name, value in files.items("binaries")} if files.has_section("binaries") else {}


TOOLS = tools()
CC = TOOLS.get("c", os.environ.get("CC", "cc").split()[-1])
PKG_CONFIG = TOOLS.get("pkgconfig", "pkg-config")
READELF = TOOLS.get("readelf", "readelf")
SETUP = ["meson", "setup", *(f"--cross-file={file}" for file in cross_files())]


def run(*words, env=None, cwd=None, ok=True):
    done = subprocess.run(words, env={**os.environ, **(env or {})}, cwd=cwd, capture_output=True, text=True, timeout=SECONDS)
    if ok and done.returncode != 0:
        raise SystemExit(f"test_install: {' '.join(words)}: {done.returncode}\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done


def expect(what, holds, text=""):
    if not holds:
        raise SystemExit(f"test_install: not so: {what}\n{text}")


def skip_without(*programs):
    for program in programs:
        if shutil.which(program) is None:
            print(f"there is no {program}")
            sys.exit(77)


def option(name):
    said = run("meson", "introspect", BUILD, "--buildoptions").stdout
    return next(row["value"] for row in json.loads(said) if row["name"] == name)


def install(folder):
    """The build, installed below folder; where its prefix is then."""
    run("meson", "install", "-C", BUILD, "--no-rebuild", "--quiet", "--destdir", folder)
    return folder + option("prefix")


def pkg_config(prefix, *words, package="cddp"):
    return run(PKG_CONFIG, f"--define-variable=prefix={prefix}", *words, package,
               env={"PKG_CONFIG_PATH": os.path.join(prefix, option("libdir"), "pkgconfig")}).stdout.split()


def check_program(program, prefix):
    """Two ranks of the installed cddp-run add up their ones."""
    said = run(os.path.join(prefix, option("bindir"), "cddp-run"), "--nproc", "2", "--no-tag", "--", program).stdout
    version = run(os.path.join(prefix, option("bindir"), "cddp-run"), "--version").stdout.split()[-1]
    wanted = [f"{version}: rank {rank} of 2: 2" for rank in (0, 1)]
    expect("two ranks give the sum", sorted(said.splitlines()) == wanted, said)


def shared_with_pkg_config(folder):
    """A program of someone else's is linked with what pkg-config says, and runs."""
    skip_without(PKG_CONFIG)
    prefix = install(folder)
    program = os.path.join(folder, "program")
    lib = os.path.join(prefix, option("libdir"))
    run(CC, "-std=c11", os.path.join(HERE, "program.c"), "-o", program, *pkg_config(prefix, "--cflags", "--libs"),
        f"-Wl,-rpath,{lib}")
    needed = run(READELF, "-d", program).stdout
    expect("it needs libcddp.so by its soname", "[libcddp.so.0.2]" in needed, needed)
    expect("it needs no library of libcddp's", "sodium" not in needed and "jansson" not in needed, needed)
    check_program(program, prefix)


def model_with_pkg_config(folder):
    """An example that uses a trained model is linked with libcddp-model.so, which brings its libraries itself."""
    skip_without(PKG_CONFIG)
    prefix = install(folder)
    program = os.path.join(folder, "classify")
    lib = os.path.join(prefix, option("libdir"))
    run(CC, "-std=c11", os.path.join(SOURCE, "examples", "infer", "classify.c"), "-o", program,
        *pkg_config(prefix, "--cflags", "--libs", package="cddp-model"), f"-Wl,-rpath,{lib}")
    needed = run(READELF, "-d", program).stdout
    expect("it needs both libraries", "[libcddp.so.0.2]" in needed and "[libcddp-model.so.0.2]" in needed, needed)
    expect("it needs nothing of theirs", "dnnl" not in needed and "libconfig" not in needed, needed)
    needed = run(READELF, "-d", os.path.join(lib, "libcddp.so")).stdout
    expect("libcddp.so needs nothing of the trainer's", "dnnl" not in needed and "libconfig" not in needed, needed)
    said = run(program, folder, "no.png", ok=False).stderr
    expect("it says what it misses", "is not a run folder, so set options.config_path or options.config_text" in said, said)


def static_with_pkg_config(folder):
    """The same with libcddp.a: by its name where libcddp.so is beside it, else as pkg-config says."""
    skip_without(PKG_CONFIG)
    prefix = install(folder)
    lib = os.path.join(prefix, option("libdir"))
    named = os.path.join(folder, "named")
    words = [word.replace("-lcddp", "-l:libcddp.a") for word in pkg_config(prefix, "--static", "--cflags", "--libs")]
    run(CC, "-std=c11", os.path.join(HERE, "program.c"), "-o", named, *words)
    needed = run(READELF, "-d", named).stdout
    expect("it carries cddp inside, beside libcddp.so", "libcddp" not in needed, needed)
    check_program(named, prefix)
    for name in os.listdir(lib):
        if name.startswith("libcddp.so"):
            os.remove(os.path.join(lib, name))
    program = os.path.join(folder, "program")
    run(CC, "-std=c11", os.path.join(HERE, "program.c"), "-o", program, *pkg_config(prefix, "--static", "--cflags", "--libs"))
    needed = run(READELF, "-d", program).stdout
    expect("it carries cddp inside", "libcddp" not in needed, needed)
    check_program(program, prefix)


def where(prefix):
    """How CMake finds the package: Debian's lib/x86_64-linux-gnu by its name, also in a cross build; elsewhere by its folder,
    since on Debian CMake looks into lib64 as little as the loader does."""
    _, _, name = option("libdir").partition("lib/")
    return f"-DCMAKE_LIBRARY_ARCHITECTURE={name}" if name else f"-Dcddp_DIR={prefix}/{option('libdir')}/cmake/cddp"


def cmake_package(folder):
    """find_package(cddp) gives cddp::cddp and cddp::static; a series that is not installed is refused."""
    skip_without("cmake", "ninja")
    prefix = install(folder)
    source = os.path.join(folder, "source")
    os.mkdir(source)
    for name in ("program.c", "CMakeLists.txt"):
        shutil.copy(os.path.join(HERE, name), source)
    configure = ["cmake", "-G", "Ninja", "-S", source, "-B", os.path.join(folder, "build"), f"-DCMAKE_PREFIX_PATH={prefix}",
                 f"-DCMAKE_C_COMPILER={CC}", where(prefix)]
    run(*configure)
    run("cmake", "--build", os.path.join(folder, "build"))
    for program, is_inside in (("program", False), ("program_static", True)):
        program = os.path.join(folder, "build", program)
        needed = run(READELF, "-d", program).stdout
        expect(f"{program} carries cddp inside: {is_inside}", ("libcddp" not in needed) == is_inside, needed)
        check_program(program, prefix)
    lists = os.path.join(source, "CMakeLists.txt")
    with open(lists, encoding="utf-8") as file:
        text = file.read()
    with open(lists, "w", encoding="utf-8") as file:
        file.write(text.replace("cddp 0.2", "cddp 0.7"))
    refused = run(*configure, ok=False)
    expect("0.7 is refused", refused.returncode != 0 and "0.7" in refused.stderr, refused.stderr)


def subproject(folder):
    """A Meson project with cddp in its subprojects/ builds the library and cddp-run alone, and has both forms of the library."""
    os.mkdir(os.path.join(folder, "subprojects"))
    os.symlink(SOURCE, os.path.join(folder, "subprojects", "cddp"))
    shutil.copy(os.path.join(HERE, "program.c"), folder)
    shutil.copy(os.path.join(HERE, "subproject.build"), os.path.join(folder, "meson.build"))
    build = os.path.join(folder, "build")
    run(*SETUP, build, folder, "--buildtype=plain")
    targets = json.loads(run("meson", "introspect", build, "--targets").stdout)
    names = {target["name"] for target in targets}
    programs = {target["name"] for target in targets if target["type"] == "executable"}
    expect("no programs but the launcher's are built", programs == {"cddp-run", "cddp-ctl", "program", "program_static"}, programs)
    expect("no tests are built", "cddp-test-support" not in names, names)
    expect("no modules either", not names & {"cddp-cuda", "cddp-mpi"}, names)
    asked = os.path.join(folder, "asked")
    wanted = run(*SETUP, asked, folder, "--buildtype=plain", "-Dcddp:mpi=enabled", ok=False)
    if wanted.returncode == 0: # else there is no MPI here
        names = {target["name"] for target in json.loads(run("meson", "introspect", asked, "--targets").stdout)}
        expect("what is asked for is built", "cddp-mpi" in names, names)
    for kind in ("static", "both"): # the user's default_library
        run(*SETUP, os.path.join(folder, kind), folder, "--buildtype=plain", f"-Ddefault_library={kind}")
    run("ninja", "-C", build, "program", "program_static")
    prefix = install(os.path.join(folder, "installed"))
    for program, is_inside in (("program", False), ("program_static", True)):
        needed = run(READELF, "-d", os.path.join(build, program)).stdout
        expect(f"{program} carries cddp inside: {is_inside}", ("libcddp" not in needed) == is_inside, needed)
        check_program(os.path.join(build, program), prefix)


# What a system without them lacks, that might be found here: headers by their name, and what pkg-config would say.
ABSENT = ["oneapi/dnnl/dnnl.h", "libconfig.h", "libdeflate.h", "utf8proc.h", "jpeglib.h", "png.h", "hwloc.h", "mpi.h", "cblas.h", "cmocka.h"]


def hide_others(folder):
    """Options and environment for Meson that show libsodium and jansson, and none of ABSENT."""
    headers = os.path.join(folder, "hidden")
    packages = os.path.join(folder, "packages")
    os.mkdir(packages)
    for header in ABSENT:
        os.makedirs(os.path.dirname(os.path.join(headers, header)), exist_ok=True)
        with open(os.path.join(headers, header), "w", encoding="utf-8") as file:
            file.write("#error this header is not there\n")
    for package in ("libsodium", "jansson"):
        where = run(PKG_CONFIG, "--variable=pcfiledir", package).stdout.strip()
        shutil.copy(os.path.join(where, package + ".pc"), packages)
    return f"-Dc_args=-I{headers}", {"PKG_CONFIG_LIBDIR": packages, "PKG_CONFIG_PATH": ""}


def library_alone(folder):
    """-Dtools=disabled builds the library and its programs where only libsodium and jansson are; what it installs runs."""
    skip_without(PKG_CONFIG)
    build = os.path.join(folder, "build")
    hidden, env = hide_others(folder)
    run(*SETUP, build, SOURCE, "-Dtools=disabled", "-Dcuda=disabled", "-Dmpi=disabled", "--buildtype=plain",
        "--prefix=/usr", "--libdir=lib", hidden, env=env)
    with open(os.path.join(build, "meson-info", "intro-dependencies.json"), encoding="utf-8") as file:
        names = {row["name"] for row in json.load(file)}
    expect("no more is found", names == {"libsodium", "jansson", "threads"}, names)
    run("ninja", "-C", build, env=env)
    run("meson", "install", "-C", build, "--no-rebuild", "--quiet", "--destdir", os.path.join(folder, "installed"))
    prefix = os.path.join(folder, "installed", "usr")
    lib = os.path.join(prefix, "lib")
    expect("the programs", set(os.listdir(os.path.join(prefix, "bin"))) == {"cddp-run", "cddp-ctl", "cddp-bench", "cddp-trace"})
    expect("no page of a tool", not os.path.exists(os.path.join(prefix, "share", "man", "man1", "cddp-train.1")))
    program = os.path.join(folder, "program")
    run(CC, "-std=c11", os.path.join(HERE, "program.c"), "-o", program, f"-I{prefix}/include", f"-L{lib}", "-lcddp", f"-Wl,-rpath,{lib}")
    for path in (os.path.join(prefix, "bin", "cddp-run"), os.path.join(prefix, "bin", "cddp-trace"), os.path.join(lib, "libcddp.so")):
        needed = run(READELF, "-d", path).stdout
        expect(f"{path} needs no other library", not any(part in needed for part in (
            "dnnl", "config", "deflate", "utf8proc", "hwloc", "jpeg", "png", "mpi", "blas")), needed)
    said = run(os.path.join(prefix, "bin", "cddp-run"), "--nproc", "2", "--no-tag", "--", program).stdout
    expect("two ranks give the sum", said.count("of 2: 2") == 2, said)
    failed = run(*SETUP, os.path.join(folder, "both"), SOURCE, "-Dtools=disabled", "-Dtests=enabled", ok=False)
    expect("tests without tools are refused", failed.returncode != 0 and "need the tools" in failed.stdout, failed.stdout)


def also(script, *words):
    """Another test's script; where it skips itself, this does."""
    done = run(sys.executable, os.path.join(SOURCE, "tests", "scripts", script), *words, ok=False)
    print(done.stdout)
    if done.returncode == 77:
        sys.exit(77)
    expect(f"{script} is content", done.returncode == 0, done.stdout + done.stderr)


def pages(folder):
    """Each program, header and format has its page, where `man` looks for it."""
    prefix = install(folder)
    if not os.path.isdir(os.path.join(prefix, option("mandir"), "man1")):
        print("there are no pages of programs: scdoc is missing")
        sys.exit(77)
    also("test_pages.py", BUILD, SOURCE, prefix)
    for name in os.listdir(os.path.join(prefix, option("bindir"))):
        expect(f"{name} has a page", os.path.exists(os.path.join(prefix, option("mandir"), "man1", name + ".1")))


def completions(folder):
    """Of the installed programs, from the files that the shells look for."""
    prefix = install(folder)
    for name in os.listdir(os.path.join(prefix, option("bindir"))):
        expect(f"bash finds the completion of {name}", os.path.exists(os.path.join(
            prefix, option("datadir"), "bash-completion", "completions", name)))
    for shell in ("bash", "zsh"):
        also("test_completions.py", shell, BUILD, SOURCE, prefix)


def moved_folder(folder):
    """Programs and library look for modules beside where they lie now, not where they were to be installed."""
    first = install(os.path.join(folder, "first"))
    prefix = os.path.join(folder, "second")
    shutil.move(first, prefix)
    lib = os.path.join(prefix, option("libdir"))
    module = os.path.join(lib, "cddp", "libcddp-cuda.so")
    os.makedirs(os.path.dirname(module), exist_ok=True)
    with open(os.path.join(folder, "empty.c"), "w", encoding="utf-8") as file:
        file.write("int nothing = 0;\n")
    run(CC, "-shared", "-fPIC", os.path.join(folder, "empty.c"), "-o", module)
    said = run(os.path.join(prefix, option("bindir"), "cddp-run"), "--check", env={"CDDP_CUDA_MODULE": ""}, ok=False).stdout
    expect("cddp-run finds the module", f"{module} is not cddp's" in said, said)
    program = os.path.join(folder, "program")
    run(CC, "-std=c11", os.path.join(HERE, "program.c"), "-o", program, f"-I{prefix}/{option('includedir')}", f"-L{lib}", "-lcddp",
        f"-Wl,-rpath,{lib}")
    said = run(program, env={"CDDP_DEVICE": "cuda", "CDDP_CUDA_MODULE": ""}, ok=False).stderr
    expect("libcddp.so finds the module", f"{module} is not cddp's" in said, said)


# Environment Modules' and Lmod's programs that print what a shell then does, where Debian, their own installation or a site has them.
MODULE_COMMANDS = {
    "Environment Modules": [os.environ.get("MODULES_CMD", ""), "/usr/lib/x86_64-linux-gnu/modulecmd.tcl", "/usr/lib/modulecmd.tcl",
                            "/usr/share/Modules/libexec/modulecmd.tcl"],
    "Lmod": [os.environ.get("LMOD_CMD", ""), "/usr/share/lmod/lmod/libexec/lmod"]}
LOADED = """
module() { eval "$($COMMAND bash "$@")"; }
page=$(man -w man 2>&1)
module use "$MODULEFILES" && module load cddp/$VERSION || exit 1
[ "$(command -v cddp-run)" = "$BIN/cddp-run" ] || { echo "cddp-run is $(command -v cddp-run)"; exit 1; }
cddp-run --version
"$CC" -std=c11 "$SOURCE" -o program $($PKG_CONFIG --define-variable=prefix="$PREFIX" --cflags --libs cddp) && cddp-run --nproc 2 --no-tag -- ./program
if command -v man >/dev/null && [ -d "$MAN" ]; then
  case $(man -w cddp-run 2>&1) in "$MAN"/*) ;; *) echo "man -w cddp-run: $(man -w cddp-run 2>&1)" ;; esac
  [ "$(man -w man 2>&1)" = "$page" ] || echo "the system's own pages: $page, now $(man -w man 2>&1)"
fi
module unload cddp
left=$PATH:$LD_LIBRARY_PATH:$PKG_CONFIG_PATH:$CMAKE_PREFIX_PATH:$MANPATH
case $left in *"$PREFIX"*) echo "left: $left" ;; esac
mkdir -p copies/cddp && cp "$MODULEFILES/cddp/$VERSION" copies/cddp/copied
module use "$PWD/copies" && module load cddp/copied
case $PKG_CONFIG_PATH in "$CONFIGURED"/*) ;; *) echo "a copy elsewhere: $PKG_CONFIG_PATH" ;; esac
"""


def modulefile(folder):
    """It names folders that are installed; Environment Modules and Lmod, if they are here, load it, also after the folder was moved."""
    prefix = os.path.join(folder, "second")
    shutil.move(install(os.path.join(folder, "first")), prefix)
    modulefiles = os.path.join(prefix, option("datadir"), "modulefiles")
    version, = os.listdir(os.path.join(modulefiles, "cddp"))
    said = run(os.path.join(prefix, option("bindir"), "cddp-run"), "--version").stdout.split()[-1]
    expect("its name is the version that is installed", version == said, f"{version} {said}")
    with open(os.path.join(modulefiles, "cddp", version), encoding="utf-8") as file:
        text = file.read()
    expect("Meson has filled it in", "@" not in text, text)
    folders = [words.split()[2] for words in text.splitlines() if words.startswith("prepend-path")]
    expect("it has folders", len(folders) >= 5, text)
    for name in folders:
        expect(f"{name} is installed", os.path.isdir(name.replace("$prefix", prefix)) or
               option("docs") == "disabled" and name == "$prefix/" + option("mandir"))
    tried = []
    for system, places in MODULE_COMMANDS.items():
        command = next((place for place in places if os.path.exists(place)), None)
        if command:
            said = run("bash", "-c", LOADED, cwd=folder, env={
                "COMMAND": f"tclsh {command}" if command.endswith(".tcl") else command, "MODULEFILES": modulefiles, "VERSION": version,
                "BIN": os.path.join(prefix, option("bindir")), "CONFIGURED": option("prefix"),
                "MAN": os.path.join(prefix, option("mandir")), "PREFIX": prefix, "CC": CC,
                "SOURCE": os.path.join(HERE, "program.c"), "PKG_CONFIG": PKG_CONFIG, "MODULEPATH": "", "LD_LIBRARY_PATH": "",
                "PKG_CONFIG_PATH": ""}, ok=False)
            wanted = [f"cddp-run {version}", *(f"{version}: rank {rank} of 2: 2" for rank in (0, 1))]
            lines = said.stdout.splitlines()
            expect(f"{system} loads it", lines[:1] + sorted(lines[1:]) == wanted, said.stdout + said.stderr)
            tried.append(system)
    print("loaded by", " and ".join(tried) or "nothing: neither Environment Modules nor Lmod is installed")


skip_without("meson")
os.environ.pop("DESTDIR", None)
os.environ.pop("LD_LIBRARY_PATH", None)  # Meson's, which leads to the build's libraries, not the installed ones
with tempfile.TemporaryDirectory(prefix="cddp-install-") as temporary:
    globals()[CASE](temporary)
