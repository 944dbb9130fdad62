#!/usr/bin/env python3
"""test_completions.py - bash and zsh complete exactly what the programs accept: the build's programs with the source's files, or both
as installed below PREFIX. Usage: test_completions.py SHELL BUILD SOURCE [PREFIX]"""
import os, pty, re, select, shutil, subprocess, sys, tempfile, time

SHELL, BUILD, SOURCE = sys.argv[1:4]
PREFIX = sys.argv[4] if len(sys.argv) > 4 else None
ZSH_FOLDER = os.path.join(PREFIX, "share", "zsh", "site-functions") if PREFIX else os.path.join(SOURCE, "scripts", "completions")
PROGRAMS = {name: os.path.join(PREFIX, "bin", name) if PREFIX else os.path.join(BUILD, folder, name) for folder, names in {
    "launcher": ["cddp-run", "cddp-ctl"], "src": ["cddp-train", "cddp-bench", "cddp-convert", "cddp-tokenize", "cddp-trace",
            "cddp-report"]}.items() for name in names}
COLLECTIVES = {"all_reduce", "all_gather", "all_to_all"}


def options_of(program):
    said = subprocess.run([PROGRAMS[program], "--help"], capture_output=True, text=True, check=True, timeout=60).stdout
    return set(re.findall(r"^  (?:-\w, )?(--[a-z-]+)", said, re.M))


def keys():
    said = subprocess.run([PROGRAMS["cddp-train"], "--keys=train."], capture_output=True, text=True, check=True, timeout=60).stdout
    found = {key + "=" for key in re.findall(r"^(train\.[\w.]+)$", said, re.M)}
    if len(found) < 20:
        raise SystemExit(f"cddp-train --keys=train. has {found}")
    return found


def in_bash(folder, *words):
    """All that bash offers for the last of the words."""
    file = os.path.join(PREFIX, "share", "bash-completion", "completions", os.path.basename(words[0])) if PREFIX else \
        os.path.join(SOURCE, "scripts", "completions", "cddp.bash")
    script = f'. "{file}"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _cddp; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", script, "bash", *words], capture_output=True, text=True, check=True, timeout=60,
                          cwd=folder, env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"})
    if done.stderr:
        raise SystemExit(f"bash: {words}: this comes into the prompt: {done.stderr}")
    return set(done.stdout.split())


