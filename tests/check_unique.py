#!/usr/bin/env python3
"""One name, one thing: each file name, and each tag of a struct, a union or an enum, occurs once in the sources. So readers who
search for a name, debuggers and ctags find one place. Usage: check_unique.py SOURCE_ROOT"""
import collections
import os
import re
import sys

TOPS = ("src", "launcher", "kernels", "samplers", "include")
OFTEN = {"meson.build", "README.md", "module.map"}  # of a folder, by their purpose
TAG = re.compile(r"\b(?:struct|union|enum)\s+(?:__attribute__\s*\(\(\w+\)\)\s*)?(\w+)\s*\{")
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)


def main():
    os.chdir(sys.argv[1])
    places = collections.defaultdict(set)
    for top in TOPS:
        for folder, _, names in os.walk(top):
            for name in names:
                path = os.path.join(folder, name)
                # cddp/ddp.h is public, ddp/ddp.h what lies behind it
                if name not in OFTEN and top != "include":
                    places["the file name " + name].add(path)
                if name.endswith((".c", ".h", ".cu", ".cuh")):
                    with open(path, encoding="utf-8") as file:
                        for tag in TAG.findall(COMMENT.sub(" ", file.read())):
                            places["the tag " + tag].add(path)
    twice = {what: paths for what, paths in places.items() if len(paths) > 1}
    for what, paths in sorted(twice.items()):
        print(f"{what} stands for {len(paths)} things: {' '.join(sorted(paths))}")
    return 1 if twice else 0


sys.exit(main())
