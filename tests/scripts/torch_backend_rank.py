"""One rank of test_torch_backend.py: trains a small net with DDP over a backend and prints the losses; then, with cddp,
compares every collective with the expected result. Usage: torch_backend_rank.py BACKEND; started by torchrun's variables."""
import gc
import re
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook, quantization_hooks
import torch.nn.functional as F

backend = sys.argv[1]
if backend == "cddp":
    import cddp_torch

    assert cddp_torch.__version__
torch.set_num_threads(1)
dist.init_process_group(backend)
rank, size = dist.get_rank(), dist.get_world_size()


def check(holds, what):
    if not holds:
        sys.exit(f"rank {rank}: not so: {what}")


def train():
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten(),
                              torch.nn.Linear(144, 32), torch.nn.Tanh(), torch.nn.Linear(32, 10))
    net = torch.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=0.005)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    data = torch.Generator().manual_seed(100 + rank)
    for step in range(20):
        images = torch.randn(8, 1, 8, 8, generator=data)
        labels = (images.sum(dim=(1, 2, 3)) > 0).long()
        optimizer.zero_grad()
        loss = F.cross_entropy(net(images), labels)
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        if rank == 0:
            print(f"loss {total.item() / size:.9g}", flush=True)


def reductions():
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8,
                  torch.int8, torch.int16):
        def made(values):
            return torch.tensor(values, dtype=dtype)
        for op, want in ((dist.ReduceOp.SUM, sum(range(1, size + 1))), (dist.ReduceOp.MAX, size),
                         (dist.ReduceOp.MIN, 1)):
            one = made([rank + 1] * 5)
            dist.all_reduce(one, op)
            check(torch.equal(one, made([want] * 5)), (dtype, op))
        own, all_of_it = made([rank + 1, 7]), torch.zeros(2 * size, dtype=dtype)
        dist.all_gather_into_tensor(all_of_it, own)
        check(all_of_it[2 * (size - 1)] == size and all_of_it[1] == 7, (dtype, "all_gather_into_tensor"))
        part = torch.zeros(2, dtype=dtype)
        dist.reduce_scatter_tensor(part, made([1, 2] * size))
        check(torch.equal(part, made([size, 2 * size])), (dtype, "reduce_scatter_tensor"))
        parts = [torch.zeros(2, dtype=dtype) for _ in range(size)]
        dist.all_gather(parts, own)
        check(all(int(parts[r][0]) == r + 1 for r in range(size)), (dtype, "all_gather"))
    number = torch.tensor([2.0 ** rank])
    dist.all_reduce(number, dist.ReduceOp.PRODUCT)
    check(number.item() == 2.0 ** (size * (size - 1) // 2), "product")
    number = torch.tensor([float(rank)])
    dist.all_reduce(number, dist.ReduceOp.AVG)
    check(abs(number.item() - (size - 1) / 2) < 1e-6, "mean")
    flags = torch.tensor([rank == 0, False, True])
    dist.all_reduce(flags)
    check(flags.tolist() == [True, False, True], "bool")
    flags = torch.tensor([rank == 0, True])
    dist.all_reduce(flags, dist.ReduceOp.PRODUCT)
    check(flags.tolist() == [False, True], "product of bool")
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64):
        for op, want in ((dist.ReduceOp.BOR, [(1 << size) - 1, 3]), (dist.ReduceOp.BAND, [0, 3]),
                         (dist.ReduceOp.BXOR, [(1 << size) - 1, 3 * (size % 2)])):
            bits = torch.tensor([1 << rank, 3], dtype=dtype)
            dist.all_reduce(bits, op)
            check(bits.tolist() == want, (dtype, op))
            part = torch.zeros(2, dtype=dtype)
            dist.reduce_scatter_tensor(part, torch.tensor([1 << rank, 3] * size, dtype=dtype), op)
            check(part.tolist() == want, (dtype, op, "reduce_scatter_tensor"))
            bits = torch.tensor([1 << rank, 3], dtype=dtype)
            dist.reduce(bits, 0, op)
            check(bits.tolist() == (want if rank == 0 else [1 << rank, 3]), (dtype, op, "reduce"))
    for factor in (0.5, torch.tensor([0.5])):
        number = torch.tensor([float(rank), 2.0])
        dist.all_reduce(number, dist._make_nccl_premul_sum(factor))
        check(number.tolist() == [size * (size - 1) / 4, size], "premul_sum")
    pair = torch.tensor([1 + 1j * rank])
    dist.all_reduce(pair)
    check(pair.item() == size + 1j * size * (size - 1) / 2, "complex")
    strided = torch.full((4, 6), float(rank + 1)).t()[::2]
    dist.all_reduce(strided)
    check(bool((strided == sum(range(1, size + 1))).all()), "not contiguous")


def exchanges():
    last = size - 1
    data = torch.arange(4.0) if rank == last else torch.zeros(4)
    dist.broadcast(data, last)
    check(torch.equal(data, torch.arange(4.0)), "broadcast")
    data = torch.tensor([1.0])
    dist.reduce(data, 0)
    check(data.item() == (size if rank == 0 else 1), "reduce")
    out = [torch.zeros(2) for _ in range(size)] if rank == 0 else None
    dist.gather(torch.full((2,), float(rank)), out, 0)
    check(rank != 0 or [int(o[1]) for o in out] == list(range(size)), "gather")
    got = torch.zeros(2)
    dist.scatter(got, [torch.full((2,), float(r)) for r in range(size)] if rank == 0 else None, 0)
    check(got.tolist() == [rank, rank], "scatter")
    dist.reduce_scatter(got, [torch.full((2,), float(r)) for r in range(size)])
    check(got.tolist() == [rank * size] * 2, "reduce_scatter")
    out = torch.zeros(size)
    dist.all_to_all_single(out, torch.full((size,), float(rank)))
    check(out.tolist() == list(range(size)), "all_to_all_single")
    splits = [rank + 1] * size # rank r sends r + 1 rows to each
    out = torch.zeros(sum(range(1, size + 1)), 2)
    dist.all_to_all_single(out, torch.full((size * (rank + 1), 2), float(rank)), list(range(1, size + 1)), splits)
    check(out[:, 1].tolist() == [r for r in range(size) for _ in range(r + 1)], "all_to_all_single, unequal")
    out = [torch.zeros(r + 1) for r in range(size)]
    dist.all_to_all(out, [torch.full((rank + 1,), float(rank)) for _ in range(size)])
    check(all(bool((out[r] == r).all()) for r in range(size)), "all_to_all")
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank, "text": "x" * (10 * rank)})
    check([o["rank"] for o in objects] == list(range(size)), "all_gather_object")
    dist.barrier()


