#!/usr/bin/env python3
"""misuse_table - every public function x every misuse of one argument, as C for test_misuse_table.c.
Usage: misuse_table.py INCLUDE_FOLDER OUT

All of a function's arguments but one are right. The argument's type and name determine right and wrong values. An unknown type
ends the build, so that no new function is left out."""
import glob, os, re, sys

FOLDER, OUT = sys.argv[1:]
HEADERS = ["group", "ddp", "exchange", "store", "checkpoint", "loader", "sampler", "parallel", "recovery", "spawn", "process", "types", "status"]
# cddp.h has no functions of its own; mpi.h and model.h need libraries that not each build has.
MISSING = {os.path.basename(path)[:-2] for path in glob.glob(f"{FOLDER}/cddp/*.h")} - set(HEADERS) - {"cddp", "mpi", "model"}
if MISSING:
    sys.exit(f"misuse_table: HEADERS lacks {MISSING}")
# Functions that take nothing that could be wrong.
NOTHING = {"cddp_stop_request", "cddp_stop_requested", "cddp_log_set_level", "cddp_last_error", "cddp_version", "cddp_free", "cddp_log_set_sink"}
# What returns a pointer or a number for every argument.
ANY_RESULT = {"cddp_type_name", "cddp_op_name", "cddp_status_text", "cddp_status_name", "cddp_type_bytes", "cddp_share_of", "cddp_torch_shard_count"}
HANDLES = ["group", "ddp", "store", "sampler", "safetensors", "loader", "devices", "work", "saving", "recovery"]
# (function, argument): what is no misuse: NULL means the default, or everything goes.
NULL_IS_FINE = {"work", "options", "metadata", "state", "reason", "stream", "buffers", "out_existed", "out_all",
                "out_skipped", "allocator"}
NULL_IS_FINE_FOR = {("cddp_snapshot_write", "out"), ("cddp_group_translate", "part"), ("cddp_group_translate", "group"), ("cddp_messages_start", "works"), ("cddp_broadcast_bytes", "out_bytes"), ("cddp_group_free", "memory"),
                    ("cddp_store_list", "start"), ("cddp_store_compare_set", "out"), ("cddp_store_compare_set", "out_bytes"),
                    ("cddp_store_compare_set", "expected"), ("cddp_snapshot_read_state", "out_step")}
HUGE = ["SIZE_MAX", "SIZE_MAX / 2 + 1", "SIZE_MAX / 8 + 1"]
# Right arguments, by function and name or by name.
RIGHT = {
    ("cddp_ddp_broadcast", "flags"): "CDDP_BROADCAST_PARAMS", ("cddp_group_alloc", "flags"): "0", ("cddp_ddp_gather_state", "out"): "s->data + 64",
    ("cddp_all_gather_bytes", "out"): "&s->memory", ("cddp_broadcast_bytes", "out"): "&s->memory",
    ("cddp_parallel_scatter", "in"): "s->data", ("cddp_devices_create", "names"): "s->names",
    ("cddp_devices_create", "count"): "1", ("cddp_parallel_apply", "count"): "1", ("cddp_parallel_apply", "fn"): "no_apply",
    ("cddp_data_parallel", "fn"): "no_replica", ("cddp_data_parallel", "options"): "&s->parallel",
    ("cddp_parallel_gather", "count"): "1", ("cddp_parallel_scatter", "out"): "s->chunks", ("cddp_spawn", "fn"): "no_rank",
    ("cddp_ddp_create", "options"): "NULL", ("cddp_ddp_create", "buffers"): "NULL", ("cddp_ddp_create", "buffer_count"): "0",
    ("cddp_safetensors_write", "count"): "1", ("cddp_safetensors_load", "count"): "1", ("cddp_tensors_of", "count"): "1",
    ("cddp_tensors_of", "out"): "s->tensors + 1", ("cddp_snapshot_write", "out"): "NULL",
    ("cddp_messages_start", "count"): "1", ("cddp_store_wait", "count"): "1", ("cddp_store_wait", "keys"): "s->names",
    ("cddp_parallel_replicate", "params"): "s->floats", ("cddp_parallel_replicate", "n"): "1",
    ("cddp_group_create", "options"): "&s->join", ("cddp_store_open", "options"): "&s->open",
    ("cddp_loader_create", "options"): "&s->loads", ("cddp_group_create_by", "options"): "&s->join",
    ("cddp_sampler_create", "count"): "4", ("cddp_torch_shard", "out"): "s->numbers",
    ("cddp_group_set_stream", "stream"): "NULL", ("cddp_spawn", "options"): "NULL",
    ("cddp_recovery_step", "step"): "&s->number", ("cddp_recovery_add", "array"): "&s->array", "callbacks": "&s->callbacks", "out_action": "&s->action",
    "in": "s->data", "own": "s->data", "out": "s->data + 1024", "data": "s->data", "count": "8", "bytes": "8", "type": "CDDP_F32",
    "op": "CDDP_OP_SUM", "root": "s->rank", "weight": "1", "work": "NULL", "works": "NULL", "to": "1 - s->rank", "from": "1 - s->rank",
    "counts": "s->counts", "out_bytes": "&s->bytes", "out_stop": "&s->flag", "messages": "s->messages", "options": "NULL",
    "bootstrap": "&s->bootstrap", "color": "0", "key": "0", "memory": "NULL", "reason": '"no reason"', "out_done": "&s->flag",
    "timeout_ms": "1000", "params": "s->params", "param_count": "1", "index": "0", "step": "&s->step", "samples": "1", "first": "0",
    "out_all": "&s->flag", "rank": "s->rank", "out_count": "&s->bytes", "scratch": "s->data + 1024",
    "bucket": "0", "value": '"v"', "amount": "1", "expected": "NULL", "expected_bytes": "0", "desired": '"w"', "desired_bytes": "1",
    "out_swapped": "&s->flag", "out_existed": "&s->flag", "keys": "s->names", "start": '"a"', "path": "s->path", "dir": "s->path",
    "tensors": "s->tensors", "model": "s->params", "model_count": "1", "optimizer": "s->params", "optimizer_count": "1", "metadata": "NULL", "name": '"a"', "snapshot": "&s->snapshot", "keep": "1", "out_path": "&s->text",
    "out_skipped": "&s->text", "out_json": "&s->text", "out_step": "&s->number", "into": "&s->snapshot", "epoch": "0", "batch": "0",
    "order": "CDDP_ORDER_SEQUENTIAL", "seed": "1", "position": "0", "world_size": "2", "drop_last": "false", "names": "s->names",
    "rows": "8", "row_bytes": "8", "chunks": "s->chunks", "replicas": "1", "n": "1", "fn": "no_rank", "nprocs": "1", "text": '"it failed"',
    "allocator": "&s->allocator", "status": "CDDP_ERR_IO", "stage": "0", "state": "NULL", "stream": "NULL"}


