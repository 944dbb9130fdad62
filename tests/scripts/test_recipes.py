#!/usr/bin/env python3
"""test_recipes.py - the recipes in scripts/recipes fit this tree: every option that they give to Meson exists, and none is left to chance; each
library that meson.build asks for is a dependency; files that they want are installed; scripts/recipes_write fills in version and checksum.
Nothing is built: that is scripts/recipes_check. Usage: test_recipes.py SOURCE BUILD"""
import contextlib, hashlib, json, os, re, shutil, subprocess, sys, tarfile, tempfile, types

SOURCE, BUILD = sys.argv[1:3]
RECIPES = os.path.join(SOURCE, "scripts", "recipes")
OF_MESON = {"prefix", "libdir", "buildtype"}  # options that every project has
# What a recipe calls the package of each dependency of meson.build: Spack, EasyBuild, conda-forge. None: its compiler's or toolchain's.
NAMES = {"threads": (None, None, None), "libsodium": ("libsodium", "libsodium", "libsodium"), "jansson": ("jansson", "Jansson", "jansson"),
         "hwloc": ("hwloc", "hwloc", "libhwloc"), "mpi": ("mpi", None, None), "dnnl": ("onednn", "oneDNN", "onednn"),
         "libconfig": ("libconfig", "libconfig", "libconfig"), "libdeflate": ("libdeflate", "libdeflate", "libdeflate"),
         "libutf8proc": ("utf8proc", "utf8proc", "libutf8proc"), "libjpeg": ("libjpeg-turbo", "libjpeg-turbo", "libjpeg-turbo"),
         "libpng": ("libpng", "libpng", "libpng"), "openblas": ("openblas", None, "libopenblas")}  # EasyBuild's recipe is for x86-64


def need(what, holds, where):
    if not holds:
        raise SystemExit(f"test_recipes: {where}: {what}")


