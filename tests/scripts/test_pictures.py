#!/usr/bin/env python3
"""test_pictures.py - every picture of the documents, and those that our programs draw, can be read in any viewer: a ground of its own,
no CSS variables, and labels that neither overlap nor stick out and differ from what they stand on. With rsvg-convert (librsvg2-bin) labels are
where it draws them, otherwise where a usual font would be. Usage: test_pictures.py BUILD SOURCE"""
import glob, importlib.machinery, importlib.util, json, os, re, shutil, subprocess, sys, tempfile, unittest, xml.etree.ElementTree

BUILD, SOURCE = map(os.path.abspath, sys.argv[1:3])
SVG = "{http://www.w3.org/2000/svg}"
LEAST_CONTRAST = 3  # that WCAG wants of large texts; these are short ones


def load(name):
    path = os.path.join(SOURCE, "scripts", name)
    loader = importlib.machinery.SourceFileLoader(os.path.splitext(name)[0], path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    sys.path.insert(0, os.path.dirname(path))
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    return module


def size_of(root):
    return [float(value) for value in root.get("viewBox").split()][2:] if root.get("viewBox") else \
        [float(root.get("width")), float(root.get("height"))]


def boxes_of(root):
    """What each text takes, by its size and length: left, top, right, bottom and the text. The classes are those of timelines."""
    whole = float(root.get("font-size", 12))
    for text in root.iter(f"{SVG}text"):
        font = float(text.get("font-size", {"title": 13, "inside": 11}.get(text.get("class"), whole)))
        width = 0.5 * font * len("".join(text.itertext()))
        left = float(text.get("x")) - {"middle": width / 2, "end": width}.get(text.get("text-anchor"), 0)
        bottom = float(text.get("y"))
        yield left, bottom - 0.75 * font, left + width, bottom, "".join(text.itertext())


def colours_of(root):
    """What each element is filled with, in the order in which they are drawn: by the style of its class or its kind, or its attribute."""
    rules = dict(re.findall(r"(?:svg )?(\.?[a-z-]+)\{[^}]*?fill:([^;}]+)", "".join(style.text or "" for style in root.iter(f"{SVG}style"))))
    for element in root.iter():
        kind = str(element.tag).replace(SVG, "")
        yield element, rules.get(f".{element.get('class')}") or rules.get(kind) or element.get("fill") or "black"


def luminance(colour):
    """As WCAG defines it."""
    digits = {"white": "ffffff", "black": "000000"}.get(colour, colour.lstrip("#"))
    digits = "".join(2 * digit for digit in digits) if len(digits) == 3 else digits
    parts = [int(digits[k:k + 2], 16) / 255 for k in (0, 2, 4)]
    return sum(weight * (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4)
               for weight, part in zip((0.2126, 0.7152, 0.0722), parts))


def contrasts(root, boxes):
    """The contrast of each text with the rectangle below its middle."""
    grounds, number = [], 0
    for element, colour in colours_of(root):
        if element.tag == f"{SVG}rect" and colour != "none":
            size = [float(element.get(key, 0)) if element.get(key) != "100%" else 1e9 for key in ("x", "y", "width", "height")]
            grounds.append((size[0], size[1], size[0] + size[2], size[1] + size[3], luminance(colour)))
        elif element.tag == f"{SVG}text":
            box, number = boxes[number], number + 1
            x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
            below = [ground[4] for ground in grounds if ground[0] <= x <= ground[2] and ground[1] <= y <= ground[3]] or [1.0]
            high, low = sorted((luminance(colour), below[-1]), reverse=True)
            yield box[4], (high + 0.05) / (low + 0.05)


def drawn_boxes(text):
    """boxes_of(), as librsvg draws: it turns texts into paths."""
    root = xml.etree.ElementTree.fromstring(text)
    texts = list(root.iter(f"{SVG}text"))
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag not in (f"{SVG}text", f"{SVG}tspan", f"{SVG}style", f"{SVG}g"):
                parent.remove(child)
    for number, element in enumerate(texts):
        element.set("style", f"fill:#{number + 1:06x}")
    done = subprocess.run(["rsvg-convert", "--format", "svg"], input=xml.etree.ElementTree.tostring(root), capture_output=True, timeout=60, check=True)
    places = {}
    for path in xml.etree.ElementTree.fromstring(done.stdout).iter(f"{SVG}path"):
        colour = re.search(r"fill:rgb\(([\d.]+)%,\s*([\d.]+)%,\s*([\d.]+)%\)", path.get("style", ""))
        if colour and path.get("d"):
            red, green, blue = (round(float(part) * 2.55) for part in colour.groups())
            places.setdefault(65536 * red + 256 * green + blue, []).extend(map(float, re.findall(r"-?[\d.]+", path.get("d"))))
    for number, element in enumerate(texts):
        label, numbers = "".join(element.itertext()), places.get(number + 1)
        assert numbers, f"rsvg-convert does not draw '{label}'"
        yield min(numbers[::2]), min(numbers[1::2]), max(numbers[::2]), max(numbers[1::2]), label


def overlap(a, b):
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def on_curve(box, points):
    """Whether the line through the points goes through the box, which is looked at in steps of a pixel or so."""
    for (x0, y0), (x1, y1) in zip(points, points[1:]):
        steps = int(max(abs(x1 - x0), abs(y1 - y0))) + 1
        for k in range(steps + 1):
            x, y = x0 + (x1 - x0) * k / steps, y0 + (y1 - y0) * k / steps
            if box[0] < x < box[2] and box[1] < y < box[3]:
                return True
    return False


def complaints(text, boxes=None):
    root = xml.etree.ElementTree.fromstring(text)
    width, height = size_of(root)
    found = ["it has CSS variables"] if "var(" in text else []
    ground = next((element for element in root if element.tag == f"{SVG}rect"), None)
    if ground is None or ground.get("width") not in ("100%", f"{width:g}") or ground.get("height") not in ("100%", f"{height:g}"):
        found.append("it has no ground")
    boxes = boxes or list(boxes_of(root))
    curves = [[tuple(map(float, point.split(","))) for point in line.get("points").split()] for line in root.iter(f"{SVG}polyline")]
    for k, box in enumerate(boxes):
        if box[0] < 0 or box[1] < 0 or box[2] > width or box[3] > height:
            found.append(f"'{box[4]}' sticks out")
        found += [f"'{box[4]}' is on '{other[4]}'" for other in boxes[:k] if overlap(box, other)]
        found += [f"a curve goes through '{box[4]}'" for points in curves if on_curve(box, points)]
    found += [f"'{label}' is hard to see: contrast {ratio:.1f}" for label, ratio in contrasts(root, boxes) if ratio < LEAST_CONTRAST]
    return found


class Pictures(unittest.TestCase):
    def check(self, name, text):
        with self.subTest(picture=name):
            self.assertEqual(complaints(text), [])
            if shutil.which("rsvg-convert"):
                self.assertEqual(complaints(text, list(drawn_boxes(text))), [])

    def test_what_cannot_be_read_is_found(self):
        head = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 100 50">'
        for picture, text in ((f'{head}</svg>', "it has no ground"),
                              (f'{head}<rect width="100%" height="100%" fill="white"/><style>a{{fill:var(--b)}}</style></svg>', "it has CSS variables"),
                              (f'{head}<rect width="100" height="50" fill="#fff"/><text x="90" y="20">label</text></svg>', "'label' sticks out"),
                              (f'{head}<rect width="100" height="50" fill="#fff"/><text x="9" y="20">abc</text><text x="20" y="22">def</text></svg>',
                               "'def' is on 'abc'"),
                              (f'{head}<rect width="100" height="50" fill="#fff"/><text x="9" y="20">abc</text><polyline points="0,16 90,17"/></svg>',
                               "a curve goes through 'abc'"),
                              (f'{head}<rect width="100" height="50" fill="#fff"/><style>svg .ink{{fill:#f0933f}}</style>'
                               '<text x="9" y="20" class="ink">abc</text></svg>', "'abc' is hard to see: contrast 2.3")):
            self.assertEqual(complaints(picture), [text])
            if shutil.which("rsvg-convert"):
                self.assertEqual(complaints(picture, list(drawn_boxes(picture))), [text])

    @unittest.skipUnless(shutil.which("rsvg-convert"), "rsvg-convert (librsvg2-bin) is not installed")
    def test_labels_are_where_librsvg_draws_them(self):
        picture = ('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 100 50"><rect width="100" height="50" fill="white"/>'
                   '<text x="5" y="20">WWWWW</text><text x="40" y="20">def</text></svg>')
        self.assertEqual(complaints(picture), [])  # in a font of usual width
        self.assertEqual(complaints(picture, list(drawn_boxes(picture))), ["'def' is on 'WWWWW'"])

    def test_the_pictures_of_the_documents(self):
        paths = sorted(glob.glob(os.path.join(SOURCE, "doc", "*.svg")))
        self.assertGreaterEqual(len(paths), 5)
        for path in paths:
            with open(path, encoding="utf-8") as file:
                self.check(os.path.basename(path), file.read())

    def test_a_timeline(self):
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "trace"))
            spans = [{"name": name, "step": 3, "begin_ns": begin * 10**6, "end_ns": end * 10**6}
                     for name, begin, end in (("step", 0, 40), ("forward", 0, 10), ("weights", 10, 11), ("backward", 11, 30), ("wait", 30, 36))]
            for rank in range(2):
                with open(os.path.join(folder, "trace", f"rank-{rank}.json"), "w") as file:
                    json.dump({"rank": rank, "world_size": 2, "machine": "a", "spans": spans, "calls": []}, file)
            subprocess.run([os.path.join(BUILD, "src", "cddp-trace"), "-q", "--svg", "t.svg", "."], cwd=folder, check=True, timeout=60)
            with open(os.path.join(folder, "t.svg"), encoding="utf-8") as file:
                self.check("cddp-trace --svg", file.read())

    def test_plots_of_runs(self):
        with tempfile.TemporaryDirectory() as folder:
            names = ["first", "a-run-with-a-long-name", "third", "fourth"]
            for k, name in enumerate(names):
                os.mkdir(os.path.join(folder, name))
                with open(os.path.join(folder, name, "metrics.jsonl"), "w") as file:
                    for step in range(1, 101):
                        print(json.dumps({"step": step, "loss": 3 / (step + k)}), file=file)
                        if step % 10 == 0:
                            print(json.dumps({"step": step, "eval_loss": 3 / step, "eval_accuracy": 1 - 0.8 / (step + k)}), file=file)
            for count in (1, len(names)):
                said = subprocess.run([sys.executable, os.path.join(SOURCE, "scripts", "plot"), *names[:count]], cwd=folder, check=True,
                                      capture_output=True, text=True, timeout=60).stdout
                self.check(f"scripts/plot of {count}", said)

    def test_a_model_of_large_jobs(self):
        rows = [{"gbit_per_s": speed, "ranks": 2 ** k, "step_s": 0.1 + 0.05 * (k > 3) - 0.0001 * speed * (k > 6), "exposed_s": 0.01 * k}
                for speed in (10, 100, 400) for k in range(15)]
        text = load("scale_model").picture(rows)
        self.check("scripts/scale_model --svg", text)
        dashes = re.findall(r'<polyline[^>]*stroke-width="2"( stroke-dasharray="[^"]*")?', text)[:3]
        self.assertEqual(len(set(dashes)), 3)  # of lines on top of each other all can be seen

    def test_pipelines(self):
        bench = load("bench_parallel.py")
        for ddp in (1.9, 1.0, 0.2):
            rows = {"single": {"samples_per_s": 577}, "DDP": {"samples_per_s": 577 * ddp}, "DataParallel": {"samples_per_s": 577 * ddp * 0.98}}
            rows.update({f"{bench.STAGES} stages, {count}": {"samples_per_s": 500 + 5 * k} for k, count in enumerate(bench.SPLITS)})
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "p.svg")
                bench.plot({"resnet20": {"rows": rows}, "gpt2": {"rows": rows}}, path)
                with open(path, encoding="utf-8") as file:
                    self.check(f"scripts/bench, DDP {ddp} times", file.read())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
