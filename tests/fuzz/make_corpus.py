#!/usr/bin/env python3
"""make_corpus - writes the fuzzers' initial inputs: tests/fuzz/corpus/NAME/.

Files there with other names are inputs that once found a bug; they stay."""
import gzip, io, json, os, struct, zipfile

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")
SET, GET, TRY_GET, ADD, COMPARE_SET, WAIT, DELETE, LIST, CANCEL = range(1, 10)


def put(harness, name, data):
    os.makedirs(f"{FOLDER}/{harness}", exist_ok=True)
    with open(f"{FOLDER}/{harness}/{name}", "wb") as file:
        file.write(data)


def message(code, body=b"", number=1, flags=0):
    return struct.pack("<IIBBH", len(body), number, code, flags, 0) + body


def key(text):
    return struct.pack("<H", len(text)) + text


def pieces(*parts, who=3):
    return bytes([who]) + b"".join(bytes([how, len(data)]) + data for how, data in parts)


def store():
    put("store_server", "each", pieces(
        (0, message(SET, key(b"k") + b"value")), (1, message(GET, key(b"k"))), (0, message(TRY_GET, key(b"no"))),
        (0, message(ADD, key(b"n") + struct.pack("<q", 5))), (1, message(LIST, key(b""))), (1, message(LIST, key(b"k"), flags=1)),
        (1, message(COMPARE_SET, key(b"k") + struct.pack("<I", 5) + b"value" + b"other", flags=1)),
        (0, message(WAIT, key(b"k") + key(b"n"))), (0, message(DELETE, key(b"k")))))
    put("store_server", "waits", pieces(
        (0, message(GET, key(b"w"))), (1, message(SET, key(b"w") + b"1")), (1, message(WAIT, key(b"w") + key(b"k"))),
        (4, message(TRY_GET, key(b"k")))))
    put("store_server", "cancels", pieces(
        (0, message(WAIT, key(b"x") + key(b"y"))), (0, message(CANCEL)), (1, message(GET, key(b"x"))),
        (1, message(CANCEL)), (1, message(CANCEL))))
    put("store_server", "deaf", pieces((2, message(SET, key(b"k") + b"v" * 200)), (2, message(GET, key(b"k")) * 12),
                                       (0, message(GET, key(b"k")))))
    put("store_server", "stranger", pieces(
        (0, struct.pack("<QII", 0x31726F7473706463, 3, 0) + bytes(100)), (1, b"GET / HTTP/1.1\r\n\r\n"), who=0))
    put("store_server", "older", pieces((0, struct.pack("<QII", 0x31726F7473706463, 2, 0) + bytes(64)), who=0))
    put("store_server", "records", pieces((8, struct.pack("<I", 40) + bytes(40)), (9, struct.pack("<I", 70000)),
                                          (0, message(GET, key(b"k")))))
    good = [message(0), message(0, b"value", 2), message(0, b"6", 3), message(0, b"w", 4, 1), message(0, b"", 5),
            message(0, b"", 6, 1), message(0, key(b"job/a") + key(b"job/b"), 7),
            message(0, key(b"job/a") + struct.pack("<I", 5) + b"value" + key(b"job/b") + struct.pack("<I", 0), 8)]
    put("store_client", "good", b"\0" + b"".join(good))
    good[1] = message(4, b"", 2)  # CDDP_ERR_TIMEOUT, and of a wait with what was missing
    good[4] = message(4, struct.pack("<I", 2) + key(b"job/a") + key(b"job/b"), 5)
    put("store_client", "late", b"\0" + message(0, b"of another", 99) + b"".join(good))
    put("store_client", "greeting", b"\1" + struct.pack("<QII", 0x31726F7473706463, 3, 0) + bytes(32) + bytes(72))
    put("store_client", "full", b"\1" + struct.pack("<QII", 0x31726F7473706463, 3, 1) + bytes(32))
    put("store_client", "older", b"\1" + struct.pack("<QII", 0x31726F7473706463, 2, 0) + bytes(32))
    put("store_client", "records", b"\2" + struct.pack("<I", 40) + bytes(40) + struct.pack("<I", 70000))


