#!/usr/bin/env python3
"""Make tests/vectors/image_vectors.txt: image files of many kinds with the pixels that Pillow reads from them, and
images resized by Pillow, alone and as torchvision's Resize and CenterCrop do it.

    make_image_vectors.py > tests/vectors/image_vectors.txt      (needs Pillow; the test needs only its output)

Lines: "file NAME WIDTH HEIGHT FILE PIXELS", "resize WIDTH HEIGHT LEFT TOP RIGHT BOTTOM OUT_WIDTH OUT_HEIGHT PIXELS"
and "center WIDTH HEIGHT RESIZE SIZE PIXELS"; bytes in hexadecimal. The resized images are those of pattern().
"""
import usage

usage.show(__doc__)

import io
import struct
import zlib

from PIL import Image

WIDTH, HEIGHT = 19, 13


def pattern(width, height):
    data = bytearray()
    for y in range(height):
        for x in range(width):
            data += bytes((x * 7 + y * 13 + c * 31 + x * y % 11 * 17) & 255 for c in range(3))
    return Image.frombytes("RGB", (width, height), bytes(data))


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(color, depth, rows, interlaced=False, extra=b""):
    """A PNG of rows of pixels, each a bytes object; Pillow writes neither 16 bits of colour nor Adam7."""
    passes = [(0, 0, 1, 1)]
    if interlaced:
        passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    raw = b""
    for left, top, dx, dy in passes:
        for row in rows[top::dy]:
            if row[left::dx]:
                raw += b"\0" + b"".join(row[left::dx])
    head = struct.pack(">IIBBBBB", len(rows[0]), len(rows), depth, color, 0, 0, int(interlaced))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + extra + chunk(b"IDAT", zlib.compress(raw, 9))
            + chunk(b"IEND", b""))


def saved(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def files():
    rgb = pattern(WIDTH, HEIGHT)
    data = rgb.tobytes()
    rows = [[data[(y * WIDTH + x) * 3:][:3] for x in range(WIDTH)] for y in range(HEIGHT)]
    deep = [[b"".join(bytes((v, v ^ 255)) for v in pixel) for pixel in row] for row in rows]
    alpha = rgb.copy()
    alpha.putalpha(rgb.convert("L"))
    palette = rgb.quantize(16)
    yield "rgb.jpg", saved(rgb, "JPEG", quality=90)
    yield "full.jpg", saved(rgb, "JPEG", quality=75, subsampling=0)
    yield "grey.jpg", saved(rgb.convert("L"), "JPEG")
    yield "progressive.jpg", saved(rgb, "JPEG", progressive=True)
    yield "cmyk.jpg", saved(rgb.convert("CMYK"), "JPEG", quality=90)
    yield "rgb.png", saved(rgb, "PNG")
    yield "grey.png", saved(rgb.convert("L"), "PNG")
    yield "bits.png", saved(rgb.convert("1"), "PNG")
    yield "alpha.png", saved(alpha, "PNG")
    yield "grey_alpha.png", saved(alpha.convert("LA"), "PNG")
    yield "palette.png", saved(palette, "PNG")
    yield "palette_clear.png", saved(palette, "PNG", transparency=3)
    yield "rgb_clear.png", png(2, 8, rows, extra=chunk(b"tRNS", b"\0\7\0\x26\0\x45"))
    yield "interlaced.png", png(2, 8, rows, True)
    yield "deep.png", png(2, 16, deep)
    yield "deep_interlaced_alpha.png", png(6, 16, [[pixel + b"\x12\x34" for pixel in row] for row in deep], True)


def read(name, data):
    image = Image.open(io.BytesIO(data))
    return image.convert("RGB")


def main():
    print("# made by scripts/make_image_vectors.py with Pillow")
    for name, data in files():
        image = read(name, data)
        print("file", name, *image.size, data.hex(), image.tobytes().hex())
    for size, box, out in (((19, 13), (0, 0, 19, 13), (8, 8)), ((40, 30), (5, 3, 38, 29), (7, 9)),
                           ((9, 11), (1, 2, 8, 10), (16, 16)), ((64, 3), (0, 0, 64, 3), (5, 5)),
                           ((6, 6), (0, 0, 6, 6), (6, 6)), ((6, 9), (0, 1, 6, 8), (6, 4))):
        image = pattern(*size).crop(box).resize(out, Image.Resampling.BILINEAR)
        print("resize", *size, *box, *out, image.tobytes().hex())
    for width, height, resize, size in ((19, 13, 9, 8), (13, 19, 9, 8), (40, 40, 16, 12), (5, 30, 10, 10),
                                        (7, 5, 12, 9)):
        whole = ((resize, int(resize * height / width)) if width <= height
                 else (int(resize * width / height), resize))
        left, top = int(round((whole[0] - size) / 2.0)), int(round((whole[1] - size) / 2.0))
        image = pattern(width, height).resize(whole, Image.Resampling.BILINEAR)
        image = image.crop((left, top, left + size, top + size))
        print("center", width, height, resize, size, image.tobytes().hex())


if __name__ == "__main__":
    main()
