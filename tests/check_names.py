#!/usr/bin/env python3
"""Every file of this repository that a document or a comment names exists; so does every C name, variable, key of train.conf and
option of our programs in doc/*.md and README.md. Usage: check_names.py SOURCE_ROOT

A file name is a word that ends like a source file or is in one of our folders. It may be relative to the root or to the
folder of the file that names it, or be the end of a path (group/engine/queue.c). MADE lists files that programs make, and
names of other projects."""
import os, re, subprocess, sys

root = sys.argv[1]
MADE = {
    "train.conf", "RUN_DIR/train.conf", "runs/NAME/train.conf",  # in a run's folder
    "small.conf", "text.conf", "gan.conf", "spiked.conf", "no.conf", "gpt.conf", "common.conf", "a.conf", "b.conf",
    "clothes.conf", "pets.conf", "books.conf", "NAME.conf",  # in examples of text, or made by tests
    "doc/gpu-results.md",  # once a GPU was there
    "cddp_config.h",  # made by Meson
    "cuda.h", "cuda_profiler_api.h",  # CUDA's
    "llm.c",  # a project
    "same_bits.c",  # what examples/embed/same_bits.patch makes of it
    "elastic.c",  # and examples/embed_elastic/cddp.patch
    "trainer.cu",  # what examples/embed_cuda/cddp.patch makes of trainer_alone.cu
    "some_torchrun_script.py", "train.py",  # users' programs
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

# Our names: C names and variables are words of the source; options and keys are in their tables.
def read(*tops, ends=(".c", ".h", ".hpp", ".cu", ".cuh", ".map")):
    return "\n".join(open(os.path.join(root, name), encoding="utf-8", errors="replace").read() for name in files
                     if name.startswith(tops) and name.endswith(ends))


source = read("include/", "src/", "launcher/", "samplers/", "kernels/")
words = set(re.findall(r"\w+", source)) | {"CDDP_" + word for word in re.findall(r"(?<=X\()\w+", read("include/"))}
words |= {"CDDP_OP_" + word for word in re.findall(r"(?<=X\()\w+", read("include/cddp/types.h"))}
words |= set(re.findall(r"\b[cC][dD]{2}[pP]_\w+", read("scripts/", "tests/", "examples/", ends="") + read("meson", ends="")))
keys = set(re.findall(r"KEY\((\w+(?:\.\w+)+)\)", read("src/trainer/train/config/schema.c")))
sections = "|".join(sorted({key.split(".")[0] for key in keys}))
options = set(re.findall(r'"([a-z][a-z-]+)"', read("launcher/run_options_own.h", "src/trainer/programs/")))
NAME = re.compile(r"\b(?:cddpi?|CDDPI?)_\w*\w(?!\w*[*])")
KEY = re.compile(rf"(?<![\w./-])(?:{sections})(?:\.[a-z][a-z0-9_]*)+(?![\w/(-])")
OURS = re.compile(r"\bcddp-(?:run|train|bench|trace|report|convert|tokenize)\b(?!\.)([^`|\n]*)")
ENDINGS = (".c", ".h", ".md", ".py", ".conf", ".sbatch", ".safetensors", ".svg", ".so", ".bin", ".html", ".txt", ".json")
for name in sorted(name for name in files if re.fullmatch(r"doc/[\w-]+\.md|README\.md", name)):
    text = open(os.path.join(root, name), encoding="utf-8").read()
    text = re.sub(r"\\\n\s*", "", text)  # commands that continue in the next line
    said = {("name", word) for word in NAME.findall(text) if word not in words and not word.endswith("_")}
    said |= {("key", key) for key in KEY.findall(text)
             if not key.endswith(ENDINGS) and key not in keys and not any(known.startswith(key + ".") for known in keys)}
    said |= {("option", "--" + option) for command in OURS.findall(text)
             for option in re.findall(r"(?<!\S)--([a-z][\w-]*)", re.split(r" -- |#", command)[0]) if option not in options}
    for kind, word in sorted(said):
        print(f"{name} names the {kind} {word}, which does not exist")
        missing += 1
sys.exit(1 if missing else 0)
