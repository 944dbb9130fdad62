#!/usr/bin/env python3
"""The pages that a user reads hold together: README.md is short, every relative link of README.md, doc/*.md and examples/README.md leads to a
file and a heading that exist, doc/README.md names every page of doc/, and what README.md and doc/*.md link to is in the Debian package `cddp`.
Usage: check_links.py SOURCE_ROOT"""
import fnmatch
import glob
import os
import re
import sys

MOST_LINES = 150  # of README.md
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```$|^    [^\n]*$", re.M | re.S)
DOC = "usr/share/doc/cddp/"


def read(root, name):
    with open(os.path.join(root, name), encoding="utf-8") as file:
        return file.read()


def anchors(text):
    """The names that GitHub gives to headings."""
    found = set()
    for heading in re.findall(r"^#+ +(.*?)\s*$", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S), re.M):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        found.add(re.sub(r"[^\w\- ]", "", heading).replace(" ", "-"))
    return found


def links(root, page):
    """(as written, file relative to the root, heading) of each relative link of a page."""
    for said in LINK.findall(CODE.sub("", read(root, page))):
        if "://" not in said and not said.startswith("mailto:"):
            path, _, heading = said.partition("#")
            yield said, os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page, heading


def shipped(root):
    """Every file below usr/share/doc/cddp that scripts/debian puts into the package cddp, without what builds make."""
    files = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith("build") and name != ".git"]
        files += [os.path.relpath(os.path.join(folder, name), root) for name in names]
    found = set()
    for list_name, target in (("cddp.docs", DOC), ("cddp.examples", DOC + "examples/"), ("cddp.install", None)):
        for line in read(root, "scripts/debian/" + list_name).splitlines():
            pattern, _, place = line.partition(" ")
            place = DOC if target == DOC else target or place.strip().rstrip("/") + "/"
            if not place.startswith(DOC):
                continue
            for name in files:
                if fnmatch.fnmatchcase(name, pattern) and name.count("/") == pattern.count("/"):
                    found.add(place + os.path.basename(name))
                elif any(fnmatch.fnmatchcase(name[: cut.start()], pattern) and pattern.count("/") == name[: cut.start()].count("/")
                         for cut in re.finditer("/", name)):  # in a folder that is copied whole
                    found.add(place + "/".join(name.split("/")[pattern.count("/"):]))
    for line in read(root, "scripts/debian/cddp.links").splitlines():
        to, name = line.split()
        if to in found or os.path.basename(to) == "NEWS.md":  # scripts/package makes it of CHANGELOG.md
            found.add(name)
    return found


def main():
    root = sys.argv[1]
    bad = []
    pages = sorted(os.path.relpath(path, root) for path in glob.glob(os.path.join(root, "doc", "*.md")))
    lines = read(root, "README.md").count("\n")
    if lines > MOST_LINES:
        bad.append(f"README.md has {lines} lines; {MOST_LINES} are enough for a first look")
    count = 0
    there = shipped(root)
    folders = {os.path.dirname(name) for name in there}
    for page in ["README.md", "examples/README.md", *pages]:
        for said, path, heading in links(root, page):
            count += 1
            full = os.path.join(root, path)
            if not os.path.exists(full):
                bad.append(f"{page} links to {said}, which does not exist")
            elif heading and heading not in anchors(read(root, path)):
                bad.append(f"{page} links to {said}: {path} has no such heading")
            elif page != "examples/README.md" and DOC + path not in there and not any((folder + "/").startswith(DOC + path + "/") for folder in folders):
                bad.append(f"{page} links to {said}, which scripts/debian does not put into the package cddp")
    named = {path for _, path, _ in links(root, "doc/README.md")}
    bad += [f"doc/README.md does not name {page}" for page in pages if page not in named | {"doc/README.md", "doc/mainpage.md"}]
    if count < 100:
        bad.append(f"only {count} links were found")
    for line in bad:
        print(line)
    return len(bad) > 0


if __name__ == "__main__":
    sys.exit(main())
