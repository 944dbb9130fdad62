#!/usr/bin/env python3
"""DDP on the CPU with checkpoints of torch.distributed.checkpoint, as its documentation has them: save(), or async_save() with the
thread that it uses by default. Run by scripts/bench --only checkpoint under torchrun.

  torchrun ... checkpoint_ddp.py --folder DIR --width W --steps N --every K --how save|async_save

Rank 0 prints, in ms: for each step its beginning and end, for each checkpoint when training stopped, when it went on, and when
the checkpoint was complete."""
import argparse, json, shutil, time, warnings
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.nn.parallel import DistributedDataParallel


def now_ms():
    return time.time() * 1000


def model_of(width):
    layers, size = [], 28 * 28
    for _ in range(3):
        layers += [torch.nn.Linear(size, width), torch.nn.ReLU()]
        size = width
    return torch.nn.Sequential(*layers, torch.nn.Linear(size, 10))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--width", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--every", type=int, required=True)
    parser.add_argument("--how", choices=("save", "async_save"), required=True)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    group = dist.new_group(backend="gloo") # the thread's own: it would disturb the gradients' reduction
    net = DistributedDataParallel(model_of(options.width), gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    x, y = torch.randn(32, 28 * 28), torch.randint(0, 10, (32,))
    steps, checkpoints, under_way = [], [], None

    def finish(wait):
        nonlocal under_way
        if under_way is not None and (wait or under_way.done()):
            under_way.result()
            while len(done_ms) < len(checkpoints): # the callback has its own thread
                time.sleep(1e-4)
            checkpoints[-1].append(done_ms[-1])
            under_way = None

    done_ms = []
    for step in range(1, options.steps + 1):
        began = now_ms()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
        steps.append((began, now_ms()))
        finish(False)
        if step % options.every == 0 and step < options.steps:
            began = now_ms()
            finish(True)
            model, moments = get_state_dict(net, optimizer)
            path = f"{options.folder}/step-{step}"
            if options.how == "save":
                dcp.save({"model": model, "optimizer": moments}, checkpoint_id=path,
                         process_group=group)
                checkpoints.append([began, now_ms(), now_ms()])
            else:
                under_way = dcp.async_save({"model": model, "optimizer": moments}, checkpoint_id=path, process_group=group)
                under_way.add_done_callback(lambda _: done_ms.append(now_ms()))
                checkpoints.append([began, now_ms()])
            if dist.get_rank() == 0:
                shutil.rmtree(f"{options.folder}/step-{step - options.every}", ignore_errors=True)
    finish(True)
    if dist.get_rank() == 0:
        print(json.dumps({"checkpoints": checkpoints, "steps": steps}))
    dist.destroy_process_group()


main()
