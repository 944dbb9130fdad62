#!/usr/bin/env python3
"""Finds files of a folder that depend on each other in a circle, from the symbols of their objects.

Usage: check_circles.py BUILD_DIR FOLDER MAX

FOLDER is a source folder ("src/trainer/train"), whose objects are in BUILD_DIR; folders below it
count, too. A circle is a strongly connected component: files each of which leads to every other one
by calls or by use of data. Fails if a circle has more than MAX files. Prints all circles, with the
symbols that make them."""
import json
import os
import subprocess
import sys


def objects(build, folder):
    """source file -> object, of FOLDER; of a file that is compiled several times, the first, but
    one that a test made for itself only where there is no other"""
    # from the root on, for tests/kernels is not kernels
    root = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    with open(os.path.join(build, "compile_commands.json")) as file:
        commands = json.load(file)
    found = {}
    for command in sorted(commands, key=lambda each: each["output"].startswith("tests/")):
        source = os.path.realpath(os.path.join(command["directory"], command["file"]))
        path = os.path.join(command["directory"], command["output"])
        start = os.path.join(root, folder, "")
        if source.startswith(start) and source.endswith(".c") and os.path.exists(path):
            found.setdefault(source[len(start):], path)
    return found


def symbols(path):
    """what an object defines for others, and what it takes from them"""
    defined, used = set(), set()
    text = subprocess.run([os.environ.get("NM", "nm"), path], check=True, capture_output=True, text=True).stdout
    for line in text.splitlines():
        kind, name = line.split()[-2:]
        if kind == "U":
            used.add(name)
        elif kind.isupper():
            defined.add(name)
    return defined, used


def circles(calls):
    """strongly connected components of more than one file (Tarjan)"""
    index, low, stack, found = {}, {}, [], []

    def visit(file):
        index[file] = low[file] = len(index)
        stack.append(file)
        for other in calls[file]:
            if other not in index:
                visit(other)
                low[file] = min(low[file], low[other])
            elif other in stack:
                low[file] = min(low[file], index[other])
        if low[file] == index[file]:
            at = stack.index(file)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for file in sorted(calls):
        if file not in index:
            visit(file)
    return sorted(found, key=len, reverse=True)


def main():
    build, folder, most = sys.argv[1], sys.argv[2].rstrip("/"), int(sys.argv[3])
    files = objects(build, folder)
    if not files:
        sys.exit(f"{build} has no objects of {folder}")
    tables = {file: symbols(path) for file, path in files.items()}
    owner = {name: file for file, (defined, _) in tables.items() for name in defined}
    calls = {file: {} for file in tables}
    for file, (_, used) in tables.items():
        for name in sorted(used):
            if owner.get(name, file) != file:
                calls[file].setdefault(owner[name], []).append(name)
    found = circles(calls)
    for circle in found:
        print(f"{folder}: a circle of {len(circle)} files: {' '.join(circle)}")
        for file in circle:
            for other in circle:
                if other in calls[file]:
                    print(f"    {file} -> {other}: {', '.join(calls[file][other])}")
    print(f"{folder}: {len(files)} files, {len(found)} circles, the largest of "
          f"{len(found[0]) if found else 0} files; {most} are allowed")
    return 1 if found and len(found[0]) > most else 0


sys.exit(main())
