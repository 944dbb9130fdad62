"""cddp as a backend of torch.distributed, on the CPU: `torch.distributed.init_process_group("cddp")` joins a cddp group.
Where the package is installed, `import torch` finds it (entry point torch.backends); else `import cddp_torch` first."""
import atexit
import sys

import torch  # the extension needs its libraries
import torch.distributed


def _create(store, rank, size, timeout):
    from . import _C  # pylint: disable=import-outside-toplevel ; every program that imports torch imports this module

    return _C.create(store, rank, size, timeout)


def _leave():
    """Before Python ends: later it would end a thread of the extension that releases a tensor, which aborts the process."""
    extension = sys.modules.get(__name__ + "._C")
    if extension is not None:
        extension.leave(hasattr(sys, "last_type"))  # an exception ends the program: do not wait for what other ranks do


def _autoload():
    """What `import torch` calls. Importing this module has registered the backend."""


def __getattr__(name):
    if name == "__version__":
        from . import _C  # pylint: disable=import-outside-toplevel

        return _C.version()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


atexit.register(_leave)  # so early that it runs after what the program registers
torch.distributed.Backend.register_backend("cddp", _create, devices=["cpu"])