class Zsh:
    """A zsh on a terminal: which is the only place where it completes."""

    def __init__(self, folder):
        pid, self.fd = pty.fork()
        if pid == 0:
            os.chdir(folder)
            os.environ.update(PATH=f"{folder}:{os.environ['PATH']}", TERM="dumb", ZDOTDIR=folder)
            os.execvp("zsh", ["zsh", "-f", "-i"])
        self.text = ""
        self.ask(f"unsetopt zle_bracketed_paste beep; unsetopt prompt_sp; PS1='<rea''dy>'; stty -echo columns 400 rows 200; fpath=({ZSH_FOLDER} $fpath); "
                 "autoload -Uz compinit; compinit -u -D; LISTMAX=9999; "
                 "setopt noautomenu nolistambiguous\n", "started")

    def ask(self, text, mark):
        """What is printed until the mark, which a command prints when the text was taken."""
        os.write(self.fd, text.encode() + f"print {mark[:3]}''{mark[3:]}\n".encode())
        said = self.until(mark)
        self.until("<ready>")  # until there is a prompt, the terminal itself takes ^D and ^U
        return said

    def until(self, mark):
        end = time.monotonic() + 120
        while mark not in self.text:
            if not select.select([self.fd], [], [], max(0, end - time.monotonic()))[0]:
                raise SystemExit(f"zsh does not answer: {self.text[-2000:]!r}")
            self.text += os.read(self.fd, 65536).decode(errors="replace")
        said, _, self.text = self.text.partition(mark)
        return said

    def complete(self, *words):
        """What it lists for the last of the words; ^D lists, ^U takes the line back."""
        return set(re.findall(r"[^\s]+", re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", " ", self.ask(" ".join(words) + "\x04\x15", "listed"))))


def check(what, got, wanted, exact=True):
    if not (got == wanted if exact else got >= wanted):
        raise SystemExit(f"{SHELL}: {what}: lacks {sorted(wanted - got)}, has besides {sorted(got - wanted)[:20] if exact else '-'}")


if shutil.which(SHELL) is None:
    print(f"there is no {SHELL}")
    sys.exit(77)
with tempfile.TemporaryDirectory(prefix="cddp-completions-") as temporary:
    for name, path in PROGRAMS.items():
        os.symlink(path, os.path.join(temporary, name))
    open(os.path.join(temporary, "mine.conf"), "w", encoding="utf-8").close()
    is_bash = SHELL == "bash"
    zsh = None if is_bash else Zsh(temporary)

    def complete(*words):
        return in_bash(temporary, *words) if is_bash else zsh.complete(*words)

    for name in PROGRAMS:
        check(f"all options of {name}", complete(name, "--"), options_of(name), exact=is_bash)
    check("an option's words", complete("cddp-run", "--bind", ""), {"auto", "core", "none"}, exact=is_bash)
    check("words beside a number", complete("cddp-run", "-n", ""), {"auto", "gpu"}, exact=is_bash)
    check("collectives", complete("cddp-bench", "all_"), COLLECTIVES, exact=is_bash)
    check("commands of cddp-ctl", complete("cddp-ctl", "folder", "s"), {"status", "stop"}, exact=is_bash)
    check("keys of train.conf", complete("cddp-train", "train."), keys() if is_bash else {k[:-1] for k in keys()}, exact=False)
    check("keys for cddp-run", complete("cddp-run", "mine.conf", "train."), keys() if is_bash else {k[:-1] for k in keys()}, exact=False)
    check("files", complete("cddp-run", "mi"), {"mine.conf"}, exact=False)
    check("programs behind --", complete("cddp-run", "--", "cddp-ben"), {"cddp-bench"}, exact=False)
    os.mkdir(os.path.join(temporary, "folder"))
    schedule = {f"optimizer.schedule.{word}" + ("=" if is_bash else "") for word in ("type", "warmup_steps", "decay")}
    check("keys behind a file whose name has a slash and a dot", complete("cddp-run", "folder/mine.conf", "optimizer.sch"), schedule, exact=False)
    check("formats of weights", complete("cddp-convert", "--to", ""), {"hf", "llmc", "cddp"}, exact=is_bash)
    check("elements of weights", complete("cddp-convert", "--type", "b"), {"bf16"}, exact=is_bash)
    check("operations", complete("cddp-bench", "-o", "m"), {"mean", "min", "max"}, exact=is_bash)
    check("keys behind --keys", complete("cddp-run", "--keys", "train.check"), {key[:-1] for key in keys() if key.startswith("train.check")}, exact=is_bash)
    for name in "cddp-train", "cddp-run":
        begun = [name, "--keys", "=", "train.check"] if is_bash else [name, "--keys=train.check"]
        check(f"keys behind --keys= of {name}", complete(*begun), {key[:-1] for key in keys() if key.startswith("train.check")}, exact=is_bash)

        def value(key, begin):
            return complete(name, "mine.conf", key, "=", begin) if is_bash else complete(name, "mine.conf", f"{key}={begin}")

        check(f"a key's words for {name}", value("optimizer.type", ""), {"sgd", "adamw"}, exact=is_bash)
        check("words of a long list", value("model.type", "resnet"), {"resnet18", "resnet20", "resnet34", "resnet50"}, exact=False)
        check("true and false", value("ddp.deterministic", ""), {"true", "false"}, exact=is_bash)
        check("a key's file", value("model.weights", "mi"), {"mine.conf"}, exact=False)
        if is_bash:
            check("nothing for a number", value("optimizer.lr", ""), set())
    if is_bash:
        check("words behind =", complete("cddp-run", "--bind", "=", ""), {"auto", "core", "none"})
        check("nothing for an option's number", complete("cddp-run", "--grace", ""), set())
