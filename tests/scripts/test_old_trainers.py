#!/usr/bin/env python3
"""A trainer that was written for cddp 0.1 does not compile, and the error names what doc/from-0.1-to-0.2.md speaks of; or it
compiles, and then it computes what today's trainer does, or ends with an error. It never trains wrongly in silence.
The trainers are those of examples/, with the patches that 0.1 had for them. Prints what the compiler says.
Usage: test_old_trainers.py SOURCE_ROOT BUILD_ROOT C_COMPILER"""
import os, re, shutil, subprocess, sys, tempfile

SOURCE, BUILD, CC = sys.argv[1:4]
CXX = os.environ.get("CXX", "c++")
OLD = os.path.join(SOURCE, "tests/examples/trainers_0.1")
TRAINERS = {"embed": ("c", CC, ["-std=c11"]), "embed_gpt2": ("c", CC, ["-std=c11"]), "embed_cpp": ("cpp", CXX, ["-std=c++17"])}
RANKS = "2"
ARGUMENTS = {"embed_gpt2": ["32", "8", "3"]}  # channels, batch, steps
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


def ranks_say(program, example):
    done = run(os.path.join(BUILD, "launcher/cddp-run"), "--nproc", RANKS, "--no-tag", "--", program, *ARGUMENTS.get(example, []))
    return done.returncode, sorted(line for line in done.stdout.splitlines() if line.startswith(("step ", "rank "))), done.stderr


def judge(name, source, page):
    """None, or what is wrong."""
    example = name.split()[0]
    _, compiler, flags = TRAINERS[example]
    program = source + ".out"
    made = run(compiler, *flags, "-D_GNU_SOURCE", f"-I{SOURCE}/include", source, "-o", program, f"-L{BUILD}/src", "-lcddp", "-lm",
               f"-Wl,-rpath,{BUILD}/src")
    if made.returncode != 0:
        errors, names = named_in(page, made.stderr)
        print(f"{name}: does not compile; the page has {', '.join(names) or 'none of these'}:")
        for line in errors or made.stderr.splitlines():
            print("    " + re.sub(r"^.*?(\w+\.\w+:\d+)", r"\1", line))
        return None if names else f"{name}: no error names anything in doc/from-0.1-to-0.2.md"
    code, out, err = ranks_say(program, example)
    if code != 0:
        print(f"{name}: compiles, and ends with an error:\n    " + err.strip().replace("\n", "\n    "))
        return None if err.strip() else f"{name}: it ends with {code} and says nothing"
    _, wanted, _ = ranks_say(os.path.join(BUILD, "examples", example + "_trainer"), example)
    if out == wanted and wanted:
        print(f"{name}: compiles, and computes what today's does")
        return None
    return f"{name}: it compiles and trains wrongly in silence: {out[-2:]}, not {wanted[-2:]}"


def main():
    if not shutil.which("patch"):
        print("patch is not here")
        return 77
    with open(os.path.join(SOURCE, "doc/from-0.1-to-0.2.md"), encoding="utf-8") as file:
        page = file.read()
    wrong = []
    for name, (ending, compiler, _) in TRAINERS.items():
        if not shutil.which(compiler):
            print(f"{name}: there is no {compiler}")
            continue
        with tempfile.TemporaryDirectory() as folder:
            source = os.path.join(folder, f"trainer.{ending}")
            subprocess.run(["patch", "-s", "-F0", "-o", source, f"{SOURCE}/examples/{name}/trainer_alone.{ending}", f"{OLD}/{name}.patch"],
                           check=True)
            wrong.append(judge(name, source, page))
            if name == "embed":
                with open(source, encoding="utf-8") as file:
                    text, count = BEGIN.subn("", file.read())
                with open(source, "w", encoding="utf-8") as file:
                    file.write(text)
                wrong.append(judge("embed without begin", source, page) if count == 3 else f"{name} has {count} lines of begin, not 3")
    for text in filter(None, wrong):
        print(text)
    return 1 if any(wrong) else 0


sys.exit(main())
