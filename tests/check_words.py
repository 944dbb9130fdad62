#!/usr/bin/env python3
"""Words that grew up here and went: none of them comes back, as a name or as a file. doc/words.md explains those in use.
Usage: check_words.py SOURCE_ROOT"""
import os
import re
import sys

# A pattern that no line below these folders matches, and the word to use.
GONE = [
    (r'\b(cddpi|CDDPI)_(plane|PLANE)\w*', ('src/',), 'transport (of a device)'),
    (r'\bplanes?\b', ('src/runtime/group/',), 'transport (of a device)'),
    (r'\b(cddpi|CDDPI)_(mail|MAIL)\w*', ('src/',), 'p2p'),
    (r'\b(mail|letter|letters)\b', ('src/runtime/group/',), 'p2p, message'),
    (r'\bcddpi_flight\w*', ('src/',), 'pending operation (cddpi_pending)'),
    (r'\bflights?\b', ('src/runtime/group/',), 'pending operation'),
    (r'\bseat\b', ('src/runtime/group/',), 'open parameters (params)'),
    (r'\bcddpi_device_hold\b', ('src/',), 'ref'),
    (r'\bside\b', ('src/runtime/group/device/',), 'dev (struct cddpi_group_device)'),
    (r'\b(nap|take_nap|laggard|bells?)\b', ('src/runtime/group/',), 'backoff, straggler, wake-up'),
    (r'(->|\.|\(\*)(announce|awake|ring)\b', ('src/runtime/group/',), 'prepare_sleep, end_sleep'),
    (r'\bcddpi_(group_)?lane\w*', ('src/',), 'channel'),
    (r'\blanes?\b', ('src/runtime/group/',), 'channel'),
    (r'\b(cddpi_)?host_(descriptor|block|rank|ring|progress|segment|staging|pages)\w*', ('src/runtime/group/',), 'shm_, call fingerprint'),
    (r'\b(adjourn|whereabouts|give_verdict|await_verdict)\b', ('src/runtime/group/',), 'cleanup, host id, reply'),
    (r'\bcddpi_join\w*', ('src/',), 'launch environment (cddpi_launch_env)'),
    (r'\b(meetings?|meet\()', ('src/runtime/group/',), 'rendezvous'),
    (r'\bcddpi_ipc_(direct|windowed|is_direct)\b', ('src/runtime/group/',), 'zero-copy, chunked'),
    (r'\bcddpi_nccl_(fixed|mend|part)\b', ('src/runtime/group/',), 'deterministic, recover, release_comm'),
    (r'\b(cddpi|CDDPI)_(verdict|VERDICT)\w*', ('src/',), 'step status'),
    (r'\bverdicts?\b', ('src/runtime/ddp/',), 'step status'),
    (r'\b(hidden|scattered|complain|camps?)\b', ('src/runtime/ddp/',), 'zero-filled, copied, report_unused, variant'),
    (r'\b(cddpi|CDDPI)_(proof|PROOF)\w*', ('src/',), 'auth'),
    (r'\bcddpi_door\w*', ('src/',), 'listener'),
    (r'\bcddpi_client_doom\b', ('src/',), 'cddpi_client_close'),
    (r'\bcddpi_ask_child\b', ('src/',), 'probe'),
    (r'\bcddpi_share_records\b', ('src/',), 'cddpi_all_gather_bytes'),
    (r'\bcddpi_(group_|ddp_)?record(s|ing|_begin|_end|_failed)?\b', ('src/',), 'capture (record means an event)'),
    (r'\b(record_begin|record_end|recording_destroy)\b', ('src/',), 'capture_begin, capture_end, graph_destroy'),
    (r'\brecordings?\b', ('src/runtime/group/',), 'capture, captured graph'),
    (r'\bcddpi_products?(_[a-z_]+)?\b', ('src/', 'kernels/'), 'matmul'),
    (r'\bCDDPI_PRODUCTS?_', ('src/', 'kernels/'), 'matmul'),
    (r'\bcddpi_(nn|bf16)_product\b', ('src/',), 'matmul'),
    (r'\bcddpi_nn_tiles_', ('src/', 'kernels/'), 'AMX GEMM (amx)'),
    (r'\b(CDDPI_BF16_TILES|CDDPI_HAVE_TILES)\b', ('src/',), 'AMX (CDDPI_BF16_AMX)'),
    (r'(->|\.)tiled\b', ('src/trainer/nn/',), 'amx'),
    (r'(->|\.)again\b', ('src/trainer/nn/',), 'recompute_time, recomputed'),
    (r'\bcddpi_memory_again\b', ('src/',), 'recompute'),
    (r'\b(model|exec)->(given|uses)\b', ('src/trainer/nn/',), 'grads_arrived, grads_expected'),
    (r'(->|\.)masked\b', ('src/trainer/nn/',), 'pre-activation gradient (preact_grad)'),
    (r'\bCDDPI_MASKS_GRAD\b', ('src/',), 'CDDPI_MAKES_PREACT_GRAD'),
    (r'\bstruct cddpi_run\b', ('src/',), 'execution context (cddpi_exec)'),
    (r'\bcddpi_run_(input|output|param|grad|ready|buffer|device|kernels)\b', ('src/',), 'execution context (cddpi_exec)'),
    (r'\bcddpi_model_(create|release)_results\b', ('src/',), 'outputs'),
    (r'\bstruct cddpi_memory\b', ('src/trainer/nn/',), 'arena'),
    (r'\bcddpi_memory_(add|root|extend|view|replace|place|valid|sum|fini)\b', ('src/',), 'arena'),
    (r'\bdate_owned\b', ('src/',), 'set lifetimes'),
    (r'\b(cddpi_)?dnnl_wish\b', ('src/',), 'primitive request (dnnl_request)'),
    (r'\bwish\b', ('src/trainer/nn/',), 'primitive request'),
    (r'\bsay_nothing\b', ('src/',), 'send_empty_statistics'),
    (r'\bcddpi_cuda_recording\b', ('kernels/',), 'capture'),
    (r'\bcddpi_stopwatch', ('kernels/',), 'timer'),
    (r'\bcddpi_cuda_kept\b', ('kernels/', 'src/'), 'device cache'),
    (r'\bcddpi_gpt_kernels', ('kernels/',), 'transformer kernels'),
    (r'[a-z]_rows\.c\b', ('kernels/',), 'dispatch'),
    (r'\bcddpi_sources?\b|\bcddpi_source_', ('src/',), 'data file'),
    (r'\bcddpi_pages', ('src/',), 'growable mapping'),
    (r'\bcddpi_share_sources\b|\bCDDPI_SHARED_FILES\b', ('src/',), 'file exchange'),
    (r'\bcddpi_sequence', ('src/',), 'micro-batch schedule'),
    (r'\bcddpi_dataset_window\b|\bcddpi_tokens_window|\bfirst_window\b|\b(make|print)_windows\b', ('src/',), 'token sequence'),
    (r'\bcddpi_fe(e)?d\b|\bcddpi_feed_|\b(test_)?feed->', ('src/',), 'prefetcher'),
    (r'\bcddpi_trainer_settle\b|\bsettle(_one)?\(', ('src/trainer/train/',), 'collect results'),
    (r'\bmirror(s|ed)?\b[^.]*[;(>]|\bcddpi_trainer_(hold|drop)_mirror\b', ('src/trainer/train/',), 'host copy'),
    (r'\bcddpi_(choose|choice|candidate)\b', ('src/trainer/train/',), 'token sampling'),
    (r'\bcddpi_(trainer_)?wish|\b\w+_wish\b|\bwishes\b|\bSAME_WISH', ('src/trainer/train/',), 'stop/save request'),
    (r'\bwish(es)?\b|\b\w+_wish\b|\bSAME_WISH', ('launcher/',), 'stop request'),
    (r'\bheard\b[;,)(]|\bcddpi_heard', ('src/trainer/train/',), 'on_agreed'),
    (r'\bstruct words\b', ('src/trainer/train/',), 'step scalars'),
    (r'\bcddpi_step_way\b|\bcddpi_ended\b', ('src/trainer/train/',), 'step mode, step result'),
    (r'\bCDDPI_RECORDED\b|\brecordings?\b', ('src/trainer/train/',), 'capture'),
    (r'\btrainer(->|\.)at\b', ('src/',), 'cursor'),
    (r'\bcddpi_at_work|\bCDDPI_(AT_WORK|BLAMES|FAILS)', ('src/', 'launcher/'), 'launcher report'),
    (r'\bcddpi_(guard|echo|show|descendants)', ('launcher/',), 'monitor, deduplicate, info, reaper'),
    (r'\breact\.c\b', ('launcher/',), 'failure policy'),
    (r'"[^"]*\bis none of\b|"[^"]*\bis no (whole number|token|permutation|file name|cddp store|tokenizer\.json|JSON)\b', ('src/',), 'is not one of, is not a'),
    (r'samples cannot be"|classes cannot be"|called so\b', ('src/',), 'a sentence with its verb'),
    (r'strangers', ('tests/meson.build',), 'malformed input'),
]

# Files that have other names now.
FILES = r"(^|/)(react|echo|show|guard|descendants|proof|ask|find|stopwatch|nn_gpt|nn_tiles\w*|plane|planes|mail|meet|verdict|feed|" \
        r"settle|mirror|peak|signal|windowed|direct|fixed|join|products|results|\w+_rows)\.(c|h|cu)$"


def main():
    root = sys.argv[1]
    os.chdir(root)
    bad = 0
    texts = {}
    for top in ("src", "kernels", "launcher", "samplers"):
        for folder, _, names in os.walk(top):
            for name in names:
                path = os.path.join(folder, name)
                if re.search(FILES, path):
                    print(f"{path}: a file's name that went: see doc/words.md")
                    bad += 1
                if path.endswith((".c", ".h", ".cu", ".cuh", "meson.build")):
                    with open(path, encoding="utf-8") as file:
                        texts[path] = file.read().split("\n")
    for pattern, folders, word in GONE:
        expression = re.compile(pattern)
        for path, lines in texts.items():
            if not path.startswith(folders):
                continue
            for number, line in enumerate(lines, 1):
                if expression.search(line):
                    print(f"{path}:{number}: the word here is: {word}\n    {line.strip()}")
                    bad += 1
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
