#!/usr/bin/env python3
"""A manual page's text with the environment variables that src/runtime/base/env.h lists, at @ENVIRONMENT@.
Usage: environment_page.py PAGE ENV_H > FILLED_PAGE"""
import re, sys

page, table = sys.argv[1:3]


def plain(text):
    """Text that scdoc takes for nothing else."""
    return re.sub(r"([\\_*#<>\[\]~.])", r"\\\1", text)


with open(table, encoding="utf-8") as file:
    source = re.search(r"#define CDDPI_ENV_MAP\(X\)(.*?)\n\n", file.read().replace("\\\n", "\n") + "\n\n", re.S).group(1)
STRING = r'"(?:[^"\\]|\\.)*"'
rows = re.findall(rf"X\(\s*\w+,\s*({STRING}),\s*((?:{STRING}\s*)+),\s*((?:{STRING}\s*)+)\)", source)
listed = ""
for row in rows:
    name, default, text = ("".join(part.replace('\\"', '"') for part in re.findall(r'"((?:[^"\\]|\\.)*)"', field)) for field in row)
    listed += f"*{plain(name)}*" + (f" ({plain(default)})" if default else "") + f"\n\t{plain(text)}\n\n"
with open(page, encoding="utf-8") as file:
    sys.stdout.write(file.read().replace("@ENVIRONMENT@\n", listed))