def text_of(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


MESON = text_of(SOURCE, "meson.build")
VERSION = re.search(r"^project\('cddp', 'c', version: '([^']*)'", MESON, re.M)[1]
OPTIONS = dict(re.findall(r"^option\('(\w+)', type: '(\w+)'", text_of(SOURCE, "meson_options.txt"), re.M))
FEATURES = {name for name, kind in OPTIONS.items() if kind == "feature"}
ASKED = set(re.findall(r"dependency\('(\w+)'", MESON)) | set(re.findall(r"find_library\('(\w{3,})', has_headers", MESON))


def look_at_options(words, where):
    """Those of a command line for Meson."""
    given = dict(re.findall(r"-D(\w+)=(\S+)", words))
    for name, value in given.items():
        need(f"Meson has no option {name}", name in OPTIONS or name in OF_MESON, where)
        need(f"{name}={value} is neither enabled nor disabled", name not in FEATURES or value in ("enabled", "disabled"), where)
    left = FEATURES - set(given)
    need(f"whether there is {', '.join(sorted(left))} depends on what the machine happens to have", not left, where)
    return given


def look_at_dependencies(found, column, where):
    left = {name for name, row in NAMES.items() if row[column] and row[column] not in found}
    need(f"meson.build asks for {', '.join(sorted(left))}", not left, where)


def look_at_files(files, where):
    """Names below the prefix, as a recipe has them, are installed."""
    said = subprocess.run(["meson", "introspect", BUILD, "--installed"], check=True, capture_output=True, text=True).stdout
    options = json.loads(subprocess.run(["meson", "introspect", BUILD, "--buildoptions"], check=True, capture_output=True, text=True).stdout)
    prefix, libdir = (next(row["value"] for row in options if row["name"] == name) for name in ("prefix", "libdir"))
    installed = set()
    for name in json.loads(said).values():
        name = os.path.relpath(name, prefix)
        name = "lib" + name[len(libdir):] if name.startswith(libdir + "/") else name
        while name:
            installed.add(name)
            name = os.path.dirname(name)
    if "lib/cddp/libcddp-mpi.so" not in installed:  # where there is no MPI
        files = [name for name in files if "mpi" not in name]
    if "share/man/man1" not in installed:
        files = [name for name in files if "/man/" not in name]
    for name in files:
        pattern = re.compile(re.escape(name).replace(r"\*", "[^/]*") + "$")
        need(f"{name} is not installed", any(pattern.match(there) for there in installed), where)


# ---- Spack: the recipe is Python, here with a Spack that only writes down what it is told.

class Spec(dict):
    """The variants that a user chose: of a name whether, or a list."""

    def satisfies(self, words):
        return bool(self.get(words[1:])) == (words[0] == "+")

    @property
    def variants(self):
        return {name: types.SimpleNamespace(value=value) for name, value in self.items()}


def spack_recipe():
    told = {"variants": {"cuda": False}, "depends": [], "versions": []}

    def variant(name, default, **_words):
        told["variants"][name] = default

    def directive(*_words, **_more):
        return contextlib.nullcontext()

    def decorator(*_words, **_more):
        return lambda function: function

    package = types.ModuleType("spack.package")
    package.__dict__.update(MesonPackage=type("MesonPackage", (), {}), CudaPackage=type("CudaPackage", (), {}), variant=variant,
                            depends_on=lambda words, **_more: told["depends"].append(words),
                            version=lambda name, **more: told["versions"].append((name, more)), license=directive, conflicts=directive,
                            when=directive, run_after=decorator, on_package_attributes=decorator)
    sys.modules["spack"], sys.modules["spack.package"] = types.ModuleType("spack"), package
    place = os.path.join(RECIPES, "spack/spack_repo/cddp/packages/cddp/package.py")
    names = {}
    exec(compile(text_of(place), place, "exec"), names)
    return names["Cddp"](), told


def look_at_spack():
    where = "Spack"
    recipe, told = spack_recipe()
    need("the folder's name is its namespace", "namespace: cddp\n" in text_of(RECIPES, "spack/spack_repo/cddp/repo.yaml"), where)
    look_at_dependencies({re.split(r"[@+~ ]", words)[0] for words in told["depends"]}, 0, where)
    need("Meson's version is that of meson.build", "meson@" + re.search(r"meson_version: '>=([\d.]+)'", MESON)[1] + ":" in told["depends"], where)
    need("Meson finds libraries by pkg-config", "pkgconfig" in told["depends"], where)
    everything = {name: True for name in told["variants"]}
    for chosen in (told["variants"], everything, {**everything, "images": False}, {name: False for name in everything}):
        recipe.spec = Spec({**chosen, "cuda_arch": ["none"]})
        given = look_at_options(" ".join(recipe.meson_args()), where)
        for name in ("tools", "hwloc", "mpi", "cuda"):
            need(f"+{name} or ~{name} is passed on", given[name] == ("enabled" if chosen[name] else "disabled"), where)
        for name in ("jpeg", "png"):
            need(f"{name} is what images says", given[name] == ("enabled" if chosen["images"] else "disabled"), where)
    recipe.spec = Spec({name: True for name in told["variants"]}, cuda_arch=["80", "90"])
    need("cuda_arch is passed on", look_at_options(" ".join(recipe.meson_args()), where).get("gpu_arch") == "80,90", where)


def look_at_easybuild():
    where = "EasyBuild"
    names = {"SHLIB_EXT": "so"}
    exec(text_of(RECIPES, "easybuild", "cddp.eb"), names)
    look_at_options(names["configopts"], where)
    found = dict(names["dependencies"])
    look_at_dependencies(found, 1, where)
    need("Meson finds libraries by pkg-config", "pkgconf" in dict(names["builddependencies"]), where)
    other, = (name for name in os.listdir(os.path.join(RECIPES, "easybuild")) if name.startswith("oneDNN"))
    need(f"oneDNN's file is {other}", other.startswith(f"oneDNN-{found['oneDNN']}-"), where)
    need("assertions stay, as in every other build", names.get("ndebug") is False and names.get("build_type") == "release", where)
    look_at_files(names["sanity_check_paths"]["files"] + names["sanity_check_paths"]["dirs"], where)


def look_at_conda():
    where = "conda-forge"
    text, script = text_of(RECIPES, "conda", "recipe.yaml"), text_of(RECIPES, "conda", "build.sh")
    look_at_options(script, where)
    host = re.search(r"^  host:\n(.*?)^  run:", text, re.M | re.S)[1]
    look_at_dependencies(set(re.findall(r"(?:- |then: )([a-z][\w-]*)", host)), 2, where)
    need("Meson finds libraries by pkg-config", "    - pkg-config\n" in text, where)
    files = re.search(r"^      files:\n((?:        - .*\n)+)", text, re.M)[1]
    look_at_files(re.findall(r"- (\S+)", files), where)


def look_at_what_is_written(folder):
    """Version, checksum and addresses are those of the tarball; nothing is left to fill in."""
    missing = [name for name in ("git", "xz") if not shutil.which(name)]
    if missing or subprocess.run(["git", "-C", SOURCE, "rev-parse", "HEAD"], check=False, capture_output=True).returncode != 0:
        print("recipes were not written: this is no git repository, or git or xz is missing")
        return
    fast = os.path.join(folder, "tools", "xz")  # -9 takes ten seconds of a core
    os.mkdir(os.path.dirname(fast))
    with open(fast, "w", encoding="utf-8") as file:
        file.write(f"#!/bin/sh\nexec {shutil.which('xz')} -0\n")
    os.chmod(fast, 0o755)
    done = subprocess.run([os.path.join(SOURCE, "scripts", "recipes_write"), "--url", f"https://example.org/releases/cddp-{VERSION}.tar.xz", folder],
                          check=False, capture_output=True, text=True,
                          env={**os.environ, "PATH": os.path.dirname(fast) + ":" + os.environ["PATH"]})
    need(done.stderr, done.returncode == 0, "recipes_write")
    with open(os.path.join(folder, f"cddp-{VERSION}.tar.xz"), "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    with tarfile.open(os.path.join(folder, f"cddp-{VERSION}.tar.xz")) as tarball:
        need("the tarball is this tree", f"cddp-{VERSION}/meson.build" in tarball.getnames(), "recipes_write")
    for name in ("conda/recipe.yaml", "spack/spack_repo/cddp/packages/cddp/package.py", f"easybuild/cddp-{VERSION}-gompi-2025b.eb"):
        text = text_of(folder, name)
        need("it has the tarball's checksum", digest in text, name)
        need("it has the version of meson.build", f'"{VERSION}"' in text or f"'{VERSION}'" in text, name)
        need("it has the address", "https://example.org/releases/" in text, name)
        need("something is not filled in", not re.search(r"@[A-Z0-9_]+@", text), name)
    need("build.sh can be started", os.access(os.path.join(folder, "conda", "build.sh"), os.X_OK), "recipes_write")


need(f"recipes have no word for {', '.join(sorted(ASKED - set(NAMES) - {'cblas'}))}", ASKED <= set(NAMES) | {"cblas"}, "meson.build")
look_at_spack()
look_at_easybuild()
look_at_conda()
with tempfile.TemporaryDirectory(prefix="cddp-recipes-") as temporary:
    look_at_what_is_written(temporary)
print("the recipes fit")
