#!/usr/bin/env python3
"""Every function of the public headers says in its comment whether all ranks have to call it: "Collective: yes." (all call it,
and it may wait for them), "ordered." (all call it in the same order, none waits), "first call." (only the first on an object)
or "no." A comment /* Collective: no, all of these. */ says it for the functions below, up to the next such comment, the next type
or the next function that says it itself; the comment of a header says it for all of its functions that do not.
Usage: check_collective.py SOURCE_ROOT"""
import glob, os, re, sys

WORD = re.compile(r"Collective: (?:yes|ordered|first call|no)(, all of (?:these|them))?[.,;]")
PARTS = re.compile(r"/\*(?P<comment>.*?)\*/|(?P<type>^typedef\b)|\b(?:CDDP_API|CDDP_CHECKED|static inline)\b[^;{]*?\b"
                   r"(?P<name>cddp_\w+)\s*\(", re.S | re.M)
headers = sorted(glob.glob(os.path.join(sys.argv[1], "include", "cddp", "*.h")))
silent, count = [], 0
for header in headers:
    with open(header, encoding="utf-8") as file:
        text = re.sub(r"^#define.*(\\\n.*)*", "", file.read(), flags=re.M)
    own, section, whole = "", False, False
    for part in PARTS.finditer(text):
        if part["name"]:
            count += 1
            if WORD.search(own):
                section = False
            elif not section and not whole:
                silent.append(f"include/cddp/{os.path.basename(header)}: {part['name']}()")
            own = ""
        elif part["type"]:
            section = False
        else:
            comment = re.sub(r"\s*\n\s*\*? *", " ", part["comment"])
            word = WORD.search(comment)
            if comment.startswith("* @file"):
                whole = word is not None and word[1] is not None
            elif comment.startswith("*"):
                own = comment
            elif word:
                section = word[1] is not None
for function in silent:
    print(f'{function} does not say "Collective: yes.", "ordered.", "first call." or "no."')
print(f"{count} functions")
sys.exit(1 if silent or count == 0 else 0)
