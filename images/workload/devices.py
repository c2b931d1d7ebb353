"""The kinds of devices: CUDA (NVIDIA's GPUs, and AMD's by ROCm), XPU (Intel's GPUs) and the CPU.

A new kind is one class here. No other module asks which kind a device is: it asks what the kind can do, and how.
"""

import resource
from time import perf_counter_ns

import torch
import torch.distributed as dist

from channel import Unsupported
from recipes import FLOAT8

_TF32 = "tf32 needs an NVIDIA GPU of compute capability 8.0 or newer"
_OLDEST = {"tf32": (8, 0), "nvfp4": (10, 0), **{name: recipe.capability for name, recipe in FLOAT8.items()}}
"""The oldest GPU of NVIDIA for a precision, by its compute capability."""


class Device:
    """The device of a rank; its base is the CPU. `torch`: the torch.device on which tensors are made."""

    name = "cpu"
    """What PyTorch calls the kind."""
    is_gpu = False
    decided = ("threads", "cpus")
    """Settings of torch besides those of all devices that the matrix decides (settings.py)."""
    probe_size, probe_pixels = 256, 16
    """Sides of matrices and images from which the effective precision is measured: less on a CPU, which takes up to a second
    for larger ones."""
    activities = ("CPU",)
    """Names of the ProfilerActivity that torch's profiler traces."""
    array_bytes, product_size = 2**28, 1024
    """Sizes by which the device's roofs are measured (roofline.py): beyond its caches, and filling it."""
    load_type = torch.float32
    """Data type of the matrices with which the device is loaded (deep.py)."""
    float8 = "float8_e4m3fn"
    """Data type of products in float8 alone (operations.py)."""

    def __init__(self, index=0):
        self.torch = torch.device(self.name, index) if self.is_gpu else torch.device(self.name)

    @classmethod
    def require(cls):
        """Raise Unsupported if torch sees no such device here."""

    def select(self):
        """Make the device the current one of this process."""

    @property
    def ids(self):
        """Return `device_ids` for DDP."""
        return None

    def backend(self):
        """Return the backend of torch.distributed for ranks on such devices. Raises Unsupported if this torch has none."""
        return "gloo"

    def synchronize(self):
        """Wait until the device has done all that was submitted."""

    def mark(self):
        """Return a point in time on the device's clock; a GPU's can be read only after a wait for the device."""
        return perf_counter_ns()

    @staticmethod
    def seconds(begin, end):
        """Return the seconds from one mark to another."""
        return (end - begin) / 1e9

    def reset_peak(self):
        """Forget how much memory was used so far, where the device counts."""

    def peak(self):
        """Return the peak of memory in bytes by name: on a CPU that of the whole process so far."""
        return {"peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}

    def free_bytes(self):
        """Return how many bytes are free on a GPU; None where an allocation that fails ends nothing, as on a CPU."""
        return None

    def release(self):
        """Give memory that torch keeps for later back to the device."""

    def pinned(self, tensor):
        """Return a tensor in the host's memory, so that copies to the device don't wait."""
        return tensor

    def lack(self, precision):
        """Say why the device doesn't have `precision`; None if it does."""
        if precision in ("tf32", "amp"):
            return "precision %s needs a GPU; on a CPU use fp32 or amp-bf16" % precision
        return _lack_of_nvidia(precision)

    def has_kernels(self, name):
        """Check whether torch says that there are kernels for products in this type, such as bfloat16; True if it can't tell.

        A CPU without AVX-512 has none in oneDNN: they took 40 times as long as in float32 (torch 2.5.1 and 2.15.0).
        """
        short = {"bfloat16": "bf16", "float16": "fp16"}.get(name)
        try:
            return short is None or getattr(torch.ops.mkldnn, "_is_mkldnn_%s_supported" % short)()
        except (AttributeError, RuntimeError):
            return True

    def facts(self):
        """Describe the device as torch sees it."""
        return {"name": "cpu", "threads": torch.get_num_threads(), "isa": _cpu_capability()}

    def access(self, count):
        """Return which of `count` devices (row) reads another's memory; None for devices that have none of their own."""
        return None


class Gpu(Device):
    """The common part of CUDA and XPU: torch.cuda and torch.xpu offer the same functions."""

    is_gpu = True
    probe_size, probe_pixels = 512, 32
    load_type = torch.float16
    array_bytes, product_size = 2**30, 8192
    decided = ()

    @classmethod
    def _api(cls):
        return getattr(torch, cls.name, None)

    @classmethod
    def require(cls):
        if cls._api() is None or not cls._api().is_available():
            raise Unsupported("torch %s sees no GPU in this box" % torch.__version__)

    def select(self):
        self._api().set_device(self.torch)

    @property
    def ids(self):
        return [self.torch.index]

    def synchronize(self):
        self._api().synchronize(self.torch)

    def mark(self):
        event = self._api().Event(enable_timing=True)
        event.record()
        return event

    @staticmethod
    def seconds(begin, end):
        return begin.elapsed_time(end) / 1e3

    def reset_peak(self):
        self._api().reset_peak_memory_stats(self.torch)

    def peak(self):
        api = self._api()
        return {"peak_bytes": api.max_memory_allocated(self.torch), "peak_reserved_bytes": api.max_memory_reserved(self.torch)}

    def has_kernels(self, name):
        return True

    def free_bytes(self):
        return self._api().mem_get_info(self.torch)[0]

    def release(self):
        self._api().empty_cache()

    def pinned(self, tensor):
        return tensor.pin_memory()

    def beside(self, first, second):
        """Submit two pieces of work that may run at the same time."""
        api = self._api()
        main, self._other = api.current_stream(), getattr(self, "_other", None) or api.Stream()
        self._other.wait_stream(main)
        first()
        with api.stream(self._other):
            second()
        main.wait_stream(self._other)

    def facts(self):
        properties = self._api().get_device_properties(self.torch)
        known = {"name": properties.name, "memory_bytes": properties.total_memory, "uuid": _uuid(properties)}
        return dict(known, **self._own_facts(properties))

    def _own_facts(self, properties):
        """Return what only this kind of GPU reports, from torch's properties of the device."""
        raise NotImplementedError


class Cuda(Gpu):
    """A GPU of NVIDIA, or one of AMD, which torch for ROCm calls cuda too."""

    name = "cuda"
    decided = ("matmul_allow_tf32", "cudnn_allow_tf32", "cudnn_benchmark")
    activities = ("CPU", "CUDA")

    @property
    def float8(self):
        """Return the type without negative zero on MI300 and MI325X, which have no other."""
        gfx = getattr(torch.cuda.get_device_properties(self.torch), "gcnArchName", "") if torch.version.hip else ""
        return "float8_e4m3fnuz" if gfx.startswith("gfx94") else "float8_e4m3fn"

    def backend(self):
        return "nccl"

    def lack(self, precision):
        needed = _OLDEST.get(precision)
        if needed and (torch.version.hip or torch.cuda.get_device_capability(self.torch) < needed):
            return _TF32 if precision == "tf32" else _lack_of_nvidia(precision)
        return None

    def _own_facts(self, properties):
        return {
            "capability": "%d.%d" % (properties.major, properties.minor),
            "multiprocessors": properties.multi_processor_count,
            "gfx": getattr(properties, "gcnArchName", None),
        }

    def access(self, count):
        ids = range(count)
        return [[row == column or torch.cuda.can_device_access_peer(row, column) for column in ids] for row in ids]


class Xpu(Gpu):
    """A GPU of Intel: https://docs.pytorch.org/docs/stable/notes/get_start_xpu.html. Not tried on a real one yet."""

    name = "xpu"
    activities = ("CPU", "XPU")

    def backend(self):
        if not getattr(dist, "is_xccl_available", lambda: False)():
            raise Unsupported(
                "torch %s has no XCCL, by which ranks on Intel GPUs talk: 2.8 and newer have it" % torch.__version__
            )
        return "xccl"

    def lack(self, precision):
        return _TF32 if precision == "tf32" else _lack_of_nvidia(precision)

    def free_bytes(self):
        """Return how many bytes are free; None before torch 2.6, which can't report it."""
        return super().free_bytes() if hasattr(torch.xpu, "mem_get_info") else None

    def _own_facts(self, properties):
        capability, units = (getattr(properties, name, None) for name in ("version", "max_compute_units"))
        return {"capability": capability, "multiprocessors": units, "gfx": None}


_KINDS = {device.name: device for device in (Cuda, Xpu, Device)}


def of_kind(name):
    """Return the class of a kind of device."""
    return _KINDS[name]


def of(device):
    """Return the Device of a torch.device."""
    return _KINDS[device.type](device.index or 0)


def _lack_of_nvidia(precision):
    """Say what any other device than NVIDIA's newer ones lacks for `precision`; None if it doesn't take such a one."""
    text = "precision %s needs a GPU of NVIDIA, of compute capability %d.%d or newer"
    return text % (precision, *_OLDEST[precision]) if precision in _OLDEST else None


def _uuid(properties):
    """Return the UUID as the driver writes it; None where torch is too old to report it."""
    return str(properties.uuid) if hasattr(properties, "uuid") else None


def _cpu_capability():
    """Return the instruction set that torch uses, such as AVX512; None where torch is too old to report it."""
    try:
        return torch.backends.cpu.get_cpu_capability()
    except AttributeError:
        return None
