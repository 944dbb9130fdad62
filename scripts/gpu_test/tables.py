"""tables - what each part found, as lines of Markdown for people."""
MOST_ROWS = 40  # of a profile


def number(x, form="{:,.0f}"):
    return form.format(x) if isinstance(x, (int, float)) else "-"


def smoke(part):
    rows = ["| check | result | s | |", "|---|---|---|---|"]
    for row in part["rows"]:
        what = {True: "ok", False: "FAILED", None: "skipped"}[row["ok"]]
        more = row["why"] or " ".join(f"{name}: {value:.1e}" for name, value in row.get("apart", {}).items())
        rows.append(f"| {row['check']} | {what} | {row['seconds']} | {more} |")
    for row in part["rows"]:
        for what in ("losses", "grad_norms") if row["check"] == "losses side by side" else ():
            rows += [f"{what}, {name}: " + " ".join(f"{value:.4f}" for value in values)
                     for name, values in row.get(what, {}).items()]
    return rows


def tests(part):
    rows = ["| test | result | passed | skipped | failed | s |", "|---|---|---|---|---|---|"]
    for row in part["rows"]:
        rows.append(f"| {row['test']} | {row['result']} | {row['passed']} | {row['skipped']} | "
                    f"{', '.join(row['failed']) or '-'} | {row['seconds']} |")
    rows += [f"{row['test']}: {row['why']}" for row in part["rows"] if row["why"]]
    return rows + [f"all of them: {part['seconds']} s"]


def ops(part):
    rows = ["| op | shape | type | us | GB/s or TFLOP/s | of the ceiling |", "|---|---|---|---|---|---|"]
    for row in part["rows"]:
        if "failed" in row:
            rows.append(f"| {row['op']} | {row['shape']} | {row['type']} | {row['failed']} | - | - |")
            continue
        rate = f"{row['tflops']:.0f} TFLOP/s" if "tflops" in row else f"{row['gbs']:.0f} GB/s"
        rows.append(f"| {row['op']} | {row['shape']} | {row['type']} | {row['us']:.1f} | {rate} | "
                    f"{number(100 * row['of_ceiling'], '{:.0f} %') if 'of_ceiling' in row else 'ceiling'} |")
    return rows


def text(part):
    rows = ["| precision | loss at first | at last | furthest from float32 | gradients' norms, median |",
            "|---" * 5 + "|"]
    for name, row in part["rows"].items():
        apart = part["apart"].get(name, {})
        rows.append(f"| {name} | {row['loss'][0]:.4f} | {row['loss'][-1]:.4f} | "
                    f"{number(apart.get('loss'), '{:.1e}')} | {number(apart.get('grad_norm'), '{:.1e}')} |")
    return rows + part["failed"]


def profile(part):
    rows = []
    if part["ceilings"]:
        rows.append(f"ceilings, measured: {part['ceilings']['bytes_per_s'] / 1e9:.0f} GB/s, "
                    f"{part['ceilings']['flops_per_s'] / 1e12:.0f} TFLOP/s")
    for conf, model in part["models"].items():
        rows += ["", f"### {conf}: a micro-batch is {model['micro_batch_ms']:.2f} ms, its kernels "
                 f"{model['kernels_ms']:.2f}, {model['between_ms']:.2f} between them", "",
                 "| kernel | shape | calls | us | GB/s | TFLOP/s | of the ceiling | ms | ms lost |", "|---" * 9 + "|"]
        for row in model["rows"][:MOST_ROWS]:
            rows.append(f"| {row['op']} | {row['shape']} | {row['calls']:g} | {row['us']:.1f} | {row['gbs']:.0f} | "
                        f"{row['tflops']:.0f} | {100 * row['of_ceiling']:.0f} % | {row['ms']:.3f} | "
                        f"{row['lost_ms']:.3f} |")
        if len(model["rows"]) > MOST_ROWS:
            rest = sum(row["lost_ms"] for row in model["rows"][MOST_ROWS:])
            rows.append(f"and {len(model['rows']) - MOST_ROWS} more, which lose {rest:.3f} ms")
    ncu = part["ncu"] or {}
    if "refused" in ncu:
        rows += ["", f"ncu: {ncu['refused']}"]
    if ncu.get("rows"):
        rows += ["", "### ncu: gpt2_124m, one micro-batch of 64", "", "| kernel | within | calls | ms | GB moved | "
                 "of the memory's ceiling |", "|---" * 6 + "|"]
        rows += [f"| {row['kernel'][:90]} | {row['within']} | {row['calls']} | {row['ms']:.3f} | "
                 f"{row['bytes'] / 1e9:.2f} | {100 * row['of_memory']:.0f} % |" for row in ncu["rows"][:MOST_ROWS]]
    return rows + part["failed"]


