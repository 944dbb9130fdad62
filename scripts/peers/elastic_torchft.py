#!/usr/bin/env python3
"""The trainer of elastic_ddp.py under torchft: each process is a replica, and who is lost is left out of the next step. State comes
from a living replica, so there are no checkpoints. Run by scripts/bench --only elastic, under a torchrun for each
replica, with TORCHFT_LIGHTHOUSE and HOST_ADDRESS set. FOLDER/steps.jsonl is as that of elastic_ddp.py; a line of
kind "run" is written when the number of replicas has changed."""
import datetime, os, sys, time
import torch
from torchft import Manager, Optimizer, ProcessGroupGloo
from torchft.ddp import PureDistributedDataParallel

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import elastic_ddp as common


def main():
    options = common.read_options(__doc__)
    torch.set_num_threads(1)
    x, y = common.load(options.data)
    net = common.model_of(x.shape[1])
    inner = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)

    def load_state(state):
        net.load_state_dict(state["model"])
        inner.load_state_dict(state["optimizer"])

    # all begin together: the first would be through before the others have come
    with open(f"{options.folder}/replica-{os.environ['HOST_ADDRESS']}", "w"):
        pass
    while sum(name.startswith("replica-") for name in os.listdir(options.folder)) < options.replicas:
        time.sleep(0.02)
    limit = datetime.timedelta(seconds=options.limit)
    manager = Manager(pg=ProcessGroupGloo(timeout=limit), min_replica_size=1, load_state_dict=load_state, use_async_quorum=False,
                      state_dict=lambda: {"model": net.state_dict(), "optimizer": inner.state_dict()}, timeout=limit,
                      quorum_timeout=datetime.timedelta(seconds=60), connect_timeout=datetime.timedelta(seconds=60),
                      replica_id=f"replica-{os.environ['HOST_ADDRESS']}-", hostname=os.environ["HOST_ADDRESS"])
    # torchft 0.2.0's other wrapper fails an assertion when a peer is lost, and all replicas end with it
    model, optimizer = PureDistributedDataParallel(manager, net), Optimizer(manager, inner)
    log, world = common.Log(options.folder), 0
    while manager.current_step() < options.steps:
        optimizer.zero_grad() # begins the step: who takes part is known after it
        step, rank, now = manager.current_step(), manager.participating_rank(), manager.num_participants()
        if rank == 0 and now != world:
            log.write(kind="run", step=step, world_size=now)
        world = now if rank is not None else 0
        at = common.batch_of(step, len(y), options.batch, rank or 0, now)
        loss = common.loss_of(model, x, y, at, options.batch, now)
        loss.backward()
        optimizer.step() # or not, if a replica was lost
        if rank == 0 and manager.current_step() > step:
            log.write(step=manager.current_step(), loss=round(loss.item() / now, 6))
    if manager.participating_rank() == 0:
        common.end(log, net, x, y, manager.current_step())
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