def messages():
    if size == 1:
        return
    after, before = (rank + 1) % size, (rank - 1) % size
    got = torch.zeros(1000)
    works = dist.batch_isend_irecv([dist.P2POp(dist.irecv, got, before),
                                    dist.P2POp(dist.isend, torch.full((1000,), float(rank)), after)])
    for work in works:
        work.wait()
    check(bool((got == before).all()), "batch_isend_irecv")
    if rank == 0: # in another order than they are sent
        second, first = torch.zeros(3), torch.zeros(2)
        dist.recv(second, 1, tag=2)
        dist.recv(first, 1, tag=1)
        check(first.tolist() == [1, 1] and second.tolist() == [2, 2, 2], "tags")
        seen = set()
        for _ in range(size - 1):
            seen.add(dist.recv(got))
        check(seen == set(range(1, size)), "recv from any source")
    else:
        if rank == 1:
            dist.send(torch.full((2,), 1.0), 0, tag=1)
            dist.send(torch.full((3,), 2.0), 0, tag=2)
        dist.send(torch.full((1000,), float(rank)), 0)
    dist.barrier()


def futures_and_groups():
    data = torch.tensor([float(rank)])
    work = dist.all_reduce(data, async_op=True)
    doubled = work.get_future().then(lambda future: future.value()[0] * 2)
    check(doubled.wait().item() == size * (size - 1), "future")
    works = [dist.all_reduce(torch.ones(1 << k), async_op=True) for k in range(12)]
    for work in works:
        work.wait()
        check(work.is_completed(), "is_completed")
    evens = dist.new_group(list(range(0, size, 2)))
    if rank % 2 == 0:
        data = torch.ones(1)
        dist.all_reduce(data, group=evens)
        check(data.item() == (size + 1) // 2, "new_group")
    try:
        dist.all_reduce(torch.zeros(2, dtype=torch.float8_e5m2))
        check(False, "a type that cannot be reduced is refused")
    except RuntimeError as error:
        check("does not reduce" in str(error), error)
    dist.barrier()


def a_source_that_leaves():
    """A receive from any source goes on when a rank has left; one from that rank ends with its name."""
    if size < 3:
        return
    group, got = dist.new_group(), torch.zeros(1)
    if rank == 0:
        work = dist.irecv(got, group=group)
    dist.barrier()
    if rank == size - 1:
        dist.destroy_process_group(group)
        group = None
        gc.collect()
    dist.barrier()
    if rank == 1:
        dist.send(torch.full((1,), 5.0), 0, group=group)
    elif rank == 0:
        work.wait()
        check(got.item() == 5, "a receive from any source, where one rank has left")
        try:
            dist.recv(got, size - 1, group=group)
            check(False, "a receive from a rank that has left ends")
        except RuntimeError as error:
            check(f"rank {size - 1} has left" in str(error), error)
    dist.barrier()


def leave(group):
    """Destroy a group of new_group(): the last reference is the caller's."""
    dist.destroy_process_group(group)
    gc.collect()


def a_listener_that_leaves():
    """with receives under way from all does not wait for them, and the others go on."""
    group = dist.new_group()
    last = size - 1
    if rank == 0:
        check(dist.recv(torch.zeros(1), group=group) == last, "a receive from any source")
        begin = time.monotonic()
        leave(group)
        group = None
        gc.collect()
        check(time.monotonic() - begin < 20, "a rank that listens to all leaves at once")
    elif rank == last:
        dist.send(torch.ones(1), 0, group=group)
    dist.barrier()
    if size > 2 and rank == 1:
        dist.send(torch.full((1,), 6.0), last, group=group)
        check(dist.recv(torch.zeros(1), group=group) == last, "messages between those that are left")
    elif size > 2 and rank == last:
        got = torch.zeros(1)
        check(dist.recv(got, group=group) == 1 and got.item() == 6, "from any that is left")
        dist.send(torch.ones(1), 1, group=group)
    dist.barrier()
    if rank != 0:
        leave(group)
    dist.barrier()


def listeners_that_leave_together():
    """all at once, after messages from any source, end no group."""
    for _ in range(5):
        group = dist.new_group()
        works = [dist.isend(torch.ones(1), other, group=group) for other in range(size) if other != rank]
        for _ in range(size - 1):
            dist.recv(torch.zeros(1), group=group)
        for work in works:
            work.wait()
        leave(group)
        group = None
        gc.collect()
    dist.barrier()


def a_receive_begun_after_its_source_has_left():
    """ends with its name, and the group goes on."""
    if size < 3:
        return
    group = dist.new_group()
    if rank == size - 1:
        leave(group)
        group = None
        gc.collect()
    dist.barrier()
    if rank == 0:
        try:
            dist.recv(torch.zeros(1), size - 1, group=group)
            check(False, "a receive from a rank that had left ends")
        except RuntimeError as error:
            check(f"rank {size - 1} has left" in str(error), error)
        check(dist.recv(torch.zeros(1), group=group) == 1, "the group goes on")
    elif rank == 1:
        dist.send(torch.ones(1), 0, group=group)
    dist.barrier()


def splits_of_a_group():
    """are groups of their own, with the ranks in the order that was given; others are no members."""
    parts = [list(range(size))[::-1]] if size == 2 else [[2, 0], [1]]
    part = dist.split_group(split_ranks=parts)
    own = next(p for p in parts if rank in p)
    check(dist.get_rank(part) == own.index(rank) and dist.get_world_size(part) == len(own), "ranks of a part")
    number = torch.tensor([float(rank)])
    dist.all_reduce(number, group=part)
    check(number.item() == sum(own), "a sum in a part")
    dist.broadcast(number.fill_(rank), group=part, group_src=0)
    check(number.item() == own[0], "the first of a part")
    again = dist.split_group(part, [[0]], timeout=timedelta(seconds=30))
    check((again == dist.GroupMember.NON_GROUP_MEMBER) == (own.index(rank) != 0), "a part of a part")
    dist.monitored_barrier(group=part)
    dist.barrier()


def coalesced():
    """operations are one work, which is done when all of them are, or fails as the first does."""
    cpu = torch.device("cpu")
    numbers = [torch.full((n + 1,), float(rank)) for n in range(4)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for number in numbers:
            dist.all_reduce(number)
    manager.wait()
    check(all(number[0].item() == size * (size - 1) / 2 for number in numbers), "coalesced all_reduce")
    after, before, got = (rank + 1) % size, (rank - 1) % size, torch.zeros(3)
    last = torch.full((2,), float(rank))
    with dist._coalescing_manager(device=cpu, async_ops=True) as manager:
        dist.irecv(got, before)
        dist.isend(torch.full((3,), float(rank)), after)
        dist.broadcast(last, size - 1)
    check(len(manager.works) == 1, "one work for all")
    manager.wait()
    check(got.tolist() == [before] * 3 and last.tolist() == [size - 1] * 2, "coalesced messages and broadcast")
    with dist._coalescing_manager(device=cpu, async_ops=True) as manager:
        pass
    manager.wait()
    with dist._coalescing_manager(device=cpu, async_ops=True) as manager:
        dist.isend(torch.ones(5), after)
        dist.irecv(torch.zeros(1), before)
        dist.barrier(async_op=True)
    try:
        manager.wait()
        check(False, "a coalesced work fails as one of its works does")
    except RuntimeError as error:
        check("for which a tensor of" in str(error), error)
    whole = []
    with dist._coalescing_manager(device=cpu, async_ops=True) as manager:
        dist.broadcast(numbers[0], 0, async_op=True)
    manager.works[0].get_future().then(lambda future: whole.append(1)).wait()
    check(whole == [1], "the future of a coalesced work")
    dist.barrier()


def callbacks_that_wait():
    """A future's callback waits for another collective, as hooks of several rounds do."""
    first = dist.all_reduce(torch.ones(1), async_op=True).get_future()
    second = first.then(lambda _: dist.all_reduce(torch.full((1,), 2.0), async_op=True).get_future().wait()[0].item())
    third = second.then(lambda done: done.value() + dist.all_reduce(torch.ones(1), async_op=True).get_future().wait()[0].item())
    check(third.wait() == 3 * size, "a callback waits for a collective")
    for name, hook, state in (("PowerSGD", powerSGD_hook.powerSGD_hook, powerSGD_hook.PowerSGDState(None, 1, 2)),
                              ("per-tensor quantization", quantization_hooks.quantization_pertensor_hook, None)):
        torch.manual_seed(3)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 4)))
        model.register_comm_hook(state, hook)
        for step in range(5):
            model(torch.full((8, 64), 0.1 * (rank + step + 1))).square().mean().backward()
        norms = [torch.zeros(1) for _ in range(size)]
        dist.all_gather(norms, model.module[0].weight.grad.norm().reshape(1))
        check(norms[0] > 0 and all(torch.equal(norms[0], one) for one in norms), f"{name}: all ranks have one gradient, not {norms}")