def replays(choice):
    return (f"a step is {choice['plain_ms']:.2f} ms, and {choice['replayed_ms']:.2f} ms as CUDA graphs, so steps were "
            f"{'' if choice['replayed'] else 'not '}replayed (times of their parts are those of steps that were not)")


def model(part, unit, targets):
    key = f"{unit}_per_s"
    ours = part.get("cddp", {})
    mine = ours.get(key) or ours.get("samples_per_s")
    rows = [f"| | {unit}/s | step ms (least to most) | forward | backward | optimizer | data |", "|---" * 7 + "|"]
    peers = [("PyTorch", part.get("torch") or {}), ("PyTorch, max-autotune", part.get("torch_tuned") or {})]
    for who, row, rate in [("cddp", ours, mine), *((f"{who} {row.get('torch', '')}", row, row.get(key))
                                                   for who, row in peers)]:
        if "step_ms" in row:
            parts = (number(row.get(f"{name}_ms"), "{:.1f}") for name in ("forward", "backward", "optimizer", "data"))
            rows.append(f"| {who} | {number(rate)} | {row['step_ms']:.1f} ({row['step_ms_min']:.1f} to "
                        f"{row['step_ms_max']:.1f}) | {' | '.join(parts)} |")
    rows += [f"cddp: {text}" for text in part["failed"]]
    rows += [f"{who}: {row['failed']}" for who, row in peers if "failed" in row]
    best = max((row[key] for _, row in peers if row.get(key)), default=None)
    if mine and best:
        rows.append(f"cddp / the faster PyTorch: {mine / best:.3f} (target 1.1)")
    if "cuda_graph" in ours:
        rows.append(replays(ours["cuda_graph"]))
    if "mfu" in ours:
        rows.append(f"model FLOPs utilisation: {100 * ours['mfu']:.1f} %")
    return rows + [f"{mine:,.0f} {unit}/s ({text})" for text in targets if mine]


def ranks(part):
    rows = ["| ranks on one GPU | tokens/s, all | step ms | exposed ms | exposed, of the step |",
            "|---|---|---|---|---|"]
    one = part["rows"].get("solo x1", {}).get("step_ms")
    for who, row in part["rows"].items():
        exposed = row.get("exposed_comm_ms")
        rows.append(f"| {who} | {number(row.get('tokens_per_s'))} | {row['step_ms']:.2f} | "
                    f"{number(exposed, '{:.2f}')} | "
                    f"{number(exposed and 100 * exposed / row['step_ms'], '{:.1f} %')} |")
    rows += [f"{who}: {replays(row['cuda_graph'])}" for who, row in part["rows"].items() if "cuda_graph" in row]
    for who, row in part["rows"].items():
        if one and who == "nccl x1":
            rows.append(f"DDP at world size 1: {100 * (row['step_ms'] / one - 1):+.1f} % of a step "
                        "(target: at most 1 %; NCCL moves nothing at one rank)")
        elif one and who != "solo x1":
            rows.append(f"{who}: {100 * one / row['step_ms']:.0f} % of one rank's throughput (target: 95 %), exposed "
                        f"{100 * row.get('exposed_comm_ms', 0) / row['step_ms']:.1f} % (target: at most 10 %)")
    if "killed" in part:
        killed = part["killed"]
        rows.append(f"one of two ranks killed: {killed['problem'] or 'all was over'} after {killed['seconds']} s")
    return rows + part["failed"]


