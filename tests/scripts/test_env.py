#!/usr/bin/env python3
"""test_env.py - a shell that has read BUILD/env knows all programs and manual pages by their names, and what scripts/quickstart builds and
recommends is among them. Usage: test_env.py BUILD SOURCE PROGRAM..."""
import os, re, shutil, subprocess, sys, tempfile

BUILD, SOURCE, *PROGRAMS = sys.argv[1:]
NAMES = sorted(os.path.basename(program) for program in PROGRAMS)
PAGES = os.path.join(BUILD, "man")
bad = 0


def refuse(text):
    global bad
    print(text)
    bad = 1


def say(shell, script):
    """What a shell prints that has read the file twice, as a user may."""
    env = {key: value for key, value in os.environ.items() if key not in ("MANPATH", "ENV", "BASH_ENV")}
    done = subprocess.run([*shell, "-c", f'set -eu; . "{BUILD}/env"; . "{BUILD}/env"; {script}'], cwd="/", env=env, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=60)
    if done.returncode != 0 or done.stderr:
        refuse(f"{' '.join(shell)}: {script}: ends with {done.returncode}: {done.stderr}")
    return done.stdout


for shell in ["sh"], ["bash", "--norc"], ["zsh", "-f"]:
    if shutil.which(shell[0]) is None:
        continue
    for name in NAMES:
        path = say(shell, f"command -v {name}").strip()
        if path != os.path.join(BUILD, "bin", name):
            refuse(f"{shell[0]}: {name} is {path}")
        if not say(shell, f"{name} --version").startswith(name + " "):
            refuse(f"{shell[0]}: {name} --version says something else")
    if say(shell, 'echo "$PATH"').count(f"{BUILD}/bin") != 1:
        refuse(f"{shell[0]}: the folder of programs is not in PATH once")
if "optimizer.lr\n" not in say(["sh"], "cddp-run --keys=optimizer"):
    refuse("cddp-run does not find cddp-train")
if shutil.which("man") and os.path.exists(os.path.join(PAGES, "man5", "train.conf.5")):
    # By its real path, as man prints it.
    for page in [*NAMES, "train.conf", "cddp_group", "cddp"]:
        if not say(["sh"], f"man -w {page}").startswith(os.path.join(os.path.realpath(BUILD), "doc") + "/"):
            refuse(f"man does not find {page}")
with open(os.path.join(SOURCE, "scripts", "quickstart"), encoding="utf-8") as file:
    quickstart = file.read()
with open(os.path.join(BUILD, "build.ninja"), encoding="utf-8") as file:
    built = re.search(rf"^build {re.search('^targets=([a-z]+)', quickstart, re.M)[1]}: phony (.*)$", file.read(), re.M)[1].split()
for name in NAMES:
    if not any(os.path.basename(target) == name for target in built):
        refuse(f"quickstart does not build {name}")
if os.path.exists(os.path.join(PAGES, "man5")) and "doc/train.conf.5" not in built:
    refuse("quickstart does not build the manual pages")
if any("tests/" in target for target in built):
    refuse("quickstart builds tests")
recommended = re.findall(r"^    (cddp-[a-z]+) ", quickstart, re.M)
if not recommended or set(recommended) - set(NAMES):
    refuse(f"quickstart recommends {recommended}")
# It may be started from any folder, and its advice is for its own. Here everything is installed and built.
with tempfile.TemporaryDirectory(prefix="cddp-env-") as folder:
    root = os.path.realpath(folder)
    for name in "scripts", "tools", "build/bin":
        os.makedirs(os.path.join(root, name))
    for name in "quickstart", "setup.sh":
        shutil.copy(os.path.join(SOURCE, "scripts", name), os.path.join(root, "scripts"))
    for name, text in ("build/build.ninja", ""), ("build/bin/cddp-run", "exit $STATUS"), ("tools/dpkg-query", "printf installed"), \
            ("tools/meson", ""), ("tools/ninja", ""):
        with open(os.path.join(root, name), "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\n{text}\n")
        os.chmod(file.name, 0o755)
    for status in 0, 3:
        done = subprocess.run([os.path.join(root, "scripts", "quickstart")], cwd="/", capture_output=True, text=True, timeout=60, check=False,
                              env={**os.environ, "PATH": f"{root}/tools:{os.environ['PATH']}", "STATUS": str(status)})
        if done.returncode != status or (f"\nNext, in {root}:\n    . build/env " in done.stdout) != (status == 0):
            refuse(f"quickstart ends with {done.returncode}, not {status}: {done.stdout}{done.stderr}")
sys.exit(bad)
