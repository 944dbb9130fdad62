#!/usr/bin/env python3
"""Every file of this repository that a document or a comment names exists. Usage: check_names.py SOURCE_ROOT

A name is what ends like a source file or lies in one of our folders. It may be said from the root, from the
folder of the file that says it, or by its last parts (group/queue.c). MADE lists what programs make, and
names of other projects'."""
import os, re, subprocess, sys

root = sys.argv[1]
MADE = {
    "train.conf", "RUN_DIR/train.conf", "runs/NAME/train.conf",  # in a run's folder
    "small.conf", "spiked.conf", "no.conf", "gpt.conf", "common.conf", "a.conf", "b.conf",  # in examples of text, or made by tests
    "doc/gpu-results.md",  # once a GPU was there
    "cddp_config.h",  # made by Meson
    "cuda.h", "cuda_profiler_api.h",  # CUDA's
    "llm.c",  # a project
    "some_torchrun_script.py",
}
SAID = re.compile(r"(?<![\w/.$*<{@-])((?:\.{1,2}/)?(?:[\w-]+/)*[\w-]+\.(?:c|h|cu|cuh|md|py|sh|conf|scd|svg))(?!\.?[\w*/>-])")
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
PYTHON = re.compile(r'""".*?"""|#[^\n]*', re.S)

files = [os.path.relpath(os.path.join(folder, name), root)
         for top in ("doc", "examples", "include", "kernels", "launcher", "samplers", "scripts", "src", "tests")
         for folder, _, names in os.walk(os.path.join(root, top)) for name in names]
files += [name for name in os.listdir(root) if os.path.isfile(os.path.join(root, name))]
ends = set()
for name in files:
    parts = name.split("/")
    ends.update("/".join(parts[i:]) for i in range(len(parts)))
missing = 0
for name in sorted(files):
    if name.startswith("tests/vectors/") or not name.endswith((".md", ".scd", ".c", ".h", ".cu", ".cuh", ".py", ".sh", ".conf")):
        continue
    text = open(os.path.join(root, name), encoding="utf-8", errors="replace").read()
    if name.endswith((".md", ".scd", ".sh", ".conf")):
        spans = [text.replace("\\_", "_").replace("_RUN", "RUN").replace("DIR_", "DIR")]
    else:
        spans = [m.group() for m in (PYTHON if name.endswith(".py") else COMMENT).finditer(text)]
    for span in spans:
        for said in SAID.findall(span):
            plain = said.lstrip("./") if said.startswith(".") else said
            beside = os.path.normpath(os.path.join(os.path.dirname(name), said))
            if plain in MADE or plain in ends or beside in files:
                continue
            print(f"{name} names {said}, which does not exist")
            missing += 1
sys.exit(1 if missing else 0)
