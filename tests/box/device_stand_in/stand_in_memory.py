"""The memory of the invented devices: which storages lie on which device, how many bytes that is, and when it is full.

Tensors are CPU tensors. A storage is on a device (its index), on the host, or unknown: what C++ code made without being asked
from Python, such as the buckets of DDP, which takes the device of what it first meets.
"""

import weakref

import torch
from stand_in_script import SCRIPT

HOST = "cpu"
_BLOCK = 2 << 20
"""PyTorch's allocator reserves memory in blocks of 2 MiB."""


class Memory:
    """Where storages are, and the counts of each device."""

    def __init__(self):
        count = SCRIPT["devices"]
        self.capacity = [SCRIPT["memory_bytes"]] * count
        self.allocated, self.peak, self.reserved, self.peak_reserved = ([0] * count for _ in range(4))
        self._places, self._ends = {}, {}

    def place(self, tensor):
        """Return a device's index, HOST, or None if it isn't known."""
        return self._places.get(tensor.untyped_storage()._cdata)

    def put(self, tensor, place):
        """Say where a tensor's storage is; raise OutOfMemoryError if the device has no space for it."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._places:
            return
        size = storage.nbytes() if place != HOST else 0
        if size:
            self._take(place, size)
        self._places[key] = place
        self._ends[key] = weakref.finalize(storage, self._forget, key, place, size)

    def move(self, tensor, place):
        """Move a tensor that was just made for a copy to another device: it was never where it was made."""
        key = tensor.untyped_storage()._cdata
        if key in self._ends:
            self._ends[key]()
        self.put(tensor, place)

    def _take(self, device, size):
        if self.allocated[device] + size > self.capacity[device]:
            free = self.capacity[device] - self.allocated[device]
            raise torch.cuda.OutOfMemoryError(
                "CUDA out of memory. Tried to allocate %.2f MiB. GPU %d has a total capacity of %.2f GiB of which %.2f MiB is "
                "free." % (size / 2**20, device, self.capacity[device] / 2**30, free / 2**20)
            )
        self.allocated[device] += size
        self.peak[device] = max(self.peak[device], self.allocated[device])
        self.reserved[device] = max(self.reserved[device], -(-self.allocated[device] // _BLOCK) * _BLOCK)
        self.peak_reserved[device] = max(self.peak_reserved[device], self.reserved[device])

    def _forget(self, key, place, size):
        del self._places[key], self._ends[key]
        if size:
            self.allocated[place] -= size

    def fill_up(self, device):
        """Fill a device as if another program took all that is free."""
        self.capacity[device] = self.allocated[device]

    def reset_peak(self, device):
        self.peak[device], self.peak_reserved[device] = self.allocated[device], self.reserved[device]

    def release(self, device):
        self.reserved[device] = -(-self.allocated[device] // _BLOCK) * _BLOCK


MEMORY = Memory()
