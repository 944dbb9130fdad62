"""embed_page.py PAGE SCRIPT OUT - makes the page of a report a part of the program, as it is but for its script, which is
a file of its own, and its Content-Security-Policy, which gets the hashes of the page's styles and script."""
import base64
import hashlib
import re
import sys


def sources(page, tag):
    texts = re.findall(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
    return texts, " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in texts)


def plain(style):
    """The light form of a style sheet without variables, which not every viewer of pictures knows."""
    values = dict(re.findall(r"--([\w-]+):([^;}]+)", style.split("@media")[0]))
    rules = [line for line in style.split("\n") if not line.startswith("@media")]
    rules = re.sub(r":root\{[^}]*\}", "", "\n".join(rules)).strip()
    return re.sub(r"var\(--([\w-]+)\)", lambda match: values[match[1]], rules) + "\n"


def array(name, text):
    letters = ", ".join(f"'\\x{byte:02x}'" for byte in text.encode())
    return f"const char {name}[] = {{{letters}, 0}};\n"


with open(sys.argv[1], encoding="utf-8", newline="\n") as file:
    whole = file.read()
with open(sys.argv[2], encoding="utf-8", newline="\n") as file:
    whole = whole.replace("@SCRIPT@\n", file.read())
styles, style_hashes = sources(whole, "style")
scripts, script_hashes = sources(whole, "script")
whole = whole.replace("@STYLES@", style_hashes).replace("@SCRIPTS@", script_hashes)
before, rest = whole.split("@TIMELINES@\n")
between, after = rest.split("@RUNS@\n")
with open(sys.argv[3], "w", encoding="ascii") as file:
    file.write('#include "report/report_page.h"\n')
    for part in (("cddpi_page_head", before), ("cddpi_page_body", between), ("cddpi_page_tail", after),
                 ("cddpi_picture_style", plain(styles[0]))):
        file.write(array(*part))
