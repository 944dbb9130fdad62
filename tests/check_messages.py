#!/usr/bin/env python3
"""The messages that doc/troubleshooting.md quotes are those that the source prints: one string of the source has the fixed words of each
message, with a conversion wherever the page has an ellipsis. Usage: check_messages.py SOURCE_ROOT"""
import glob
import os
import re
import sys

PAGE = "doc/troubleshooting.md"
LITERAL = re.compile(r'"(?:[^"\\\n]|\\.)*"(?:\s*(?:PRI\w+\s*)?"(?:[^"\\\n]|\\.)*")*')
CONVERSION = re.compile(r"%[-+ #0]*[\d*]*(?:\.[\d*]+)?(?:hh|h|ll|l|z|j|t)?[a-zA-Z]")
RUN = re.compile(r"(?:…\.?)+…")  # "%d.%d", "%s%s"
LEAST_WORDS = 3  # so that a quotation cannot be found by chance


def strings(root):
    """Every string of the source as it would be quoted: pieces joined, conversions replaced."""
    for top in ("src", "launcher"):
        for path in glob.glob(os.path.join(root, top, "**", "*.c"), recursive=True):
            with open(path, encoding="utf-8") as file:
                for found in LITERAL.finditer(re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)):
                    text = re.sub(r'(?<!\\)"\s*PRI(\w)\w*\s*"', r"\1", found.group())  # "%" PRIu64 " bytes"
                    text = re.sub(r'(?<!\\)"\s*"', "", text)[1:-1].replace('\\"', '"').replace("\\n", "\n")
                    yield RUN.sub("…", CONVERSION.sub("…", text).replace("%%", "%"))


def main():
    root = sys.argv[1]
    with open(os.path.join(root, PAGE), encoding="utf-8") as file:
        rows = [line for line in file if line.startswith("| ") and not line.startswith("| message ")]
    printed = list(strings(root))
    bad = 0
    for row in rows:
        cells = [cell.strip() for cell in row.strip().strip("|").split("|")]
        quoted = re.fullmatch(r"`([^`]+)`", cells[0])
        if len(cells) != 3 or quoted is None:
            print(f"{PAGE}: not a row of a message, what it means and what to do: {row.strip()}")
            bad += 1
        elif len(re.findall(r"\w+", quoted.group(1))) < LEAST_WORDS or not any(quoted.group(1) in text for text in printed):
            print(f"{PAGE} quotes what is printed nowhere: {quoted.group(1)}")
            bad += 1
    if len(rows) < 30:
        print(f"{PAGE}: only {len(rows)} messages were found")
        bad += 1
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