def bits(part):
    rows = ["| with ddp.deterministic | steps | two runs | step ms | in any order | micro-batches, in any order | "
            "in one |", "|---" * 7 + "|"]
    for conf, row in part["rows"].items():
        rows.append(f"| {conf} | {row['steps']} | {'the same bits' if row['same'] else 'DIFFER'} | "
                    f"{row['ms']:.2f} | {row['any_order_ms']:.2f} | {row['parts']}: {row['parts_ms']:.2f} | "
                    f"{row['micro_batch_ms']:.2f} |")
    return rows + part["failed"]


def scale(part):
    if part["ranks"] < 2:
        return ["one GPU, and no NCCL that lets ranks share it (2.30.3 or later): nothing to compare"]
    rows = [f"{part['ranks']} ranks on {part['gpus']} GPU{'s' if part['gpus'] > 1 else ''}",
            *part["topology"].splitlines()]
    if part["losses"]:
        rows += ["", "| 8 steps, beside one GPU | losses apart | gradients' norms apart |", "|---" * 3 + "|"]
        rows += [f"| {name} | " + " | ".join("the same bits" if x == 0 else f"{x:.1e}" for x in apart.values()) + " |"
                 for name, apart in part["losses"].items()]
    if part["collectives"]:
        rows += ["", "| collective | wrong elements | median us (GB/s on the bus), by bytes |", "|---" * 3 + "|"]
    for name, row in part["collectives"].items():
        times = ", ".join(f"{size['bytes']}: {size['median_us']:.0f} ({size['busbw_gb_per_s']:.1f})"
                          for size in row.get("times", ()))
        rows.append(f"| {name} | {row.get('wrong', '-')} | {times or '-'} |")
    if part["speed"]:
        rows += ["", "| GPT-2 124M, 64 sequences a GPU | tokens/s | step ms | exposed ms | MiB | of one GPU's, each |",
                 "|---" * 6 + "|"]
    one = next((row["tokens_per_s"] for row in part["speed"].values() if row["gpus"] == 1), None)
    for name, row in part["speed"].items():
        rows.append(f"| {name} | {number(row['tokens_per_s'])} | {row['step_ms']:.2f} | "
                    f"{number(row.get('exposed_comm_ms'), '{:.2f}')} | {number(row['gpu_memory_mib'])} | "
                    f"{number(one and 100 * row['tokens_per_s'] / (one * row['gpus']), '{:.1f} %')} |")
    best = max((row["tokens_per_s"] for row in part["speed"].values() if row["gpus"] == part["gpus"]), default=None)
    if part["torch"]:
        rows.append(f"PyTorch DDP: {part['torch']['failed']}" if "failed" in part["torch"] else
                    f"PyTorch DDP {part['torch'].get('torch', '')}: {number(part['torch']['tokens_per_s'])} tokens/s; "
                    f"cddp / PyTorch: {number(best and best / part['torch']['tokens_per_s'], '{:.3f}')}")
    rows += [f"a rank {kind}: {row['problem'] or 'as it should'}, {row['seconds']} s"
             for kind, row in part["disturbed"].items()]
    return rows + [f"NCCL: {line}" for line in part["nccl"]] + part["failed"]


TABLE = {"smoke": smoke, "single": tests, "text": text, "multi": tests, "ops": ops, "profile": profile,
         "ranks": ranks, "bits": bits, "scale": scale,
         "gpt2": lambda part: model(part, "tokens", ["target 500,000", "llm.c on an H100: 468,000"]),
         "resnet50": lambda part: model(part, "images", [])}
