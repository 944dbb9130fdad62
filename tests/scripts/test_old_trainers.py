#!/usr/bin/env python3
"""A trainer that was written for cddp 0.1 does not compile, and the error names what doc/from-0.1-to-0.2.md speaks of. One
without cddp_ddp_begin(), which 0.1 did not ask for, compiles and ends with an error. It never trains wrongly in silence.
The trainers are those of examples/, with the patches that 0.1 had for them. Prints what the compiler says.
Usage: test_old_trainers.py SOURCE_ROOT BUILD_ROOT C_COMPILER"""
import os, re, shutil, subprocess, sys, tempfile

SOURCE, BUILD, CC = sys.argv[1:4]
CXX = os.environ.get("CXX", "c++")
OLD = os.path.join(SOURCE, "tests/examples/trainers_0.1")
# Ending, compiler, standard, and what the compiler has to name.
TRAINERS = {"embed": ("c", CC, "-std=c11", "weight"), "embed_gpt2": ("c", CC, "-std=c11", "weight"),
            "embed_cpp": ("cpp", CXX, "-std=c++17", "model")}
# In 0.1 a step needed no begin: it was a plain mean over ranks.
BEGIN = re.compile(r"^ *(cddp_step how\b|how\.|must\(cddp_ddp_begin\().*\n", re.M)


def run(*words):
    return subprocess.run(words, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}, timeout=300)


def named_in(page, said):
    """The names in the compiler's errors that the page has: ['cddp_ddp_join', ...]."""
    errors = [line for line in said.splitlines() if "error:" in line]
    quoted = [name for line in errors for name in re.findall(r"['\u2018]([^'\u2019]*)['\u2019]", line)]
    words = {word for name in quoted for word in re.findall(r"[A-Za-z_]\w*", name)} - {"cddp", "struct", "const", "int", "aka"}
    return errors, sorted(word for word in words if re.search(rf"`[^`]*\b{word}\b[^`]*`", page))


def build(compiler, standard, source, program):
    return run(compiler, standard, "-D_GNU_SOURCE", f"-I{SOURCE}/include", source, "-o", program, f"-L{BUILD}/src", "-lcddp", "-lm",
               f"-Wl,-rpath,{BUILD}/src")


def judge(name, source, page):
    """None, or what is wrong with the errors of the compiler."""
    _, compiler, standard, wanted = TRAINERS[name]
    made = build(compiler, standard, source, source + ".out")
    if made.returncode == 0:
        return f"{name}: it compiles"
    errors, names = named_in(page, made.stderr)
    print(f"{name}: does not compile; the page has {', '.join(names) or 'none of these'}:")
    for line in errors or made.stderr.splitlines():
        print("    " + re.sub(r"^.*?(\w+\.\w+:\d+)", r"\1", line))
    return None if wanted in names else f"{name}: no error names {wanted}, or it is not in doc/from-0.1-to-0.2.md"


def judge_without_begin(source):
    """None, or what is wrong with a trainer of C that has no begin."""
    with open(source, encoding="utf-8") as file:
        text, count = BEGIN.subn("", file.read())
    if count != 3:
        return f"embed has {count} lines of begin, not 3"
    with open(source, "w", encoding="utf-8") as file:
        file.write(text)
    made = build(CC, "-std=c11", source, source + ".out")
    if made.returncode != 0:
        return f"embed without begin: does not compile: {made.stderr}"
    done = run(os.path.join(BUILD, "launcher/cddp-run"), "--nproc", "2", "--no-tag", "--", source + ".out")
    print("embed without begin: ends with an error:\n    " + done.stderr.strip().replace("\n", "\n    "))
    if done.returncode == 0 or "was not begun" not in done.stderr:
        return f"embed without begin: it ends with {done.returncode}, and says: {(done.stdout + done.stderr)[-2000:]}"
    return None


def main():
    if not shutil.which("patch"):
        print("patch is not here")
        return 77
    with open(os.path.join(SOURCE, "doc/from-0.1-to-0.2.md"), encoding="utf-8") as file:
        page = file.read()
    wrong = []
    for name, (ending, compiler, _, _) in TRAINERS.items():
        if not shutil.which(compiler):
            print(f"{name}: there is no {compiler}")
            continue
        with tempfile.TemporaryDirectory() as folder:
            source = os.path.join(folder, f"trainer.{ending}")
            subprocess.run(["patch", "-s", "-F0", "-o", source, f"{SOURCE}/examples/{name}/trainer_alone.{ending}", f"{OLD}/{name}.patch"],
                           check=True)
            wrong.append(judge(name, source, page))
            if name == "embed":
                wrong.append(judge_without_begin(source))
    for text in filter(None, wrong):
        print(text)
    return 1 if any(wrong) else 0


sys.exit(main())
