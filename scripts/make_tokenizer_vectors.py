#!/usr/bin/env python3
"""Make tests/vectors/tokenizer_*: a small vocabulary by Hugging Face's tokenizers, what it and a plain
Python BPE (regex, GPT-2's pattern) make of texts, and the merges that training must find.

    make_tokenizer_vectors.py [FOLDER]      (needs: pip install tokenizers regex)
"""
import usage

usage.show(__doc__)

import json
import os
import random
import sys

import regex
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

PATTERN = regex.compile(
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")
END = "<|endoftext|>"
LONGEST = 256  # bytes of a trained token

TEXT = """\
All human beings are born free and equal in dignity and rights. They are endowed with reason and
conscience and should act towards one another in a spirit of brotherhood. Everyone is entitled to
all the rights and freedoms set forth in this Declaration, without distinction of any kind, such as
race, colour, sex, language, religion, political or other opinion, national or social origin,
property, birth or other status. It's what they've said; we'll see, I'd say, we're sure, I'm, don't.
Alle Menschen sind frei und gleich an W\u00fcrde und Rechten geboren. Sie sind mit Vernunft und
Gewissen begabt und sollen einander im Geiste der Br\u00fcderlichkeit begegnen.
Tous les \u00eatres humains naissent libres et \u00e9gaux en dignit\u00e9 et en droits. Ils sont dou\u00e9s de raison.
\u0412\u0441\u0435 \u043b\u044e\u0434\u0438 \u0440\u043e\u0436\u0434\u0430\u044e\u0442\u0441\u044f \u0441\u0432\u043e\u0431\u043e\u0434\u043d\u044b\u043c\u0438 \u0438 \u0440\u0430\u0432\u043d\u044b\u043c\u0438 \u0432 \u0441\u0432\u043e\u0435\u043c \u0434\u043e\u0441\u0442\u043e\u0438\u043d\u0441\u0442\u0432\u0435 \u0438 \u043f\u0440\u0430\u0432\u0430\u0445.
\u03cc\u03bb\u03bf\u03b9 \u03bf\u03b9 \u03ac\u03bd\u03b8\u03c1\u03c9\u03c0\u03bf\u03b9 \u03b3\u03b5\u03bd\u03bd\u03b9\u03bf\u03cd\u03bd\u03c4\u03b1\u03b9 \u03b5\u03bb\u03b5\u03cd\u03b8\u03b5\u03c1\u03bf\u03b9
\u4eba\u4eba\u751f\u800c\u81ea\u7531,\u5728\u5c0a\u4e25\u548c\u6743\u5229\u4e0a\u4e00\u5f8b\u5e73\u7b49\u3002
\u0627\u0644\u0646\u0627\u0633 \u0623\u062d\u0631\u0627\u0631\u0627\u064b \u0645\u062a\u0633\u0627\u0648\u064a\u0646 \u0641\u064a \u0627\u0644\u0643\u0631\u0627\u0645\u0629
int main(void) { for (int i = 0; i < 10; i++) { printf("%d\\n", i * i); } return 0; }
1234567890 3.14159 2026-11-21 10,000,000 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa abababababababab ========
    four spaces	a tab,  two   three    four  and some at the end    
"""

CASES = [
    "", " ", "  ", "a", "\n", " a", "  a", "   a b  c ", "\r\n\r\nline\r\n", "a \n b\n\n  c\t\td \t",
    "it's IT'S he'll We've they're I'd I'm 'tis ''s '' 's't 'x !'s a'", "don\u2019t \u2018quote\u2019",
    "x=1;y+=22;// c0mment\t#!/bin/sh", "1\u00bd \u00b2\u00b3 \u2167 \u0661\u0662\u0663 \u4e00\u4e8c",
    "Na\u00efve caf\u00e9 cafe\u0301 \u00c5ngstr\u00f6m stra\u00dfe", "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u3053\u3093\u306b\u3061\u306f \uc548\ub155",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35 \u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627",
    "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \u2764\ufe0f x\U0001f600y",
    "a\u00a0b \u00a0 c\u2003\u2003d\u3000\u3000 e\u2028f\u2029g\u0085h\u1680i\u202f\u205f\u200bj\ufeffk",
    "\x00\x01\x02 \x1b[31m\x1c\x1d\x1e\x1f\x7f\x0b\x0c\x85", "a\x00b\x00\x00",
    END + "is text" + END, "\U0001d400\U0001d7ce\U00020000\U0010ffff \ue000\ufffd\ufffe",
    "trailing spaces   ", "trailing\n\n\n", " \n \n x", "\t\tindented\n\t\t\tmore", "a" * 100, "ab" * 90 + " " * 70 + "x",
    "human beings aren't equal in dignity, \u0447\u0435\u043b\u043e\u0432\u0435\u043a born free", "=" * 65 + "\n" * 130 + "0" * 129,
]

BROKEN = [b"\xff", b"a\xff\xfeb", b"\xc3", b"caf\xc3", b"\xc3 \xa9", b"\xe2\x82", b"x\xe2\x82y\xac", b"\xed\xa0\x80\xed\xb0\x80",
          b"\xf0\x9f\x98", b"\xf0\x9f\x98 \xf4\x90\x80\x80", b"\xc0\x80\xc1\xbf \xe0\x80\x80", b" \x80 \x81\x82  \x83\n\xbf", b"'\xff's \xffs"]


def byte_characters():
    kept = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    others = [b for b in range(256) if b not in kept]
    return {b: chr(b) for b in kept} | {b: chr(256 + i) for i, b in enumerate(others)}


WRITTEN = byte_characters()
READ = {c: b for b, c in WRITTEN.items()}


def words_of(data):
    text = data.decode("utf-8", "surrogateescape")
    words = [w.encode("utf-8", "surrogateescape") for w in PATTERN.findall(text)]
    assert b"".join(words) == data
    return words


def encode(data, ranks, ids):
    """The lowest rank first, the leftmost of equals: slow and plain."""
    out = []
    for word in words_of(data):
        parts = [bytes([b]) for b in word]
        while len(parts) > 1:
            rank, at = min((ranks.get((parts[i], parts[i + 1]), 1 << 60), i)
                           for i in range(len(parts) - 1))
            if rank == 1 << 60:
                break
            parts[at:at + 2] = [parts[at] + parts[at + 1]]
        out += [ids[p] for p in parts]
    return out


def train(data, merges):
    """The most frequent pair, of equals the lexicographically smallest; none that occurs once."""
    counts = {}
    for word in words_of(data):
        counts[word] = counts.get(word, 0) + 1
    words = [([bytes([b]) for b in word], n) for word, n in counts.items()]
    known = {bytes([b]) for b in range(256)}
    found = []
    while len(known) < 256 + merges:
        pairs = {}
        for parts, n in words:
            for pair in zip(parts, parts[1:]):
                pairs[pair] = pairs.get(pair, 0) + n
        pairs = {p: n for p, n in pairs.items() if n > 1 and len(p[0]) + len(p[1]) <= LONGEST}
        if not pairs:
            break
        best = min(pairs, key=lambda p: (-pairs[p], p))
        found.append(best)
        known.add(best[0] + best[1])
        for parts, _ in words:
            i = 0
            while i + 1 < len(parts):
                if (parts[i], parts[i + 1]) == best:
                    parts[i:i + 2] = [best[0] + best[1]]
                i += 1
    return found


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(
        os.path.dirname(os.path.abspath(__file__)), "..", "tests", "vectors")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator([TEXT], trainers.BpeTrainer(
        vocab_size=700, special_tokens=[END], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.save(os.path.join(folder, "tokenizer_small.json"), pretty=False)
    model = json.loads(tokenizer.to_str())["model"]
    unwritten = lambda token: bytes(READ[c] for c in token)
    ids = {unwritten(t): i for t, i in model["vocab"].items() if t != END}
    ranks = {tuple(map(unwritten, m)): i for i, m in enumerate(model["merges"])}

    random.seed(1)
    cases = [c.encode() for c in CASES] + BROKEN
    alphabet = [" ", " ", "\n", "'", "s", "re", "a", "the", "0", "-", "\u00e9", "\u4eba", "\U0001f600", "\u2003"]
    cases += ["".join(random.choices(alphabet, k=random.randint(5, 200))).encode() for _ in range(60)]
    cases += [bytes(random.choices(b"\xc3\xa9 \xe4\xba\xff\xf0\x9f\x98\x80a1\n'", k=60)) for _ in range(60)]
    with open(os.path.join(folder, "tokenizer_vectors.txt"), "w", encoding="ascii") as out:
        out.write("# text in hexadecimal: tokens (scripts/make_tokenizer_vectors.py)\n")
        for case in cases:
            tokens = encode(case, ranks, ids)
            try:
                text = case.decode()
            except UnicodeDecodeError:
                text = END  # tokenizers takes no such text
            if END not in text:
                assert tokenizer.encode(text).ids == tokens, text
            out.write(f"{case.hex()}: {' '.join(map(str, tokens))}\n")
    with open(os.path.join(folder, "tokenizer_text.txt"), "wb") as out:
        out.write(TEXT.encode())
    with open(os.path.join(folder, "tokenizer_merges.txt"), "w", encoding="ascii") as out:
        out.write("# what training on tokenizer_text.txt finds, in hexadecimal\n")
        for left, right in train(TEXT.encode(), 100000):
            out.write(f"{left.hex()} {right.hex()}\n")


if __name__ == "__main__":
    main()