def net_tcp():
    begin = b"cddpnet\n" + struct.pack("<I", 2)

    def frame(tag, data, number=0, total=None, offset=0, kind=1):
        return struct.pack("<IIQQQ", kind << 24 | tag, number, len(data) if total is None else total, offset, len(data)) + data

    def abort(text, operation=b"all_reduce #12", status=-3):
        return b"a" + struct.pack("<iiiiIIHH", status, 1, 1, 104, 0, 8, len(operation), len(text)) + operation + text

    put("net_tcp", "stranger", pieces((0, b"GET / HTTP/1.1\r\n\r\n"), (1, begin + bytes(144)), who=0))
    put("net_tcp", "answer", pieces(
        (0, begin + struct.pack("<6I", 1, 0, 1, 0, 2, 0) + bytes(132)), (1, begin[:8]), (1, begin[8:]), who=0))
    put("net_tcp", "hello", pieces((0, begin + bytes(32)), (0, struct.pack("<I", 2) + bytes(68)),
                                   (1, begin + bytes(32)), (1, bytes(72)), who=1))
    put("net_tcp", "control", pieces((0, b"hh"), (0, abort(b"rank 1: gone")[:20]), (0, abort(b"rank 1: gone")[20:]),
                                     (5, frame(1, b"0123456789")), (0, b"hg"), who=2))
    put("net_tcp", "injected", pieces((2, abort(b"rank 1: gone")), (1, frame(0, b"", kind=2)), who=2))
    put("net_tcp", "frames", pieces(
        (4, frame(1, b"0123456789")), (4, frame(2, b"", 1)), (5, frame(3, bytes(100), 2, 1000, 900)),
        (4, frame(4, b"x" * 33, 4)), (5, frame(3, bytes(200), 2, 1000, 0)), (4, frame(0, b"", kind=2)), who=3))
    put("net_tcp", "mismatch", pieces((4, frame(1, b"012345678")), (5, frame(9, b"1", 7)), who=3))
    put("net_tcp", "records", pieces((2, struct.pack("<I", 50) + bytes(50)), (3, struct.pack("<I", 70000)), who=11))
    put("net_tcp", "secret", pieces((4, frame(1, b"0123456789")), (5, frame(2, b"", 1)), (4, frame(0, b"", kind=2)), who=11))
    put("net_tcp", "encrypted", pieces((0, begin + struct.pack("<6I", 1, 0, 1, 1, 2, 1) + bytes(132)), who=8))


def safetensors():
    def file(header, data):
        text = json.dumps(header, separators=(",", ":")).encode()
        return struct.pack("<Q", len(text)) + text + data

    put("safetensors", "one", file({"w": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}}, bytes(16)))
    put("safetensors", "several", file({
        "__metadata__": {"format": "pt"}, "a": {"dtype": "BF16", "shape": [3], "data_offsets": [0, 6]},
        "b": {"dtype": "I64", "shape": [], "data_offsets": [6, 14]},
        "c": {"dtype": "BOOL", "shape": [0, 5], "data_offsets": [14, 14]}}, bytes(14)))
    put("safetensors", "padded", struct.pack("<Q", 8) + b"{}      ")


