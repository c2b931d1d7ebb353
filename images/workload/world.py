"""The ranks of one launch: torchrun's variables, the process group, the device and the CPUs of this rank."""

import contextlib
import datetime
import os
import re

import torch
import torch.distributed as dist

import devices
import measurements
import sharded
import tensor_parallel
from channel import Unsupported

ONE_MODEL = ("ddp", "fsdp", "tp")
"""The values of --parallel by which several ranks train one model."""
_WITHOUT_GRADIENT = re.compile(r"did not receive grad for rank \d+: ([\d ]+)")
"""DDP's words in the second step (torch 1.12 to newest); the numbers count the parameters that DDP reduces."""
_UNUSED = (
    "DDP can't go on, since a step gives no gradient to %s%s: set find_unused_parameters = true in the [[workload]], which "
    "lets DDP look for such in each step and costs time, or freeze them (requires_grad_(False))"
)


class World:
    """Rank, size and device of this process (`kind`: its devices.Device); the collective calls that the measurement needs."""

    def __init__(self, args):
        self.rank = int(os.environ.get("RANK", "0"))
        self.local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        self.size = int(os.environ.get("WORLD_SIZE", "1"))
        self.kind = devices.of_kind(args.device)(self.local_rank)
        self.device = self.kind.torch
        self.cpus = _pin_cpus(args.cpus, self.local_rank)
        torch.set_num_threads(args.threads or len(os.sched_getaffinity(0)))
        self.kind.select()
        if self.size > 1:
            self.backend = self.kind.backend()
            dist.init_process_group(self.backend, timeout=datetime.timedelta(seconds=args.collective_timeout))
        else:
            self.backend = None

    def distribute(self, args, model):
        """Wrap `model` in DDP or FSDP, or split it, if several ranks train one model; else (one rank, inference, independent)
        return it.
        """
        if args.parallel == "tp" and not measurements.trains(args):
            raise Unsupported("tensor parallelism is for training: in mode %s each rank has the whole model" % args.mode)
        if self.size == 1 or not measurements.trains(args) or args.parallel == "independent":
            return model
        if args.parallel == "fsdp":
            return sharded.shard(model, self.device)
        if args.parallel == "tp":
            return tensor_parallel.split(args, model, self.device)
        if self.backend == "gloo" and any(parameter.is_complex() for parameter in model.parameters()):
            raise Unsupported("gloo, by which ranks on CPUs talk, has no complex numbers: such a model trains on one CPU slot")
        self._require_reduction({parameter.dtype for parameter in model.parameters() if parameter.requires_grad})
        self._reduced = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
        options = {"find_unused_parameters": True} if args.find_unused_parameters else {}
        return torch.nn.parallel.DistributedDataParallel(model, device_ids=self.kind.ids, **options)

    def _require_reduction(self, types):
        """Raise Unsupported where the backend can't add up gradients of one of `types`, as gloo of old torch can't bfloat16.

        Any other error, such as that of a rank that is gone, is raised as it is.
        """
        for dtype in sorted(types, key=str):
            try:
                dist.all_reduce(torch.zeros(1, dtype=dtype, device=self.device))
            except RuntimeError as error:
                if "scalar type" not in str(error):
                    raise
                text = "%s of torch %s can't add up numbers of type %s over ranks: %s"
                raise Unsupported(text % (self.backend, torch.__version__, str(dtype)[6:], error)) from error

    @contextlib.contextmanager
    def naming_unused_parameters(self):
        """Raise Unsupported where DDP waits in vain for gradients: name the parameters that get none, and the way out."""
        try:
            yield
        except RuntimeError as error:
            match = _WITHOUT_GRADIENT.search(str(error))
            if not match:
                raise
            names = [self._reduced[int(index)] for index in match.group(1).split()]
            raise Unsupported(_UNUSED % (", ".join(names[:5]), ", …" if len(names) > 5 else "")) from error

    def synchronize(self):
        self.kind.synchronize()

    def barrier(self):
        if self.size > 1:
            dist.barrier()

    def gather(self, value):
        """Return the `value` of every rank, in rank order, on every rank."""
        if self.size == 1:
            return [value]
        values = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def mean(self, tensors):
        """Replace each of this rank's `tensors` by its mean over all ranks, in place, and return them."""
        for tensor in tensors if self.size > 1 else ():
            dist.all_reduce(tensor)
            tensor /= self.size
        return tensors

    def finish(self):
        """Wait until every rank has come here; then the process may end without destroying the process group.

        Destroying a gloo group can wait forever for a rank that has already left (seen in two of three runs of torch 2.5.1).
        """
        self.barrier()


def _pin_cpus(sets, local_rank):
    """Pin this process to its own CPUs: the `local_rank`-th of sets such as "0-3:4-7", as far as the process may use them.

    Return these CPUs; None if the set is empty or the process may use none of it: then nothing is pinned.
    """
    ranges = sets.split(":")[local_rank] if sets else ""
    cpus = set()
    for part in ranges.split(",") if ranges else ():
        first, _, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    cpus &= os.sched_getaffinity(0)
    if not cpus:
        return None
    os.sched_setaffinity(0, cpus)
    return sorted(cpus)
