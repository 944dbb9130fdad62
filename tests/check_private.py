#!/usr/bin/env python3
"""The trainer is a user of the runtime: the table in src/trainer/README.md lists exactly the private headers of the runtime that it
includes, with the reason. A new line there means that the public headers may lack something. Usage: check_private.py SOURCE_ROOT"""
import glob
import os
import re
import sys

os.chdir(sys.argv[1])
folders = "|".join(sorted(os.path.basename(os.path.dirname(path)) for path in glob.glob("src/runtime/*/")))
INCLUDE = re.compile(rf'^\s*#\s*include\s*"((?:{folders})/[\w/]+\.h)"', re.M)
used = {}
for path in glob.glob("src/trainer/**/*.[ch]", recursive=True):
    with open(path, encoding="utf-8") as file:
        for header in INCLUDE.findall(file.read()):
            used.setdefault(header, path)
with open("src/trainer/README.md", encoding="utf-8") as file:
    rows = [line for line in file if line.startswith("| `")]
listed = {header for row in rows for header in re.findall(r"`([\w/]+\.h)`", row.split("|")[1])}
bad = [f"{used[header]} includes {header} of the runtime, which src/trainer/README.md does not list" for header in sorted(used.keys() - listed)]
bad += [f"src/trainer/README.md lists {header}, which nothing in src/trainer includes" for header in sorted(listed - used.keys())]
print("\n".join(bad) if bad else f"{len(used)} private headers of the runtime")
sys.exit(bool(bad))