def config():
    data = b'data = { type = "synthetic"; samples = 64; image = [1, 8, 8]; classes = 4; };\n'
    put("config", "small", b'model = { type = "mlp"; hidden = [16]; };\n' + data +
        b"train = { epochs = 1; batch_size = 8; seed = 12345678901L; };\n"
        b'optimizer = { lr = 0.1; schedule = { type = "cosine"; warmup_steps = 2; }; };\n')
    put("config", "includes", b'@include "a.conf"\n' + data + b"\f" b'model = { hidden = [8];\n@include "b.conf"\n};\n'
        b"\fdropout = 0.5;\n\ftrain.batch_size=16")
    put("config", "layers", data + b'# one\n// two\n/* three */ model = { type = "layers"; layers = (\n'
        b'{ type = "flatten"; }, { type = "linear"; out = 4; bias = false; }); };\n')
    put("config", "text", b'model = { type = "gpt2"; context = 16; blocks = 1; heads = 2; embed = 8; };\n'
        b'data = { type = "text"; train = ["a.txt", "b \\"*\\".txt"]; };\ntrain = { generate_prompt = "Hi\\n\\x41"; };\n'
        b"\f\f\foptimizer.type=adamw")


def idx():
    images = bytes([0, 0, 8, 3]) + struct.pack(">III", 3, 2, 2) + bytes(range(12))
    colour = bytes([0, 0, 8, 4]) + struct.pack(">IIII", 3, 3, 1, 2) + bytes(range(18))
    labels = bytes([0, 0, 8, 1]) + struct.pack(">I", 3) + bytes([0, 9, 4])
    for name, how, pictures in (("plain", 0, images), ("zipped", 7, images), ("colour", 5, colour),
                                ("members", 4, gzip.compress(images[:9], mtime=0) + gzip.compress(images[9:], mtime=0))):
        put("idx", name, bytes([how]) + struct.pack("<H", len(labels)) + labels + pictures)


def tokens():
    def file(magic, version, form, numbers):
        return struct.pack("<iii", magic, version, len(numbers)) + bytes(1012) + struct.pack(f"<{len(numbers)}{form}",
                                                                                              *numbers)

    put("tokens", "narrow", b"\0" + file(20240520, 1, "H", [1, 2, 50256, 4, 5, 6, 7, 8, 9, 10]))
    put("tokens", "wide", b"\0" + file(20240801, 7, "I", [1, 128255, 3, 4, 5, 6]))
    put("tokens", "two", bytes([65]) + file(20240520, 1, "H", range(8)) + file(20240520, 1, "H", [60000] * 9))


def npy():
    def array(descr, shape, values, version=1, order=False):
        text = f"{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}".encode()
        head = 10 if version == 1 else 12
        text += b" " * (-(head + len(text) + 1) % 64) + b"\n"
        length = struct.pack("<H" if version == 1 else "<I", len(text))
        return b"\x93NUMPY" + bytes([version, 0]) + length + text + values

    def two(x, y, real=0):
        return bytes([real]) + struct.pack("<H", len(y)) + x + y

    def archive(method, **members):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", method) as file:
            for name, data in members.items():
                with file.open(zipfile.ZipInfo(name + ".npy"), "w", force_zip64=True) as member:
                    member.write(data)
        return bytes([2, 0, 0]) + out.getvalue()

    six = struct.pack("<6f", *range(6))
    x = array("<f4", "(2, 3)", six)
    y = array("<i8", "(2,)", struct.pack("<2q", 1, 0))
    put("npy", "classes", two(x, y))
    put("npy", "real", two(array("<f8", "(2, 1, 1, 3)", struct.pack("<6d", *range(6)), 2), x, 1))
    put("npy", "half", two(array("<f2", "(2, 3)", struct.pack("<6e", *range(6)), 3), array("|b1", "(2, 1)", b"\1\0")))
    put("npy", "fortran", two(array("<f4", "(2, 3)", six, order=True), y))
    put("npy", "object", two(array("|O", "(2, 3)", six), y))
    put("npy", "big", two(array(">f4", "(2, 3)", six), y))
    put("npy", "huge", two(array("<f4", "(4294967296, 4294967297)", six), y))
    put("npy", "infinite", two(array("<f4", "(2, 1)", struct.pack("<2f", 1, float("inf"))), y))
    put("npy", "stored", archive(zipfile.ZIP_STORED, x=x, y=y))
    put("npy", "deflated", archive(zipfile.ZIP_DEFLATED, x=x, y=y))


