#!/usr/bin/env python3
"""test_pages.py - the manual pages generated from headers have everything that these declare, and troff accepts all pages.
With PREFIX: the pages installed there.
Usage: test_pages.py BUILD SOURCE [PREFIX]"""
import glob, os, re, shutil, subprocess, sys

BUILD, SOURCE = sys.argv[1:3]
PREFIX = sys.argv[3] if len(sys.argv) > 3 else None
bad = 0


def place(page):
    return os.path.join(PREFIX, "share", "man", "man" + page[-1], page) if PREFIX else os.path.join(BUILD, "doc", page)


def refuse(text):
    global bad
    print(text)
    bad = 1


def shown(page, *options):
    done = subprocess.run(["groff", "-man", "-Tutf8", "-P-c", "-ww", *options, page], capture_output=True, text=True, timeout=120)
    if done.stderr.strip():
        refuse(f"{page}: {done.stderr.strip()}")
    return re.sub(r".\x08", "", done.stdout)


if shutil.which("groff") is None:
    print("there is no groff")
    sys.exit(77)
headers = {"cddp_" + os.path.basename(path)[:-2]: path for path in glob.glob(os.path.join(SOURCE, "include", "cddp", "*.h"))}
headers["cddp"] = headers.pop("cddp_cddp")
for page, header in sorted(headers.items()):
    path = place(page + ".3")
    if not os.path.exists(path):
        refuse(f"{header} has no page in doc/meson.build")
        continue
    text = shown(path, "-rLL=300n", "-rHY=0")
    name = re.search(r"^NAME\n((?: .*\n)+)", text, re.M)
    name = name and re.fullmatch(r"(.*?) - (.*)", " ".join(name[1].split()))
    if not name or not re.fullmatch(r"[A-Za-z][^@\\*{}]*", name[2]) or len(set(name[1].split(", "))) != len(name[1].split(", ")):
        refuse(f"{page}(3): its NAME is no name and a plain sentence, which apropos(1) would show: {name and name[0]}")
    with open(header, encoding="utf-8") as file:
        source = file.read()
    for line in re.findall(r"^ \* {6,9}(\S.*)", source, re.M):  # what is indented stays as it stands
        if not re.search(rf"^ +{re.escape(line)}$", text, re.M):
            refuse(f"{page}(3) does not show the line: {line}")
    source = re.sub(r"/\*.*?\*/", " ", source, flags=re.S)
    source = re.sub(r"^#define.*(\\\n.*)*", " ", source, flags=re.M)
    for function in re.findall(r"(?<!return )\b(cddp_\w+)\s*\([^;{)]*\)\s*[;{]", source):
        if f"\n   {function}\n" not in text:
            refuse(f"{page}(3) says nothing of {function}()")
    for kind in re.findall(r"typedef (?:struct|enum) (cddp_\w+)", source):
        if kind not in text:
            refuse(f"{page}(3) says nothing of {kind}")
    for word in ("@p ", "@param", "@return", "@file", "/**\n", "/*<"):
        if word in text:
            refuse(f"{page}(3) shows {word}")
seventh = place("cddp.7")
if os.path.exists(seventh):
    text = shown(seventh, "-rLL=300n", "-rHY=0")
    listed = subprocess.run([os.path.join(BUILD, "launcher", "cddp-run"), "--env"], capture_output=True, text=True, check=True,
                            timeout=60).stdout
    names = re.findall(r"^(CDDP_\w+)", listed, re.M)
    for name in names:
        if not re.search(rf"^ +{name}\b", text, re.M):
            refuse(f"cddp(7) does not list {name}")
    print(f"{len(names)} variables")
    pages = [page + ".3" for page in headers] + [os.path.basename(path)[:-4] for path in glob.glob(os.path.join(SOURCE, "doc", "*.[15].scd"))]
    programs = set()
    for folder in "src", "launcher":
        with open(os.path.join(SOURCE, folder, "meson.build"), encoding="utf-8") as file:
            programs |= set(re.findall(r"executable\('(cddp-[a-z]+)'", file.read()))
    if PREFIX:
        programs |= set(os.listdir(os.path.join(PREFIX, "bin")))
    if len(programs) < 7:
        refuse(f"these are not all programs: {programs}")
    for page in pages + ["cddp.hpp.3"] + [program + ".1" for program in programs]:
        if f"{page[:-2]}({page[-1]})" not in text:
            refuse(f"cddp(7) does not name {page[:-2]}({page[-1]})")
fifth = place("train.conf.5")
if os.path.exists(fifth):
    text = shown(fifth, "-rLL=300n", "-rHY=0")
    listed = subprocess.run([os.path.join(BUILD, "src", "cddp-train"), "--keys"], capture_output=True, text=True, check=True, timeout=60).stdout
    keys = re.findall(r"^([a-z_0-9.]+)$", listed, re.M)
    if len(keys) < 100:
        refuse(f"cddp-train --keys lists only {keys}")
    for key in keys:
        if not re.search(rf"^ +{re.escape(key)} \(", text, re.M):
            refuse(f"train.conf(5) does not list {key}")
    for key in re.findall(r"^ +([a-z_0-9.]+) \((?:word|bool|int|real|string|stages|layers)", text, re.M):
        if key not in keys:
            refuse(f"train.conf(5) lists {key}, and cddp-train --keys does not")
    print(f"{len(keys)} keys")
for source in glob.glob(os.path.join(SOURCE, "doc", "*.[157].scd")):
    page = place(os.path.basename(source)[:-4])
    if os.path.exists(page):
        shown(page)
    elif os.path.exists(seventh):
        refuse(f"there is no {page}")
print(f"{len(headers)} headers")
sys.exit(bad)
