#!/usr/bin/env python3
"""libcddp.so exports exactly the symbols, with their versions, in src/runtime/cddp.symbols, and those that the public headers declare.
A symbol that is gone or has another version breaks programs that were linked before. Before 1.0 a minor version may do that: it has
a soname and a symbol version of its own, so that no program of another one starts with it.
Usage: check_exports.py SOURCE_ROOT LIBRARY [--write]; --write adds new symbols to the list, and drops those of another minor version."""
import glob, os, re, subprocess, sys

source, library = sys.argv[1:3]
listed = os.path.join(source, "src/runtime/cddp.symbols")
said = subprocess.run([os.environ.get("NM", "nm"), "-D", "--defined-only", "--with-symbol-versions", library], check=True,
                      capture_output=True, text=True).stdout
shown = {}
for line in said.splitlines():
    kind, name = line.split()[1:3]
    if kind != "A":  # the versions themselves
        name, _, version = name.partition("@@")
        shown[name] = version
with open(os.path.join(source, "meson.build"), encoding="utf-8") as file:
    major, minor = re.search(r"version: '(\d+)\.(\d+)\.", file.read()).groups()
series = f"{major}.{minor}"
soname = re.search(r"\(SONAME\).*\[(.*)\]", subprocess.run(["readelf", "-d", library], check=True,
                   capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}).stdout).group(1)
with open(listed, encoding="utf-8") as file:
    kept = dict(line.split() for line in file if not line.startswith("#"))

declared = set()
for header in glob.glob(os.path.join(source, "include", "cddp", "*.h")):
    with open(header, encoding="utf-8") as file:
        text = re.sub(r"/\*.*?\*/", " ", file.read(), flags=re.S)
    text = re.sub(r"^#define.*(\\\n.*)*", " ", text, flags=re.M)
    for part in re.split(r"\bCDDP_(?:API|CHECKED)\b", text)[1:]:
        declared.add(re.search(r"\b(cddp_\w+)\s*\(", part).group(1))

if "--write" in sys.argv:
    with open(listed, "w", encoding="utf-8") as file:
        file.write("# What libcddp.so shows, and since which version: tests/check_exports.py compares, --write adds.\n")
        old = {name: version for name, version in kept.items() if major != "0" or version == f"CDDP_{series}"}
        for name, version in sorted({**shown, **old}.items()):
            file.write(f"{name} {version}\n")
    sys.exit(0)

problems = [f"{name} is gone from {library}" for name in kept.keys() - shown.keys()]
problems += [f"{name} has version {shown[name] or 'none'}, and had {kept[name]}"
             for name in kept.keys() & shown.keys() if kept[name] != shown[name]]
problems += [f"{name} is not in src/runtime/cddp.symbols: add it with {sys.argv[0]} {source} {library} --write"
             for name in shown.keys() - kept.keys()]
problems += [f"{name} is shown by {library}, but no header in include/cddp declares it"
             for name in shown.keys() - declared]
problems += [f"{name} is declared in include/cddp, but {library} has no such symbol" for name in declared - shown.keys()]
wanted = os.path.basename(library).split(".so")[0] + ".so." + (series if major == "0" else major)
if soname != wanted:
    problems.append(f"{library} has the soname {soname}, not {wanted}")
if major == "0":
    problems += [f"{name} has version {version}: before 1.0 all have CDDP_{series}" for name, version in shown.items()
                 if version != f"CDDP_{series}"]
print(f"{len(shown)} symbols")
for problem in sorted(problems):
    print(problem)
sys.exit(1 if problems else 0)