def functions():
    """(result, name, [(type, argument)]) of every function of the headers."""
    for header in HEADERS:
        with open(f"{FOLDER}/cddp/{header}.h", encoding="utf-8") as file:
            text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
        text = re.sub(r"^#define.*?[^\\]$", "", text, flags=re.S | re.M)
        for result, name, arguments in re.findall(r"CDDP_(?:API|CHECKED)\s+([\w\s]+?[\s*]+)(cddp_\w+)\(([^;]*)\);", text):
            pairs = []
            for number, argument in enumerate(re.sub(r"\s+", " ", arguments).split(", ")):
                if argument == "void":
                    continue
                kind, star, word = re.fullmatch(r"(.*?)(\**)(\w*)", argument).groups()
                if not word or word in ("int", "void"): # a prototype without names
                    kind, star, word = argument, "", ["state", "bucket", "stage", "work"][number]
                pairs.append(((kind + star).replace(" *", "*").strip(), word))
            yield result.strip(), name, pairs


def out_type(kind):
    return kind.endswith("*") and not kind.startswith("const ")


def right(function, kind, argument):
    base = kind.replace("const ", "").strip()
    for handle in HANDLES:
        if base == f"cddp_{handle}*":
            return f"s->{handle}"
        if base == f"cddp_{handle}**" and argument == "out":
            return f"&s->made.{handle}"
    special = {"cddp_bucket*": "s->bucket", "void**": "&s->memory", "char***": "&s->list", "float***": "&s->replicas",
               "cddp_batch*": "&s->batch", "cddp_ddp_stats*": "&s->stats", "cddp_failure*": "&s->failure", "cddp_group_info*": "&s->info", "cddp_recovery_info*": "&s->recovered", "cddp_bucket_stats*": "&s->times", "int64_t*": "&s->amount",
               "int*": "&s->small", "cddp_spawn_fn": "no_rank"}
    if (function, argument) in RIGHT:
        return RIGHT[function, argument]
    if base in special:
        return special[base]
    if argument == "key" and base == "char*":
        return '"key"'
    if argument in RIGHT:
        return RIGHT[argument]
    sys.exit(f"misuse_table: {function}: what is right for {kind} {argument}?")