def tokenizer():
    def letter(byte):
        plain = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
        others = [b for b in range(256) if b not in plain]
        return chr(byte) if byte in plain else chr(256 + others.index(byte))

    names = {letter(byte): byte for byte in range(256)}
    merges = ["a b", "ab ab", "e n", "en d", "Ġ 4"]
    for merge in merges:
        names[merge.replace(" ", "")] = len(names)
    end = {"<|endoftext|>": len(names)}
    space = (",", ":")
    put("tokenizer", "pair", json.dumps({**names, **end}, separators=space).encode() + b"\f#version: 0.2\n" +
        "\n".join(merges).encode() + b"\n")
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    put("tokenizer", "hugging_face", json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "pre_tokenizer": level,
        "post_processor": None, "decoder": level,
        "added_tokens": [{"id": end["<|endoftext|>"], "content": "<|endoftext|>", "special": True, "normalized": False,
                          "single_word": False, "lstrip": False, "rstrip": False}],
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "vocab": {**names, **end}, "merges": merges}}, separators=space).encode())
    words = ["<unk>", "<eos>", "It's", "42", "\u00e9t\u00e9s", "abab", "<|endoftext|>"]
    put("tokenizer", "words", json.dumps({
        "added_tokens": [{"id": 6, "content": "<|endoftext|>", "special": True}],
        "normalizer": {"type": "Replace", "pattern": {"String": "\n"}, "content": " <eos> "},
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "model": {"type": "WordLevel", "vocab": {word: i for i, word in enumerate(words)},
                  "unk_token": "<unk>"}}, separators=space).encode())


def slurm():
    for name, text in {"hosts": "node[01-03,7],gpu[1-2]", "one": "login", "brackets": "r[1-2]n[1-3],x", "suffix": "n[008-011]-ib",
                       "tasks": "2(x3),1", "tasks_one": "4", "backwards": "n[3-1]", "many": "a[1-2000]b[1-2000]",
                       "many_tasks": "1000000(x99)", "open": "n[1-", "tasks_open": "2(x3", "no_tasks": "2(x0)"}.items():
        put("slurm_list", name, text.encode())


def hostfile():
    put("hostfile", "open_mpi", b"\0# two\nalpha slots=4 max_slots=8\nbeta slots=2\n\ngamma\n")
    put("hostfile", "horovod", b"\0alpha:4\nuser@beta:2 # fast\r\n[fd00::1]:3\nalpha:1\n")
    put("hostfile", "wrong", b"\0alpha slots=4\nbeta speed=3\n")
    put("hostfile", "list", b"\1alpha:4,beta,[fd00::1]:2,alpha:1")


def words(text):
    return struct.pack("<q", len(text)) + text.encode()


def numbers(*values):
    return struct.pack(f"<{len(values)}q", *values)


def told(kind, body, version=2):
    return b"cddprun1" + struct.pack("<IIQ", version, kind, len(body)) + body


def nodes():
    put("nodes", "failure", b"\0" + told(1, numbers(2, 1, 1, 3, 0, 7, 1, 0) +
                                            words("rank 3 (pid 7) exited with status 7")))
    put("nodes", "start", b"\0" + told(1, numbers(1, 0, 0, -1, 41234, 0, 0, 0) + words("")))
    record = words("0.1.0") + words("alpha") + numbers(4, 3, 0, 0) + words("300000") + words("train.conf train.epochs=1")
    put("nodes", "record", b"\1" + told(2, record + numbers(25, 4711) + bytes(16) + numbers(-1) + bytes(16)))
    put("nodes", "other-version", b"\1" + told(2, record + numbers(25, 7), version=1))
    put("nodes", "plan", b"\2" + told(3, words("") + words("10.0.0.7") + numbers(3) + words("alpha") + numbers(4, 0) +
                                         words("beta") + numbers(2, 1) + words("gamma") + numbers(1, 2)))
    put("nodes", "gap", b"\2" + told(3, words("") + words("") + numbers(2) + words("alpha") + numbers(4, 0) +
                                        words("beta") + numbers(2, 7)))
    put("nodes", "refusal", b"\2" + told(3, words("node 1 (beta) was started with --nnodes 3") + words("") +
                                            numbers(0)))
    put("nodes", "addresses", b"\3" + b"10.0.0.7:4242,[fd00::7]:4242,127.0.0.1:4242")
    put("nodes", "parcel", b"\4" + told(6, words("0123456789abcdef") + words("/home/user") + words("alpha") +
                                           numbers(2) + words("CDDP_LOG=info") + words("FLAVOUR=a b")))
    put("nodes", "refused", b"\5" + told(5, numbers(2) + words("10.0.0.7") + numbers(1) + words("fd00::7") +
                                            numbers(3)))


