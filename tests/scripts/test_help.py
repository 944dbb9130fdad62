#!/usr/bin/env python3
"""test_help.py - --help of every script in scripts/ helps at once and does nothing else. Usage: test_help.py SOURCE"""
import os, re, shutil, subprocess, sys, tempfile, time

SOURCE = sys.argv[1]
SECONDS = 10  # what a loaded machine may take; one that builds or installs takes longer, or leaves something
ACTORS = ("apt-get", "sudo", "meson", "ninja", "git", "unshare", "ip", "mount", "debootstrap", "cmake")
bad = 0


def refuse(text):
    global bad
    print(text)
    bad += 1


def scripts_of(folder):
    """What a user may start: files that say which interpreter they want."""
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            with open(path, "rb") as file:
                if file.read(2) == b"#!":
                    yield name


def tree(folder):
    """Each file with when it was changed; Python's caches are not the scripts' doing."""
    found = {}
    for where, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in folders + files:
            about = os.lstat(os.path.join(where, name))
            found[os.path.join(where, name)] = (about.st_mtime_ns if name in files else 0, about.st_size if name in files else 0)
    return found


with tempfile.TemporaryDirectory(prefix="cddp-help-") as temporary:
    root = os.path.join(temporary, "tree")
    shutil.copytree(os.path.join(SOURCE, "scripts"), os.path.join(root, "scripts"), ignore=shutil.ignore_patterns("__pycache__"))
    for name in "meson.build", "README.md":
        shutil.copy(os.path.join(SOURCE, name), root)
    acted = os.path.join(temporary, "acted")
    tools = os.path.join(temporary, "tools")
    os.mkdir(tools)
    for name in ACTORS:  # so that a script which acts is found out, and acts on nothing
        with open(os.path.join(tools, name), "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\necho "{name} $*" >>"{acted}"\nexit 1\n')
        os.chmod(os.path.join(tools, name), 0o755)
    # Without what a machine may lack: those that are imported before the help is printed.
    for name in "torch", "numpy", "safetensors", "PIL", "tokenizers", "regex":
        with open(os.path.join(temporary, name + ".py"), "w", encoding="utf-8") as file:
            file.write(f'raise SystemExit("{name} was imported")\n')
    before = tree(root)
    names = list(scripts_of(os.path.join(root, "scripts")))
    for name in names:
        path = os.path.join(root, "scripts", name)
        for words in ["--help"], ["-h"]:
            begin = time.monotonic()
            done = subprocess.run([path, *words] if os.access(path, os.X_OK) else [sys.executable, path, *words], cwd=temporary,
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300,
                                  env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "PYTHONPATH": temporary})
            took = time.monotonic() - begin
            said = f"scripts/{name} {words[0]}"
            if done.returncode != 0 or done.stderr:
                refuse(f"{said}: ends with {done.returncode}: {done.stderr[-500:]}")
            # "NAME - what it does" is no usage.
            if not re.search(rf"^( +|usage: )(python3? )?(\S*/)?{re.escape(name)}(?! - |[\w.-])", done.stdout, re.M | re.I):
                refuse(f"{said}: prints no usage: {done.stdout[:300]!r}")
            if took > SECONDS:
                refuse(f"{said}: takes {took:.1f} s")
            if os.path.exists(acted):
                with open(acted, encoding="utf-8") as file:
                    refuse(f"{said}: runs {file.read().strip()!r}")
                os.remove(acted)
            after = tree(root)
            for path_of in sorted(set(before) ^ set(after)) + [key for key in before if key in after and before[key] != after[key]]:
                refuse(f"{said}: changes {os.path.relpath(path_of, root)}")
            before = after
    if len(names) < 20:
        refuse(f"these are not all scripts: {names}")
    print(f"{len(names)} scripts")
sys.exit(1 if bad else 0)
