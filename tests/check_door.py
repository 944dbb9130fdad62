#!/usr/bin/env python3
"""One door: only the functions of src/runtime/base open, create, rename and remove files and print foreign text. They first check for
devices and named pipes, for links that somebody has placed there, and for escapes that a terminal would obey. Files that bypass them are in a
list here, with the reason. Usage: check_door.py SOURCE_ROOT"""
import glob
import os
import re
import sys

CALLS = re.compile(
    r"(?<![\w.>])((?:open|openat|openat2|creat|fopen|freopen)(?:64)?|rename|renameat2?|unlink|unlinkat|remove|rmdir|mkdir|mkdirat|mkstemps?|"
    r"mkostemps?|mkdtemp|tmpfile|tmpnam|tempnam|opendir|fdopendir|scandir|ftw|nftw|json_load_file|json_dump_file|gzopen) *\(")
PRINTS = re.compile(r"(?<![\w.>])(v?printf(?= *\()|puts(?= *\()|perror(?= *\()|fprintf *\( *(?:stderr|stdout)\b|fputs *\([^;]*?, *(?:stderr|stdout) *\))")

# FILE: its direct calls, and why they are right there.
KERNEL = "a file that the kernel makes"
PIPES = "the user may well name a pipe, as <(command)"
ROUND = {
    "launcher/info.c": ({"fopen", "open"}, KERNEL + ", and a descriptor of its own"),
    "launcher/supervise/command.c": ({"fopen", "open"}, "a program, whose first line names its interpreter; /dev/null"),
    "launcher/supervise/rank_cores.c": ({"open"}, KERNEL),
    "launcher/supervise/rank_gpus.c": ({"open", "scandir"}, KERNEL),
    "launcher/hosts/host_list.c": ({"fopen"}, PIPES),
    "launcher/supervise/launch.c": ({"unlink"}, "the token's file, which this process has made and looked at"),
    "launcher/output/output.c": ({"open"}, "its own stdout and stderr, again, by /proc/self/fd"),
    "launcher/hosts/parcel.c": ({"open"}, "/dev/null"),
    "launcher/supervise/held_ranks.c": ({"opendir"}, KERNEL),
    "launcher/supervise/monitor.c": ({"open", "opendir"}, KERNEL),
    "launcher/supervise/worker.c": ({"open"}, "/dev/null"),
    "src/runtime/checkpoint/snapshot_dir.c": ({"fdopendir"}, "a folder that is open by cddpi_folder_open_fd()"),
    "src/trainer/data/formats/image_list.c": ({"opendir"}, "words of its own: which class, how many folders"),
    "src/runtime/device/cuda/profile.c": ({"fopen"}, "a module without src/runtime/base, which writes where CDDP_PROFILE says"),
    "src/runtime/group/join/adopt.c": ({"fopen"}, KERNEL),
    "src/runtime/group/cuda/nccl/nccl_transport.c": ({"fopen"}, KERNEL),
    "src/runtime/group/launch/local_token.c": ({"mkdir", "open", "rename", "rmdir", "unlink"}, "0600 in a 0700 folder of this user's, looked at, O_EXCL, O_NOFOLLOW"),
    "src/runtime/group/launch/launch_token.c": ({"mkdir", "open", "unlink"}, "0600 and 0700, O_EXCL, O_NOFOLLOW, its owner looked at"),
    "src/runtime/group/net/tcp/address.c": ({"fopen"}, KERNEL),
    "src/runtime/group/join/rendezvous.c": ({"rmdir", "unlink"}, "what was made for the rendezvous, in a folder of its own"),
    "src/trainer/programs/tokenize/documents.c": ({"open"}, PIPES),
    "src/runtime/store/store_file.c": ({"unlink"}, "its own file, which cddpi_file_open_own() has opened"),
    "src/runtime/store/server.c": ({"open"}, "/dev/null, which keeps a descriptor free"),
    "src/trainer/train/config/config_file.c": ({"open"}, PIPES),
}
# Files that print strings with plain printf(), and why these cannot be foreign text.
PLAIN = {
    "launcher/info.c": "what kernel, machine and libraries are called",
    "src/runtime/group/launch/spawn_rank.c": "names of cddp's own variables",
    "src/trainer/programs/bench/bench_main.c": "words of cddp's own",
    "src/trainer/programs/bench/bench_options.c": "words of cddp's own",
    "src/trainer/programs/program.c": "a program's name, version and usage, and its failure",
    "src/trainer/programs/tokenize/tokenize_decode.c": "the text itself, which is data",
}
CLEAN = re.compile(r'cddp_last_error\(\)|cddp_version\(\)|strerror\(.*\)|[A-Z_]+|"[^"]*"')  # arguments that are