def wrong(function, kind, argument, names):
    """(what it is, C expression) of each misuse of an argument."""
    base = kind.replace("const ", "").strip()
    handle = next((h for h in HANDLES if base == f"cddp_{h}*"), None)
    is_end = re.search(r"_(destroy|close)$", function)
    if handle is not None:
        if not is_end and (function, argument) not in NULL_IS_FINE_FOR:
            yield "NULL", "NULL"
        yield "destroyed", f"s->dead.{handle}"
        yield "of another kind", f"(void *)s->{'sampler' if handle != 'sampler' else 'store'}"
        return
    if kind.endswith("*") or kind.endswith("fn") or base.endswith("*const"):
        if argument not in NULL_IS_FINE and (function, argument) not in NULL_IS_FINE_FOR:
            yield "NULL", "NULL"
        if base == "void*" and argument in ("in", "out", "data", "own") and "type" in names:
            yield "misaligned", f"(char *)({right(function, kind, argument)}) + 2"
        if base == "void*" and argument == "in" and "out" in names and "type" in names and "gatherv" not in function:
            yield "overlapping", "s->data + 1024 + 4"
        if argument == "counts" and "gatherv" in function:
            yield "overflowing", "s->too_many"
        if base == "cddp_message*":
            yield "misaligned inside", "s->odd_messages"
        if (argument in ("options", "snapshot", "into", "step", "allocator", "bootstrap", "array", "callbacks") and base != "uint64_t*") or base == "cddp_bucket*" or base in ("cddp_batch*", "cddp_ddp_stats*", "cddp_failure*",
                                                                                                   "cddp_bucket_stats*", "cddp_group_info*", "cddp_recovery_info*"):
            yield "of zeros", f"(void *)s->zeros"
        return
    if argument in ("count", "bytes", "param_count", "buffer_count", "model_count", "optimizer_count", "n", "rows", "row_bytes", "expected_bytes", "desired_bytes") and \
            base == "size_t":
        for number in HUGE:
            if not (argument in ("rows",) and function == "cddp_parallel_gather"):
                yield number, number
    elif base in ("size_t",):
        yield "too large", "SIZE_MAX"
    elif argument in ("root", "to", "from", "peer") or (argument == "rank" and base == "int"):
        yield "negative", "-1"
        yield "too large", "1 << 30"
    elif argument == "index" and base == "int":
        yield "negative", "-1"
        yield "too large", "INT_MAX"
    elif argument in ("world_size", "count", "nprocs", "replicas") and base == "int":
        yield "0", "0"
        yield "negative", "-1"
        if function != "cddp_torch_shard":
            yield "too large", "INT_MAX"
    elif base in ("cddp_type", "cddp_op", "cddp_order", "cddp_status"):
        yield "unknown", f"({base})99"
        yield "negative", f"({base})-1"
    elif argument == "weight":
        yield "negative", "-1"
        yield "no number", "(double)NAN"
    elif argument == "flags":
        yield "unknown", "1U << 31"
    elif base in ("uint64_t", "uint32_t", "unsigned", "int64_t", "bool") or argument in ("color", "key", "stage"):
        return
    else:
        sys.exit(f"misuse_table: {function}: what is wrong for {kind} {argument}?")


def check(result):
    if result == "cddp_status":
        return "CHECK_STATUS", ""
    if result.endswith("*"):
        return "CHECK_NULL", ""
    if result in ("int", "size_t", "uint32_t", "uint64_t", "bool"):
        return "CHECK_NOTHING", ""
    return "CALL", ""


rows, count = [], 0
with open(OUT, "w", encoding="utf-8") as out:
    out.write("/* Made by misuse_table.py. */\n")
    for result, name, arguments in functions():
        if name in NOTHING:
            continue
        cases = []
        for place, (kind, argument) in enumerate(arguments):
            words = [word for _, word in arguments]
            for what, expression in wrong(name, kind, argument, words):
                values = [right(name, k, a) if i != place else expression for i, (k, a) in enumerate(arguments)]
                macro = "CALL" if name in ANY_RESULT else check(result)[0]
                cases.append(f"    {macro}(\"{name}: {argument} {what}\", {name}({', '.join(values)}));\n")
        if cases:
            out.write(f"\nstatic int {name[5:]}_misused(struct scene *s)\n{{\n    (void)s;\n{''.join(cases)}    return 0;\n}}\n")
            rows.append(name)
            count += len(cases)
    out.write("\nstatic const struct row {\n    const char *name;\n    int (*misuse)(struct scene *s);\n} rows[] = {\n")
    for name in rows:
        out.write(f"    {{\"{name}\", {name[5:]}_misused}},\n")
    out.write("};\n")
print(f"{len(rows)} functions, {count} misuses")
