"""ranks - the part `ranks`: several ranks on the one card, and what a group costs where there is no other rank."""
from . import disturb
from .machine import Failed, say
from .training import train

# Algorithms are chosen by time, which ranks that take turns measure badly: `first` takes the library's own choice.
SHARED = (("solo x1", 1, {"CDDP_BACKEND": "solo"}), ("nccl x1", 1, {"CDDP_BACKEND": "nccl"}),
          ("ipc x2", 2, {"CDDP_BACKEND": "ipc"}),
          ("ipc x2, products first", 2, {"CDDP_BACKEND": "ipc", "CDDP_PRODUCTS": "first"}),
          ("staged x2", 2, {"CDDP_BACKEND": "staged"}), ("ipc x4", 4, {"CDDP_BACKEND": "ipc"}))


def run_ranks(machine, log, part):
    part |= {"rows": {}, "failed": []}
    for who, ranks, env in SHARED:
        try:
            # what streams wait for changes with each operation, so steps of several ranks cannot be captured
            words = ["train.batch_size=128", f"train.micro_batch={min(64, 128 // ranks)}", "train.max_steps=40",
                     "data.samples=5120", *(["train.cuda_graph=never"] if ranks > 1 else [])]
            part["rows"][who] = train(machine, log, "gpt2_124m", words, ranks, 60, env)
        except Failed as error:
            say(error)
            part["failed"].append(f"{who}: {error}")
        machine.save()
    part["killed"] = disturb.one(machine, log, 2, "killed", {"CDDP_BACKEND": "ipc"})
    if part["killed"]["problem"]:
        part["failed"].append(f"a rank killed: {part['killed']['problem']}")
