#!/usr/bin/env python3
"""The manual page, in section 3, of a public header: what its comments say, function by function.
Usage: header_page.py HEADER VERSION > PAGE

Understood is what include/cddp/ has: a comment that opens the file, /** */ before each declaration, with @param and
@return at the end."""
import os, re, sys

header, version = sys.argv[1:3]
name = os.path.basename(header)
stem = name.rsplit(".", 1)[0]
PAGE = {"cddp.h": "cddp", "cddp.hpp": "cddp.hpp"}.get(name, "cddp_" + stem)

PIECE = re.compile(r"""(?P<doc>/\*\*(?!/).*?\*/)            # what describes the next declaration
    |(?P<comment>^/\*.*?\*/)                                # what speaks of those that follow
    |(?P<macro>^\#[^\n]*(?:\\\n[^\n]*)*)
    |(?P<type>^(?:typedef[ ]+)?(?:struct|enum|union)\b[^;{]*(?:\{[^}]*\}[^;]*)?;|^typedef\b[^;]*;)
    |(?P<function>^(?:CDDP_API|CDDP_CHECKED|static[ ]inline|__attribute__\(\(\w+\)\)[ ]static[ ]inline)\b[^;{]*(?:;|\{))""",
                   re.X | re.S | re.M)


def roff(text):
    """Text, with what roff takes for commands made plain."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.M)


def words(text):
    """A line of text: functions and parameters stand out."""
    text = re.sub(r"\\fB|\\fI|\\fR", "", roff(text))
    text = re.sub(r"@p (\w+)", r"\\fI\1\\fR", text)
    return re.sub(r"\b(cddp_\w+)\(\)", r"\\fB\1\\fR()", text)


def lines_of(comment):
    """Lines of a comment without its stars."""
    inner = re.sub(r"^/\*+ ?|\s*\*/$", "", comment.strip())
    inner = re.sub(r" @p\n(\s*\* ?)", r"\n\1@p ", inner)  # beside its parameter
    return [re.sub(r"^\s*\* ?", "", line).rstrip() for line in inner.split("\n")]


def paragraphs(lines):
    """Running text as paragraphs; what is indented, as it stands."""
    out, block = [], []

    def close():
        if block and all(line.startswith("  ") for line in block) and not block[0].lstrip().startswith("-"):
            out.extend([".PP", ".nf", *(roff(line) for line in block), ".fi"])
        elif block:
            out.append(".PP")
            for line in block:
                if line.lstrip().startswith("- "):
                    out.append(".IP \\(bu 3")
                    line = line.lstrip()[2:]
                out.append(words(line.strip()))
        block.clear()

    for line in lines:
        if block and (line.startswith("  ") != block[-1].startswith("  ")) and not (
                block[-1].lstrip().startswith("- ") or line.lstrip().startswith("- ") or line == ""):
            if any(row.lstrip().startswith("- ") for row in block):
                block.append(line)
                continue
            close()
        if line == "":
            close()
        else:
            block.append(line)
    close()
    return out


def described(comment):
    """A doc comment: its text, then parameters and result."""
    text, rows = [], []
    for line in lines_of(comment):
        row = re.match(r"\s*@(param|return)s?\s+(.*)", line)
        if row:
            rows.append([row.group(1), row.group(2)])
        elif rows and line:
            rows[-1][1] += " " + line.strip()
        elif rows:
            rows[-1][1] += "\n"
        else:
            text.append(line.rstrip() if line.startswith("     ") else line.strip())
    out = paragraphs(text)
    for kind, said in rows:
        said = re.sub(r"[ \n]+", " ", said).strip()
        if kind == "param":
            parameter, _, said = said.partition(" ")
            out += [".TP", f"\\fI{parameter}\\fR", words(said.strip())]
        else:
            out += [".PP", "Returns " + words(said)]
    return out


def prototype(text):
    text = re.sub(r"__attribute__\(\(\w+\)\)\s*|\b(CDDP_API|CDDP_CHECKED|static inline)\b\s*", "", text.rstrip("{; \n"))
    return re.sub(r"\s+", " ", text).strip() + ";"


def split(text):
    """A prototype in lines that fit on a terminal."""
    if len(text) <= 76:
        return [text]
    head, _, rest = text.partition("(")
    out, line = [], head + "("
    for part in re.split(r"(?<=,) ", rest):
        if len(line) + len(part) > 76 and not line.endswith("("):
            out.append(line.rstrip())
            line = "        "
        line += part + (" " if part.endswith(",") else "")
    return out + [line.rstrip()]


with open(header, encoding="utf-8") as file:
    source = file.read()
opening = lines_of(re.match(r"/\*.*?\*/", source, re.S).group())
first_blank = opening.index("") if "" in opening else len(opening)
title = re.sub(r"^(@file\s+)?\S+ - ", "", " ".join(opening[:first_blank])).split(". ")
rest_of_title = ". ".join(title[1:])
title = re.split(r"[:;] ", title[0].rstrip("."))[0] if len(title[0]) > 100 else title[0].rstrip(".")

functions, types, doc, told = [], [], None, []
is_c = name.endswith(".h")
for piece in PIECE.finditer(source, re.match(r"/\*.*?\*/", source, re.S).end()) if is_c else ():
    text = piece.group()
    if piece.lastgroup == "doc":
        doc = text
    elif piece.lastgroup == "comment":
        told.append(text)
        doc = None
    elif piece.lastgroup == "macro":
        if re.match(r"#define CDDP_\w+_INIT\b", text) and types:
            types[-1][2].append(text.split()[1])
    elif piece.lastgroup == "type" and doc is not None:
        types.append((doc, text, []))
        doc = None
    elif piece.lastgroup == "function" and doc is not None:
        functions.append((doc, prototype(text), told))
        doc, told = None, []

out = [f'.TH {PAGE.upper()} 3 "" "cddp {version}" "cddp"', ".SH NAME",
       ", ".join(dict.fromkeys([PAGE] + [re.search(r"(\w+)\(", text).group(1) for _, text, _ in functions])) + " \\- " + roff(title),
       ".SH SYNOPSIS", ".nf", f"\\fB#include <cddp/{name}>\\fR"]
for _, text, _ in functions:
    out += [".PP", *(roff(line) for line in split(text))]
library = "cddp\\-model" if name == "model.h" else "cddp"
out += [".fi", ".PP", f"Compile and link with \\fIpkg\\-config \\-\\-cflags \\-\\-libs {library}\\fR.", ".SH DESCRIPTION"]
out += paragraphs(([rest_of_title, ""] if rest_of_title else []) + opening[first_blank + 1:]) or [".PP", words(title) + "."]
if types:
    out.append(".SH TYPES")
for comment, text, initialisers in types:
    out += described(comment)
    out += [".PP", ".nf", *(roff(line) for line in re.sub(r"@p\s+", "", text).replace("/**<", "/*").replace("/**", "/*").split("\n")), ".fi"]
    if initialisers:
        out += [".PP", "Begin with \\fB" + "\\fR or \\fB".join(initialisers) + "\\fR."]
if functions:
    out.append(".SH FUNCTIONS")
for comment, text, before in functions:
    out.append(".SS " + re.search(r"(\w+)\(", text).group(1))
    out += [".nf", *(f"\\fB{roff(line)}\\fR" for line in split(text)), ".fi"]
    for note in before:
        out += paragraphs(lines_of(note))
    out += described(comment)
out += [".SH SEE ALSO", ".BR cddp (7)," if PAGE == "cddp" else ".BR cddp (3),\n.BR cddp (7),", ".BR cddp\\-run (1)"]
print("\n".join(out))
