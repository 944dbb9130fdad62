"""compare_parallel_picture.py - draws what scripts/compare_parallel has found: for each way a band, with a row for each
device: on the left its memory, on the right what it does in one step. What is empty on the right is a device that waits."""
import math
from xml.sax.saxutils import escape

MEMORY = ("parameters", "gradients", "optimizer", "activations", "edges", "outputs")
MEMORY_COLOURS = dict(zip(MEMORY, ("#1f6f8b", "#c8553d", "#a07b1b", "#588b3c", "#8f5fa8", "#d23f8a")))
WORK = ("forward", "backward", "optimizer", "replicate", "sum", "wait", "data")
WORK_COLOURS = dict(zip(WORK, ("#4c9bd6", "#e08a3c", "#a07b1b", "#8f5fa8", "#d23f8a", "#c9ced6", "#e3d9c6")))
MEMORY_TITLES = {"edges": "between devices", "outputs": "gathered outputs"}
WORK_TITLES = {"replicate": "copies the model", "sum": "adds gradients", "wait": "waits for ranks", "data": "waits for data"}
WIDTH, LEFT, MEMORY_WIDTH, GAP, RIGHT = 1100, 190, 310, 40, 20
TOP, ROW, BAR, BAND_GAP = 96, 24, 18, 14


def tick(most, count):
    """A round distance, so that at most @p count of them reach @p most."""
    step = 10.0 ** math.floor(math.log10(most / count))
    return next(step * factor for factor in (1, 2, 5, 10) if most / (step * factor) <= count)


def legend(kinds, colours, titles, left, right):
    """In as many lines as it takes."""
    out, x, y = [], left, 44
    for kind in kinds:
        title = titles.get(kind, kind)
        width = 15 + 6.2 * len(title) + 10
        if x + width > right:
            x, y = left, y + 17
        out.append(f'<rect x="{x:.0f}" y="{y}" width="11" height="11" fill="{colours[kind]}"/>'
                   f'<text x="{x + 15:.0f}" y="{y + 10}">{escape(title)}</text>')
        x += width
    return out


def axis(left, width, most, height, unit, bottom):
    out, step = [], tick(most, 6)
    for k in range(int(most / step) + 1):
        x = left + width * k * step / most
        out.append(f'<path d="M{x:.1f} {TOP - 6}V{height:.0f}" stroke="#e4e7ec"/>'
                   f'<text x="{x:.1f}" y="{height + 14:.0f}" text-anchor="middle" fill="#5f6b7a">{k * step:g}</text>')
    return out + [f'<text x="{left + width / 2:.0f}" y="{bottom:.0f}" text-anchor="middle" fill="#5f6b7a">{unit}</text>']


def memory_bar(memory, scale, y):
    out, x = [], LEFT
    for kind in MEMORY:
        width = memory[kind] * scale
        if width > 0:
            out.append(f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{BAR}" fill="{MEMORY_COLOURS[kind]}">'
                       f'<title>{kind}: {memory[kind] / 2**20:.3f} MiB</title></rect>')
        x += width
    return out + [f'<text x="{x + 4:.1f}" y="{y + 13}" fill="#5f6b7a">{sum(memory.values()) / 2**20:.1f}</text>']


def work_bars(spans, scale, left, y):
    out = []
    for span in spans:
        x, width = left + span["begin_ms"] * scale, (span["end_ms"] - span["begin_ms"]) * scale
        number = f' {span["micro_batch"]}' if "micro_batch" in span else ""
        out.append(f'<rect x="{x:.2f}" y="{y}" width="{max(width, 0.4):.2f}" height="{BAR}" '
                   f'fill="{WORK_COLOURS[span["kind"]]}" stroke="white" stroke-width="0.4">'
                   f'<title>{span["kind"]}{number}: {span["end_ms"] - span["begin_ms"]:.3f} ms</title></rect>')
        if number and width > 9:
            out.append(f'<text x="{x + width / 2:.1f}" y="{y + 13}" text-anchor="middle" font-size="9">'
                       f'{span["micro_batch"]}</text>')
    return out


def draw(result):
    ways = result["ways"]
    rows = sum(len(way["timeline"]["rows"]) for way in ways.values())
    height = TOP + rows * ROW + len(ways) * BAND_GAP
    time_left = LEFT + MEMORY_WIDTH + GAP
    time_width = WIDTH - time_left - RIGHT
    most_bytes = 1.12 * max(sum(memory.values()) for way in ways.values() for memory in way["memory"].values())
    most_ms = 1.01 * max(way["timeline"]["step_ms"] for way in ways.values())
    kinds = [kind for kind in WORK if any(span["kind"] == kind for way in ways.values()
                                          for spans in way["timeline"]["rows"].values() for span in spans)]
    held = [kind for kind in MEMORY if any(memory[kind] for way in ways.values() for memory in way["memory"].values())]
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height + 36}" width="{WIDTH}" '
           f'height="{height + 36}" font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="white"/>',
           f'<text x="12" y="22" font-size="15" font-weight="bold">{escape(result["model"])}, {result["batch"]} samples a '
           f'step: what each device holds, and what it does in one step</text>']
    out += legend(held, MEMORY_COLOURS, MEMORY_TITLES, 12, 400)
    out += legend(kinds, WORK_COLOURS, WORK_TITLES, time_left, WIDTH - RIGHT)
    out += axis(LEFT, MEMORY_WIDTH, most_bytes / 2**20, height, "MiB", height + 30)
    out += axis(time_left, time_width, most_ms, height, "milliseconds of one step; white: the device waits", height + 30)
    y = TOP
    for name, way in ways.items():
        out.append(f'<text x="12" y="{y + 13}" font-weight="bold">{escape(name)}</text>'
                   f'<text x="12" y="{y + 27}" fill="#5f6b7a">{way["samples_per_s"]:.0f} samples/s</text>')
        for row, spans in way["timeline"]["rows"].items():
            out.append(f'<text x="{LEFT - 8}" y="{y + 13}" text-anchor="end">{escape(row)}</text>'
                       f'<rect x="{time_left}" y="{y}" width="{way["timeline"]["step_ms"] * time_width / most_ms:.1f}" '
                       f'height="{BAR}" fill="none" stroke="#c9ced6" stroke-width="0.5"/>')
            if row in way["memory"]:
                out += memory_bar(way["memory"][row], MEMORY_WIDTH / most_bytes, y)
            out += work_bars(spans, time_width / most_ms, time_left, y)
            y += ROW
        y += BAND_GAP
    return "\n".join(out) + "\n</svg>\n"
