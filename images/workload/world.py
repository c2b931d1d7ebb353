"""The ranks of one launch: torchrun's variables, the process group, the device and the CPUs of this rank."""

import datetime
import os

import sharded
import torch
import torch.distributed as dist

ONE_MODEL = ("ddp", "fsdp")
"""The values of --parallel by which several ranks train one model."""


class World:
    """Rank, size and device of this process; the collective calls that the measurement needs."""

    def __init__(self, args):
        self.rank = int(os.environ.get("RANK", "0"))
        self.local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        self.size = int(os.environ.get("WORLD_SIZE", "1"))
        self.device = torch.device(args.device, self.local_rank) if args.device == "cuda" else torch.device("cpu")
        self.cpus = _pin_cpus(args.cpus, self.local_rank)
        torch.set_num_threads(args.threads or len(os.sched_getaffinity(0)))
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        if self.size > 1:
            self.backend = "nccl" if self.device.type == "cuda" else "gloo"
            dist.init_process_group(self.backend, timeout=datetime.timedelta(seconds=args.collective_timeout))
        else:
            self.backend = None

    def distribute(self, args, model):
        """`model`, for DDP or FSDP if several ranks train one model; otherwise (one rank, inference, independent) unchanged."""
        if self.size == 1 or args.mode == "infer" or args.parallel == "independent":
            return model
        if args.parallel == "fsdp":
            return sharded.shard(model, self.device)
        ids = [self.local_rank] if self.device.type == "cuda" else None
        return torch.nn.parallel.DistributedDataParallel(model, device_ids=ids)

    def synchronize(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def barrier(self):
        if self.size > 1:
            dist.barrier()

    def gather(self, value):
        """`value` of every rank, in rank order, on every rank."""
        if self.size == 1:
            return [value]
        values = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def mean(self, tensors):
        """Each of `tensors` (this rank's own; they are overwritten) as the mean over all ranks."""
        for tensor in tensors if self.size > 1 else ():
            dist.all_reduce(tensor)
            tensor /= self.size
        return tensors

    def finish(self):
        """Wait until every rank has come here; the process may end then, without destroying the process group.

        Destroying a gloo group can wait forever for a rank that has already left (seen in two of three runs of torch 2.5.1).
        """
        self.barrier()


def _pin_cpus(sets, local_rank):
    """Pin this process to its own CPUs: the `local_rank`-th of sets such as "0-3:4-7", as far as it may use them.

    Returns them; None if the set is empty or none of it may be used: then nothing is pinned.
    """
    own = sets.split(":")[local_rank] if sets else ""
    cpus = set()
    for part in own.split(",") if own else ():
        first, _, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    cpus &= os.sched_getaffinity(0)
    if not cpus:
        return None
    os.sched_setaffinity(0, cpus)
    return sorted(cpus)
