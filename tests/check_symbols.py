#!/usr/bin/env python3
"""Symbols point down the layers, as includes do, and the CUDA and MPI modules consist of the files in their folders.
Usage: check_symbols.py BUILD_ROOT SOURCE_ROOT < layers, one per line: FOLDER ALLOWED... (from tests/check_layers.sh).
An undefined symbol of an object must be defined in its own layer, in a layer that it may use, or outside this repository.
So a hand-written declaration cannot bypass the rule for includes. Objects that are not built are not checked."""
import collections, glob, json, os, subprocess, sys

build, root = (os.path.realpath(folder) for folder in sys.argv[1:3])
MODULE = ("src/runtime/device/cuda/libcddp-cuda.so.p/", "tests/fake_cuda/libcddp-cuda-emulated.so.p/",
          "tests/fake_cuda/libemulated_kernels.a.p/", "kernels/cuda/",  # this one: what nvcc makes
          "src/runtime/group/net/mpi/libcddp-mpi.so.p/")
# The modules, and all symbols that each may export; the emulated one also exports what tests query.
FILES = {"src/runtime/device/cuda/libcddp-cuda.so": "cddpi_cuda_module", "tests/fake_cuda/libcddp-cuda-emulated.so": None,
         "src/runtime/group/net/mpi/libcddp-mpi.so": "cddpi_mpi_module"}
FOLDERS = {"cuda", "mpi"}
CORE = "src/libcddp.a.p/"
problems = []


def name_of(folder):
    return "kernels" if folder.startswith("kernels/") else folder.split("/")[-1]


layers = {}
for line in sys.stdin:
    folder, *allowed = line.split()
    layers[folder] = {name_of(folder), *allowed}


def layer_of(source):
    return next((folder for folder in layers if source.startswith(folder + "/")), None)


def objects():
    """Pairs of an object, from the build folder, and its source, from the root."""
    with open(os.path.join(build, "compile_commands.json")) as file:
        for entry in json.load(file):
            output = entry["output"]
            if output.startswith(("tests/", "examples/")) and not output.startswith(MODULE):
                continue  # test programs may link anything
            source = os.path.realpath(os.path.join(entry["directory"], entry["file"]))
            if source.startswith(build + os.sep) and output.startswith(MODULE):  # a kernel in a wrapper
                source = os.path.join(root, "kernels/cuda", os.path.splitext(os.path.basename(source))[0] + ".cu")
            yield output, os.path.relpath(source, root)
    for path in glob.glob(os.path.join(build, "kernels/cuda/*.o")):
        yield os.path.relpath(path, build), "kernels/cuda/" + os.path.basename(path)[:-2] + ".cu"


def symbols(paths, *options):
    """What nm says of each path: [(symbol, kind)]."""
    found = collections.defaultdict(list)
    paths = sorted(paths)
    for start in range(0, len(paths), 200):
        said = subprocess.run([os.environ.get("NM", "nm"), "-P", "-A", *options, *paths[start:start + 200]], cwd=build,
                              check=True, capture_output=True, text=True).stdout
        for line in said.splitlines():
            path, rest = line.split(": ", 1)
            symbol, kind = rest.split(" ")[:2]
            found[path].append((symbol.split("@")[0], kind))
    return found


def is_undefined(kind):
    return kind in "Uvw"


source_of = {output: source for output, source in objects()
             if layer_of(source) is not None and os.path.exists(os.path.join(build, output))}
table = symbols(source_of, "-g")
in_module = {output for output in source_of if output.startswith(MODULE)}

# The layers, in the libraries and programs, and in the module.
for world in (source_of.keys() - in_module, in_module):
    definers = collections.defaultdict(set)
    for output in world:
        for symbol, kind in table[output]:
            if not is_undefined(kind):
                definers[symbol].add(source_of[output])
    for output in sorted(world):
        source = source_of[output]
        folder = layer_of(source)
        for symbol, kind in table[output]:
            places = definers.get(symbol, set()) if is_undefined(kind) else set()
            if places and not any(name_of(layer_of(place)) in layers[folder] for place in places):
                problems.append(f"{source} uses {symbol} of {', '.join(sorted(places))}: "
                                f"{folder} may use only: {' '.join(sorted(layers[folder]))}")

# The modules' boundary: their folders.
module_folders = {os.path.dirname(source_of[output]) for output in in_module}
for folder in sorted(module_folders):
    if not FOLDERS & set(folder.split("/")):
        problems.append(f"{folder} has sources of a module, but lies in no folder cuda/ or mpi/")
for output in sorted(source_of.keys() - in_module):
    source = source_of[output]
    folder = os.path.dirname(source)
    if FOLDERS & set(folder.split("/")) and (folder in module_folders or output.startswith(CORE)):
        problems.append(f"{source} is linked into {output.split('.p/')[0]}, but {folder} is a module's")

# The symbols that it needs and exports.
ours = {symbol for output in source_of.keys() - in_module for symbol, kind in table[output] if not is_undefined(kind)}
for path, entry in FILES.items():
    if not os.path.exists(os.path.join(build, path)):
        continue
    for symbol, kind in symbols([path], "-D")[path]:
        if is_undefined(kind) and (symbol.startswith("cddp") or symbol in ours):
            problems.append(f"{path} needs {symbol} of libcddp: the module calls it by a table (src/runtime/base/module.h)")
        elif entry is not None and not is_undefined(kind) and symbol != entry:
            problems.append(f"{path} shows {symbol}, and should show {entry} alone")

# A layer without any object found was not checked.
seen = {layer_of(source) for source in source_of.values()}
for folder in layers.keys() - seen - {"kernels/cuda"}:
    if glob.glob(os.path.join(root, folder, "**/*.c"), recursive=True):
        problems.append(f"no object of {folder} is in {build}: build first")
print(f"{len(source_of) - len(in_module)} objects of libraries and programs, {len(in_module)} of modules")
for problem in problems:
    print(problem)
sys.exit(1 if problems else 0)
