"""Stand-in for torch.cuda or torch.xpu as the workload calls it, on invented devices, and for what torch itself asks of it."""

import collections
import datetime
import time
from types import SimpleNamespace

import torch
from stand_in_failures import FAILURES, watch_collectives
from stand_in_memory import MEMORY
from stand_in_script import SCRIPT, tell, uuid

_state = SimpleNamespace(current=0, is_chosen=False, completed=0.0)


_EventBase = getattr(getattr(torch, "_streambase", None), "_EventBase", object)  # torch looks for it


class Event(_EventBase):
    """A point on the device's own clock. It can be read only after the device was waited for."""

    def __init__(self, enable_timing=False, blocking=False, interprocess=False):
        self._timing, self._at = enable_timing, None

    def record(self, stream=None):
        self._at = time.perf_counter()

    def query(self):
        return self._at is not None and self._at <= _state.completed

    def synchronize(self):
        synchronize()

    def wait(self, stream=None):
        """Do nothing: later work waits for the event, but here all work is done at once."""

    def elapsed_time(self, other):
        """Return the milliseconds on the device's clock."""
        if not (self._timing and other._timing):
            raise RuntimeError("Both events must be created with argument 'enable_timing=True'.")
        if self._at is None or other._at is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        if not other.query():
            raise RuntimeError("Both events must be completed before calculating elapsed time.")
        return (other._at - self._at) * 1e3 * SCRIPT["clock"]


class Autocast(torch.autocast):
    """Autocast of the CPU where that of CUDA is asked for: the tensors are the CPU's."""

    def __init__(self, device_type, dtype=None, enabled=True, cache_enabled=None):
        tell("autocast", device_type=device_type, dtype=str(dtype))
        super().__init__("cpu" if device_type == SCRIPT["kind"] else device_type, dtype, enabled, cache_enabled)


def install():
    """Change torch. Meant for one process of the workload, for good."""
    import stand_in_tensors

    for name, function in _API.items():
        setattr(getattr(torch, SCRIPT["kind"]), name, function)
    if hasattr(torch, "accelerator"):  # torch 2.6; from 2.15 on AdamW asks it whether a graph is captured
        torch.accelerator.current_stream = lambda device=None: SimpleNamespace(is_capturing=lambda: False)
    torch.autocast = torch.amp.autocast = torch.amp.autocast_mode.autocast = Autocast
    _profile_the_cpu()
    _map_collectives()
    torch.nn.modules.module.register_module_forward_pre_hook(FAILURES.enter)
    torch.nn.modules.module.register_module_forward_hook(FAILURES.leave, always_call=True)
    stand_in_tensors.Kernels().__enter__()
    stand_in_tensors.Devices().__enter__()


def _profile_the_cpu():
    """A torch without CUDA that traces CUDA's events fails at each, and 2.15 spends 10 ms on the words of each failure."""
    traced = torch.profiler.profile

    def profile(activities=None, **words):
        known = [one for one in activities or () if one is torch.profiler.ProfilerActivity.CPU]
        return traced(activities=known or None, **words)

    torch.profiler.profile = profile


def _map_collectives():
    import torch.distributed as dist

    begin = dist.init_process_group

    def init_process_group(backend=None, timeout=None, **words):
        tell("init_process_group", backend=backend, timeout_seconds=timeout.total_seconds(), device=_state.current)
        if backend != {"cuda": "nccl", "xpu": "xccl"}[SCRIPT["kind"]]:
            return begin(backend, timeout=timeout, **words)
        if not _state.is_chosen:
            raise RuntimeError("NCCL was set up before a device was chosen: every rank would use GPU 0")
        watch_collectives(timeout.total_seconds())
        return begin("gloo", timeout=datetime.timedelta(hours=1), **words)

    dist.init_process_group = init_process_group
    dist.is_xccl_available = lambda: SCRIPT["kind"] == "xpu" and not SCRIPT["no_xccl"]
    for name in ("barrier", "all_reduce", "all_gather_object", "_broadcast_coalesced"):
        setattr(dist, name, FAILURES.waits(getattr(dist, name)))
    # Of GPUs PyTorch lets NCCL gather these, and gloo, which stands in for it, would leave them to nobody to wait for.
    dist.batch_isend_irecv = lambda operations: [each.op(each.tensor, each.peer, each.group) for each in operations]


def _index(device=None):
    from stand_in_tensors import index_of

    return _state.current if device is None else index_of(device)


def set_device(device):
    if not 0 <= _index(device) < SCRIPT["devices"]:
        raise RuntimeError("CUDA error: invalid device ordinal")
    tell("set_device", device=_index(device))
    _state.current, _state.is_chosen = _index(device), True


def synchronize(device=None):
    FAILURES.reach("synchronize")
    _state.completed = time.perf_counter()


def get_device_properties(device=None):
    properties = {"name": SCRIPT["name"], "total_memory": SCRIPT["memory_bytes"], "uuid": uuid(_index(device))}
    if SCRIPT["kind"] == "xpu":
        return SimpleNamespace(**properties, version="12.55.8", max_compute_units=448)
    major, minor = SCRIPT["capability"]
    return SimpleNamespace(**properties, major=major, minor=minor, multi_processor_count=132)


def reset_peak_memory_stats(device=None):
    tell("reset_peak_memory_stats", peak_bytes=MEMORY.peak[_index(device)])
    MEMORY.reset_peak(_index(device))


def memory_stats(device=None):
    index = _index(device)
    return collections.OrderedDict({"allocated_bytes.all.peak": MEMORY.peak[index]})


_API = {
    "Event": Event,
    "is_available": lambda: True,
    "is_initialized": lambda: True,
    "device_count": lambda: SCRIPT["devices"],
    "current_device": lambda: _state.current,
    "set_device": set_device,
    "synchronize": synchronize,
    "get_device_properties": get_device_properties,
    "get_device_capability": lambda device=None: tuple(SCRIPT["capability"]),
    "get_device_name": lambda device=None: SCRIPT["name"],
    "can_device_access_peer": lambda device, peer: SCRIPT["peers"],
    "memory_stats": memory_stats,
    "mem_get_info": lambda device=None: (
        MEMORY.capacity[_index(device)] - MEMORY.allocated[_index(device)],
        SCRIPT["memory_bytes"],
    ),
    "memory_allocated": lambda device=None: MEMORY.allocated[_index(device)],
    "max_memory_allocated": lambda device=None: MEMORY.peak[_index(device)],
    "max_memory_reserved": lambda device=None: MEMORY.peak_reserved[_index(device)],
    "reset_peak_memory_stats": reset_peak_memory_stats,
    "empty_cache": lambda: MEMORY.release(_state.current),
    "get_rng_state": lambda device=None: torch.get_rng_state(),
    "set_rng_state": lambda state, device=None: torch.set_rng_state(state),
    "is_current_stream_capturing": lambda: False,
}