def splits_that_disagree():
    """are the same error on every rank, which says who sends what to whom, and the group goes on."""
    sends = [1] * size
    expects = [1] * size
    if rank == 1:
        expects[0] = 3
    try:
        dist.all_to_all_single(torch.zeros(sum(expects)), torch.ones(size), expects, sends)
        check(False, "splits that disagree are an error")
    except RuntimeError as error:
        check("rank 0 sends 4 bytes to rank 1, which expects 12" in str(error), error)
    number = torch.ones(1)
    dist.all_reduce(number)
    check(number.item() == size, "the group goes on after splits that disagree")


def deadlines():
    """Of one wait, which ends; the operation goes on."""
    got = torch.zeros(1)
    if rank == 0:
        work = dist.irecv(got, 1)
        try:
            work.wait(timedelta(milliseconds=50))
            check(False, "a wait has an end")
        except RuntimeError as error:
            check("timed out" in str(error).lower(), error)
        dist.send(got, 1)
        work.wait()
        check(got.item() == 7, "an operation goes on after a wait has ended")
    elif rank == 1:
        dist.recv(got, 0)
        dist.send(torch.tensor([7.0]), 0)
    dist.barrier()


def refused(begin, missing, exactly=False, name_all=False):
    """A monitored barrier without all ranks ends, and names at least these: on a busy machine more are late."""
    try:
        dist.monitored_barrier(timeout=timedelta(milliseconds=100), wait_all_ranks=name_all)
        check(False, "a monitored barrier without all ranks ends")
    except RuntimeError as error:
        named = re.search(r"Ranks? ([0-9, ]+) failed to (pass|reach)", str(error))
        check(begin in str(error) and named, error)
        named = [int(r) for r in named.group(1).split(",")]
        check(named == missing if exactly else set(named) >= set(missing), error)