def source(path):
    """The text without comments, so that none is taken for code."""
    with open(path, encoding="utf-8") as file:
        return re.sub(r"/\*.*?\*/|//[^\n]*", " ", file.read(), flags=re.S)


def arguments(text, at):
    """The arguments of the call whose parenthesis is at AT."""
    depth, found, current, quoted = 0, [], "", False
    while at < len(text):
        letter = text[at]
        if letter == '"' and text[at - 1] != "\\":
            quoted = not quoted
        if not quoted and letter in "([{":
            depth += 1
        if not quoted and letter in ")]}":
            depth -= 1
            if depth == 0:
                return [part.strip() for part in found + [current]]
        if depth == 1 and letter == "," and not quoted:
            found.append(current)
            current = ""
        elif not (depth == 1 and letter == "(" and current == "" and not found):
            current += letter
        at += 1
    return []


def is_clean(argument):
    """Whether nobody else can have chosen the words."""
    branches = re.split(r"\s[?:]\s", argument)
    return all(CLEAN.fullmatch(branch.strip()) for branch in (branches[1:] if len(branches) > 2 else branches))


def prints_foreign(text, match):
    """Whether a call prints words that somebody else may have chosen."""
    given = arguments(text, text.index("(", match.start()))
    if match.group(1).startswith("fprintf"):
        given = given[1:]
    if match.group(1).startswith(("puts", "fputs", "perror")):
        return not all(piece.startswith('"') for piece in given[:1])
    form = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', given[0])) if given else ""
    kinds = re.findall(r"%[-+ #0]*(\*)?\d*(?:\.(\*)?\d*)?(?:hh|h|ll|l|z|j|t)?([a-zA-Z])", form.replace("%%", ""))
    at = 1
    for width, precision, kind in kinds:
        at += (width != "") + (precision != "")
        if kind == "s" and at < len(given) and not is_clean(given[at]):
            return True
        at += 1
    return False


def check_itself():
    """The check finds what it is for."""
    def prints(line):
        return any(prints_foreign(line, match) for match in PRINTS.finditer(line))

    assert CALLS.search('fd = open(path, O_RDONLY);') and CALLS.search("(void)unlink(temporary);")
    assert not CALLS.search("status = transport->cpu.open(members);") and not CALLS.search("cddpi_replacement_open(path)")
    assert prints('printf("%d: %s\\n", n, name);') and prints('fprintf(stderr, "x: %s", path);') and prints("perror(path);")
    assert not prints('fprintf(stderr, "cddp-run: %s\\n", cddp_last_error());') and not prints('fprintf(file, "%s", name);')
    assert not prints('printf("%d rank%s\\n", n, n == 1 ? "" : "s");') and prints('printf("%s", n == 1 ? "" : name);')
    assert prints('printf("%*s", 3, name);') and prints("puts(name);") and not prints('puts("words");')


def main():
    os.chdir(sys.argv[1])
    check_itself()
    bad = []
    found = {}
    for path in sorted(glob.glob("src/**/*.c", recursive=True) + glob.glob("launcher/**/*.c", recursive=True)):
        if path.startswith("src/runtime/base/"):
            continue
        text = source(path)
        calls = {match.group(1) for match in CALLS.finditer(text)}
        allowed = ROUND.get(path, (set(), ""))[0]
        found[path] = calls
        bad += [f"{path}: {call}() goes round src/runtime/base (base/file.h, replace.h, folder.h)" for call in sorted(calls - allowed)]
        if path not in PLAIN:
            bad += [f"{path}: {match.group(1)}: words of others are printed by cddpi_say() (base/streams.h): "
                    f"{' '.join(text[match.start():match.start() + 90].split())}"
                    for match in PRINTS.finditer(text) if prints_foreign(text, match)]
    bad += [f"tests/check_door.py: {path} has no {call}() any more" for path, (calls, _) in ROUND.items()
            for call in sorted(calls - found.get(path, set()))]
    bad += [f"tests/check_door.py: there is no {path}" for path in PLAIN if path not in found]
    print("\n".join(bad), end="\n" if bad else "")
    return len(bad) > 0


if __name__ == "__main__":
    sys.exit(main())
