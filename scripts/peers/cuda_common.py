"""cuda_common - what the PyTorch peers on a GPU share: how steps are timed, and the line they print."""
import json
import os
import statistics
import time

import torch


def prepare(seed=1):
    """The settings that are fastest for PyTorch."""
    torch.manual_seed(seed)
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True


def join(a):
    """(rank, ranks). With --ddp the group is made, and a.device stays the kind that torch.autocast takes."""
    if not a.ddp:
        return 0, 1
    if a.device == "cpu":
        torch.distributed.init_process_group("gloo")
    else:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        torch.distributed.init_process_group("nccl", device_id=torch.device("cuda", torch.cuda.current_device()))
    return torch.distributed.get_rank(), torch.distributed.get_world_size()


def distributed(model, a):
    if not a.ddp:
        return model
    device_ids = None if a.device == "cpu" else [torch.cuda.current_device()]
    return torch.nn.parallel.DistributedDataParallel(model, device_ids=device_ids, gradient_as_bucket_view=True)


def leave(a):
    if a.ddp:
        torch.distributed.destroy_process_group()


def begin_pass():
    """Before each forward: the CUDA graphs of max-autotune may use the last pass's memory again."""
    if hasattr(torch, "compiler") and hasattr(torch.compiler, "cudagraph_mark_step_begin"):
        torch.compiler.cudagraph_mark_step_begin()


def timed_ms(step, steps, warmup, device):
    """Milliseconds of each step after the warm-up: by events on a GPU, so that no step waits for the host."""
    for _ in range(warmup):
        step()
    if device == "cpu":
        times = []
        for _ in range(steps):
            start = time.perf_counter()
            step()
            times.append(1000 * (time.perf_counter() - start))
        return times
    torch.cuda.synchronize()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
    marks[0].record()
    for mark in marks[1:]:
        step()
        mark.record()
    torch.cuda.synchronize()
    return [before.elapsed_time(after) for before, after in zip(marks, marks[1:])]


def report(what, unit, per_step, times, device, **more):
    """One JSON line."""
    step_ms = statistics.median(times)
    row = {"who": "PyTorch", "what": what, f"{unit}_per_s": 1000 * per_step / step_ms, "step_ms": step_ms,
           "step_ms_min": min(times), "step_ms_max": max(times), "steps": len(times),
           "torch": torch.__version__, "device": "cpu", **more}
    if device != "cpu":
        row |= {"device": torch.cuda.get_device_name(), "cuda": torch.version.cuda,
                "cudnn": torch.backends.cudnn.version(),
                "peak_mib": torch.cuda.max_memory_allocated() / (1 << 20)}
    print(json.dumps(row), flush=True)