def members():
    for name, ranks, size, runs in (("equal", 4, 4, [(0, 2, 2)]), ("unequal", 5, 5, [(0, 3, 1), (1, 2, 1)]),
                                    ("in-turn", 4, 4, [(0, 1, 2), (0, 1, 2)]), ("gap", 2, 2, [(1, 2, 1)]),
                                    ("other-size", 2, 3, [(0, 3, 1)])):
        put("members", name, bytes([ranks - 1]) + told(10, numbers(
            size, 0x00c0ffee00c0ffee, len(runs), *(number for run in runs for number in run))))


def ctl():
    put("ctl", "status", b"\0" + told(14, numbers(0, -1) + words("")))
    put("ctl", "remove-rank", b"\0" + told(14, numbers(4, 5) + words("")))
    put("ctl", "remove-node", b"\0" + told(14, numbers(5, 2) + words("")))
    put("ctl", "remove-host", b"\0" + told(14, numbers(5, -1) + words("alpha")))
    put("ctl", "other-version", b"\0" + told(14, numbers(0, -1) + words(""), version=1))
    put("ctl", "answer", b"\1" + told(15, numbers(1, 0, 0) + words("") + words("0123456789abcdef") + words("beta has come") + words("") +
                                          numbers(1, 12, 4711, 3, 2, 0, 2, 1, 0, 1, 1, 0, 3, 0, 1, 3, 0, 2) +
                                          numbers(0, 2, 0, 2, 0) + words("alpha") + numbers(1, 1, 2, 1, 2) + words("be\x1bta")))
    put("ctl", "end", b"\1" + told(15, numbers(1, 1, 3) + words("the job has ended") + words("") + words("") + words("SIGTERM") +
                                       numbers(-1, -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)))


def csv():
    put("csv", "classes", b"\1x,c,y\r\n1.5,\"red, \"\"dark\"\"\",dog\r\n-2e3,blue,cat\r\n")
    put("csv", "real", b"\0\xef\xbb\xbfx,y\n1,2.5\n\n3,4\n")
    put("csv", "missing", b"\2x;c,y\n1,2\n,3\nNA,4\n5,6\n")
    put("csv", "two_targets", b"\x24c;y;z\na;1;2\nb;3;4\n")
    put("csv", "tabs", b"\x18c\tx\ty\n7\t1\t2\n8\t2\t3\n")
    put("csv", "quoted_lines", b"\3c,y\n\"a\nb\",1\n\"\",2\nd , 3\n")
    put("csv", "unclosed", b"\0x,y\n1,\"2\n")
    put("csv", "ragged", b"\0x,y\n1,2,3\n4\n")


def image():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "vectors", "image_vectors.txt")
    for line in open(path):
        words = line.split()
        if words[0] == "file":
            put("image", words[1], bytes([7, 11, 5]) + bytes.fromhex(words[4]))
    put("image", "empty", bytes([7, 11, 5]))


members()
ctl()
csv()
hostfile()
image()
nodes()
store()
net_tcp()
safetensors()
config()
idx()
tokens()
npy()
tokenizer()
slurm()
