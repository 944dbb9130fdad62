"""cddp as a backend of torch.distributed, on the CPU: after `import cddp_torch`,
`torch.distributed.init_process_group("cddp")` joins a cddp group."""
import torch  # the extension needs its libraries
import torch.distributed

from . import _C

__version__ = _C.version()

torch.distributed.Backend.register_backend("cddp", _C.create, devices=["cpu"])
