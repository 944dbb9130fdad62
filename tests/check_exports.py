#!/usr/bin/env python3
"""libcddp.so exports exactly the symbols, with their versions, in src/runtime/cddp.symbols, and those that the public headers declare;
libcddp-model.so those in src/trainer/infer/model.symbols and <cddp/model.h>. What libcddp.so shows to libcddp-model.so alone, the private
node of src/runtime/cddp.map, is what that needs.
A symbol that is gone or has another version breaks programs that were linked before. Before 1.0 a minor version may do that: it has
a soname and a symbol version of its own, so that no program of another one starts with it.
Usage: check_exports.py SOURCE_ROOT LIBRARY [MODEL_LIBRARY] [--write]; --write adds new symbols to the list, and drops those of another
minor version. With MODEL_LIBRARY: compare, or write, what that needs of LIBRARY."""
import glob, os, re, subprocess, sys

source, library, *rest = [word for word in sys.argv[1:] if word != "--write"]
is_model = os.path.basename(library).startswith("libcddp-model")
listed = os.path.join(source, "src/trainer/infer/model.symbols" if is_model else "src/runtime/cddp.symbols")
node = "CDDP_MODEL_" if is_model else "CDDP_"
PRIVATE = "CDDP_PRIVATE_"


def symbols(path, kind):
    """{name: version} of what nm finds."""
    found = {}
    said = subprocess.run([os.environ.get("NM", "nm"), "-D", kind, "--with-symbol-versions", path], check=True,
                          capture_output=True, text=True).stdout
    for line in said.splitlines():
        kind, name = line.split()[-2:]
        if kind != "A":  # the versions themselves
            name, _, version = name.replace("@@", "@").partition("@")
            found[name] = version
    return found


shown = symbols(library, "--defined-only")
if rest:
    needed = {name for name in symbols(rest[0], "--undefined-only") if name.startswith("cddpi_")}
    path = os.path.join(source, "src/runtime/cddp.map")
    with open(path, encoding="utf-8") as file:
        text = file.read()
    start = text.index("    global:\n", text.index(PRIVATE)) + len("    global:\n")
    if "--write" in sys.argv:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text[:start] + "".join(f"        {name};\n" for name in sorted(needed)) + text[text.index("};", start):])
        sys.exit(0)
    given = set(re.findall(r"\bcddpi_\w+", text[start:]))
    problems = [f"{name} is in the private node of {path}, but {rest[0]} does not need it" for name in given - needed]
    problems += [f"{rest[0]} needs {name}, which is not in the private node of {path}" for name in needed - given]
    problems += [f"{name} is in the private node of {path}, but {library} does not show it: it lacks CDDPI_SHARED"
                 for name in given - shown.keys()]
    print(f"{len(needed)} private symbols", *sorted(problems), sep="\n")
    sys.exit(1 if problems else 0)
shown = {name: version for name, version in shown.items() if not version.startswith(PRIVATE)}
with open(os.path.join(source, "meson.build"), encoding="utf-8") as file:
    major, minor = re.search(r"version: '(\d+)\.(\d+)\.", file.read()).groups()
series = f"{major}.{minor}"
soname = re.search(r"\(SONAME\).*\[(.*)\]", subprocess.run(["readelf", "-d", library], check=True,
                   capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}).stdout).group(1)
with open(listed, encoding="utf-8") as file:
    kept = dict(line.split() for line in file if not line.startswith("#"))

declared = set()
for header in glob.glob(os.path.join(source, "include", "cddp", "*.h")):
    if (os.path.basename(header) == "model.h") != is_model:
        continue
    with open(header, encoding="utf-8") as file:
        text = re.sub(r"/\*.*?\*/", " ", file.read(), flags=re.S)
    text = re.sub(r"^#define.*(\\\n.*)*", " ", text, flags=re.M)
    for part in re.split(r"\bCDDP_(?:API|CHECKED)\b", text)[1:]:
        declared.add(re.search(r"\b(cddp_\w+)\s*\(", part).group(1))

if "--write" in sys.argv:
    with open(listed, "w", encoding="utf-8") as file:
        file.write(f"# What {os.path.basename(library).split('.so')[0]}.so shows, and since which version: tests/check_exports.py compares, --write adds.\n")
        old = {name: version for name, version in kept.items() if major != "0" or version == node + series}
        for name, version in sorted({**shown, **old}.items()):
            file.write(f"{name} {version}\n")
    sys.exit(0)

problems = [f"{name} is gone from {library}" for name in kept.keys() - shown.keys()]
problems += [f"{name} has version {shown[name] or 'none'}, and had {kept[name]}"
             for name in kept.keys() & shown.keys() if kept[name] != shown[name]]
problems += [f"{name} is not in {listed}: add it with {sys.argv[0]} {source} {library} --write"
             for name in shown.keys() - kept.keys()]
problems += [f"{name} is shown by {library}, but no header in include/cddp declares it"
             for name in shown.keys() - declared]
problems += [f"{name} is declared in include/cddp, but {library} has no such symbol" for name in declared - shown.keys()]
wanted = os.path.basename(library).split(".so")[0] + ".so." + (series if major == "0" else major)
if soname != wanted:
    problems.append(f"{library} has the soname {soname}, not {wanted}")
if major == "0":
    problems += [f"{name} has version {version}: before 1.0 all have {node}{series}" for name, version in shown.items()
                 if version != node + series]
print(f"{len(shown)} symbols")
for problem in sorted(problems):
    print(problem)
sys.exit(1 if problems else 0)