def without(absent, missing, exactly=False, name_all=False):
    """A monitored barrier to which ranks come only when it has failed on the others, and on them, too."""
    others = [r for r in range(size) if r not in absent]
    if rank in absent:
        for other in others:
            dist.recv(torch.zeros(1), other)
    refused("[Rank 0]: Rank" if rank == 0 else f"Rank {rank} successfully reached monitoredBarrier", missing, exactly, name_all)
    if rank not in absent:
        for other in absent:
            dist.send(torch.zeros(1), other)


def monitored_barriers():
    """Name who does not come; the group goes on, and a later one passes."""
    def passes(name_all=False):
        dist.monitored_barrier(timeout=timedelta(seconds=600), wait_all_ranks=name_all)
    passes()
    passes(True)
    all_but_first = list(range(1, size))
    without(all_but_first, [1], exactly=True)
    without(all_but_first, all_but_first, exactly=True, name_all=True)
    passes()
    without([size - 1], [size - 1], name_all=True)
    without([0], [0])
    passes()
    number = torch.ones(1)
    dist.all_reduce(number)
    check(number.item() == size, "operations after monitored barriers that failed")


train()
if backend == "cddp":
    reductions()
    exchanges()
    messages()
    futures_and_groups()
    a_source_that_leaves()
    a_listener_that_leaves()
    listeners_that_leave_together()
    a_receive_begun_after_its_source_has_left()
    splits_of_a_group()
    coalesced()
    callbacks_that_wait()
    splits_that_disagree()
    deadlines()
    monitored_barriers()
dist.destroy_process_group()
