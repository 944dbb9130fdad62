#!/usr/bin/env python3
"""A small elastic DDP trainer (CPU, gloo), as torchrun's documentation has it: every process begins with the newest checkpoint, and
rank 0 writes one every K steps. The model, data, batch and optimizer are those of scripts/elastic_hosts.py. Run by
scripts/bench --only elastic under torchrun.

  torchrun ... elastic_ddp.py --data DIR --folder DIR --steps N --checkpoint-steps K --limit SECONDS

FOLDER/steps.jsonl gets a line as each process of rank 0 begins, one for each step that it has completed, and at last the
loss of all data."""
import argparse, datetime, gzip, json, os, sys, time
import torch
import torch.distributed as dist
import torch.nn.functional as F


def load(folder):
    with gzip.open(f"{folder}/images.gz") as file:
        pixels = file.read()[16:]
    with open(f"{folder}/labels", "rb") as file:
        labels = file.read()[8:]
    x = torch.frombuffer(bytearray(pixels), dtype=torch.uint8).view(len(labels), -1).float() / 255
    return x, torch.frombuffer(bytearray(labels), dtype=torch.uint8).long()


def model_of(features):
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(features, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256), torch.nn.ReLU(),
                               torch.nn.Linear(256, 4))


class Log:
    def __init__(self, folder):
        self.fd = os.open(f"{folder}/steps.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, **row):
        os.write(self.fd, (json.dumps(row | {"time_ms": int(time.time() * 1000)}) + "\n").encode())


def batch_of(step, count, batch, rank, world):
    """The samples of one rank: all ranks use one order, and the batch does not depend on their number."""
    epoch, at = divmod(step * batch, count)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(epoch))[at:at + batch]
    return order[rank::world]


def save(path, **state):
    torch.save(state, path + ".new")
    os.replace(path + ".new", path)


def read_options(text):
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--checkpoint-steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--limit", type=float, default=5)
    parser.add_argument("--replicas", type=int, default=1, help="of torchft: how many begin together")
    return parser.parse_args()


def loss_of(model, x, y, at, batch, world):
    """Whose mean over ranks is the batch's, also if ranks have a sample more or less."""
    return F.cross_entropy(model(x[at]), y[at], reduction="sum") * world / batch


def end(log, net, x, y, step):
    with torch.no_grad():
        log.write(kind="end", step=step, final_loss=F.cross_entropy(net(x), y).item())


def main():
    options = read_options(__doc__)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60)) # processes begin seconds apart on a busy machine
    rank, world = dist.get_rank(), dist.get_world_size()
    x, y = load(options.data)
    net = model_of(x.shape[1])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    step, path = 0, f"{options.folder}/checkpoint.pt"
    if os.path.exists(path):
        state = torch.load(path)
        net.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    model = torch.nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True)
    dist.barrier()
    dist.distributed_c10d._set_pg_timeout(datetime.timedelta(seconds=options.limit)) # of each collective from now on
    log = Log(options.folder)
    if rank == 0:
        log.write(kind="run", step=step, world_size=world)
    while step < options.steps:
        at = batch_of(step, len(y), options.batch, rank, world)
        loss = loss_of(model, x, y, at, options.batch, world)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        if rank == 0:
            log.write(step=step, loss=round(loss.item() / world, 6))
            if step % options.checkpoint_steps == 0:
                save(path, model=net.state_dict(), optimizer=optimizer.state_dict(), step=step)
    if rank == 0:
        end(log, net, x, y, step)
    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
