"""One of two ranks of test_torch_backend.py, whose program ends while there is work. FLAGS is a file of two zero bytes, which the
ranks share. Usage: torch_backend_exit.py CASE FLAGS; started by torchrun's variables."""
import atexit
import mmap
import os
import sys
import time

case, rank = sys.argv[1], int(os.environ["RANK"])
with open(sys.argv[2], "r+b") as file:
    ends, joined = 0, 1
    flags = mmap.mmap(file.fileno(), 2)


def raise_flag(flag):
    flags[flag] = 1


def spin():
    """Until the other rank has joined, without letting another thread have Python's lock."""
    while flags[joined] == 0:
        pass


if case == "a tensor" and rank == 0:
    sys.setswitchinterval(1e6)
    atexit.register(spin)  # the last one: registered before PyTorch is imported

import torch  # noqa: E402: see above
import torch.distributed as dist  # noqa: E402

import cddp_torch  # noqa: E402,F401

torch.set_num_threads(1)
dist.init_process_group("cddp")
number = torch.ones(3)


class Last:
    """Lets other threads have Python's lock when Python has begun to end."""

    def __del__(self, sleep=time.sleep):
        sleep(0.3)


def a_tensor():
    """The worker wants to release it, for which it needs Python's lock, which it would get when Python has begun to end."""
    if rank == 0:
        atexit.register(raise_flag, ends)
        dist.all_reduce(number, async_op=True)
        return
    while flags[ends] == 0:
        time.sleep(0.01)
    time.sleep(0.5)
    dist.all_reduce(number)
    time.sleep(0.5)  # the other rank's worker gets as far
    raise_flag(joined)
    if number.tolist() != [2, 2, 2]:
        sys.exit(f"an operation that nobody waited for gave {number}")


def a_callback():
    """It is in Python when the program ends."""
    def callback(future):
        raise_flag(joined)
        time.sleep(0.5)
        print("the callback has ended", flush=True)
        return future.value()

    dist.all_reduce(torch.ones(1), async_op=True).get_future().then(callback)
    while flags[joined] == 0:
        time.sleep(0.01)


def alone():
    """An operation of several rounds, to which the other rank never comes: it learns that this one has ended."""
    if rank == 0:
        dist.all_to_all_single(torch.zeros(3), number, [1, 2], [1, 2], async_op=True)
        return
    try:
        dist.recv(torch.zeros(1), 0)
        sys.exit("there is a message from a rank that has ended")
    except RuntimeError as error:
        print(error, flush=True)


last = Last()
{"a tensor": a_tensor, "a callback": a_callback, "alone": alone}[case]()
