"""The C code in README.md and doc/*.md compiles as C11 against the public headers without a warning, and its programs give the
same losses with 1, 2 and 3 ranks, and resume from their checkpoint. cddp-train accepts the configurations.

A block of C is a whole file, or it replaces the line SNIPPET of the file that the comment before it names. A block after
the comment "program" is also run. Usage: test_doc_snippets.py SOURCE_ROOT BUILD_ROOT COMPILER [--compile-only]"""
import glob
import os
import re
import subprocess
import sys
import tempfile

SOURCE, BUILD = (os.path.abspath(path) for path in sys.argv[1:3])
CC = sys.argv[3]
FLAGS = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-I", os.path.join(SOURCE, "include")]
LIMIT_S = 300
PLACE = "/* SNIPPET */"
NO_DATA = re.compile(r"there is no such (?:file|folder)|No such file or directory")
BLOCK = re.compile(r"^(?:<!-- (.*?) -->\n)?```(\w*)\n(.*?)^```$", re.M | re.S)


def blocks(page, language="c"):
    """(line, comment, text) of each block of one language."""
    with open(page, encoding="utf-8") as file:
        text = file.read()
    for found in BLOCK.finditer(text):
        if found.group(2) == language:
            yield text.count("\n", 0, found.start(3)) + 1, found.group(1) or "", found.group(3)


def source(page, line, comment, text):
    name = os.path.relpath(page, SOURCE)
    if not comment.startswith("compiled within "):
        return f'#line {line} "{name}"\n{text}'
    with open(os.path.join(SOURCE, comment.removeprefix("compiled within ")), encoding="utf-8") as file:
        around = file.read()
    if around.count(PLACE) != 1:
        sys.exit(f"{comment}: it needs one line {PLACE}")
    return around.replace(PLACE, f'\n#line {line} "{name}"\n{text}')


def compile_block(where, page, line, comment, text):
    path = os.path.join(where, f"{os.path.basename(page)}.{line}.c")
    with open(path, "w", encoding="utf-8") as file:
        file.write(source(page, line, comment, text))
    said = subprocess.run([CC, *FLAGS, "-c", path, "-o", path + ".o"], check=False, capture_output=True, text=True)
    if said.returncode != 0:
        print(said.stderr)
        return None
    return path


def losses(program, folder, ranks):
    os.makedirs(folder, exist_ok=True)
    said = subprocess.run([os.path.join(BUILD, "launcher", "cddp-run"), "--nproc", str(ranks), "--", program], cwd=folder,
                          check=False, capture_output=True, text=True, timeout=LIMIT_S)
    if said.returncode != 0:
        sys.exit(f"{ranks} ranks of {program} failed with {said.returncode}:\n{said.stdout}{said.stderr}")
    return [float(number) for number in re.findall(r"loss (\S+)", said.stdout)]


def run_program(path):
    program = path.removesuffix(".c")
    subprocess.run([CC, *FLAGS, "-O2", path, "-o", program, "-L" + os.path.join(BUILD, "src"),
                    "-Wl,-rpath," + os.path.join(BUILD, "src"), "-lcddp", "-lm"], check=True)
    alone = losses(program, program + "-1", 1)
    assert len(alone) > 5 and alone[-1] < alone[0] / 5, f"it does not learn: {alone}"
    for ranks in (2, 3):
        many = losses(program, f"{program}-{ranks}", ranks)
        assert len(many) == len(alone), (alone, many)
        for one, other in zip(alone, many):
            assert abs(one - other) <= 1e-5 * abs(one), f"{ranks} ranks: {other}, alone {one}"
    again = losses(program, program + "-2", 3)
    assert len(again) == 1 and abs(again[0] - alone[-1]) <= 1e-5 * alone[-1], f"from the checkpoint: {again}, not {alone[-1]}"


def accepted(where, page, line, text):
    """cddp-train finds nothing wrong but, at most, that the reader's data are not here."""
    path = os.path.join(where, f"{os.path.basename(page)}.{line}.conf")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    said = subprocess.run([os.path.join(BUILD, "src", "cddp-train"), "--validate", path], check=False, cwd=where, capture_output=True, text=True)
    if said.returncode == 0 or NO_DATA.search(said.stderr):
        return True
    print(f"{os.path.relpath(page, SOURCE)}:{line}: {said.stdout}{said.stderr}")
    return False


def main():
    count, programs, bad, confs = 0, [], 0, 0
    pages = [os.path.join(SOURCE, "README.md"), *sorted(glob.glob(os.path.join(SOURCE, "doc", "*.md")))]
    with tempfile.TemporaryDirectory() as where:
        for page in pages:
            for line, _, text in blocks(page, "conf"):
                confs += 1
                bad += not accepted(where, page, line, text)
            for line, comment, text in blocks(page):
                path = compile_block(where, page, line, comment, text)
                count += 1
                bad += path is None
                if path and comment == "program":
                    programs.append(path)
        if bad:
            sys.exit(f"{bad} of {count} blocks of C and {confs} configurations are wrong")
        if "--compile-only" not in sys.argv:
            for path in programs:
                run_program(path)
    assert count >= 10 and (programs or bad), f"{count} blocks and {len(programs)} programs were found: are there no more?"
    assert confs >= 5, f"only {confs} configurations were found"
    print(f"{count} blocks of C compile, {len(programs)} of them are programs; {confs} configurations are accepted")


main()
