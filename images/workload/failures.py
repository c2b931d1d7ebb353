"""What an exception means: the outcomes that this box can recognize."""

from channel import Numerics, Unsupported

OOM_MESSAGES = (
    "out of memory", "alloc_failed", "allocation_failed", "allocfailed", "failed to allocate", "can't allocate memory",
    "cannot allocate memory", "not enough memory", "erroroutofmemory", "error_out_of_memory", "bad_alloc",
)  # fmt: skip
"""How torch 1.12 to newest, cuBLAS, cuDNN, MIOpen, HIP, NCCL and the CPU allocator word it where no exception class does."""


def kind_of(error):
    """The outcome that an exception means: unsupported, numerics, oom or crashed."""
    if isinstance(error, Unsupported):
        return "unsupported"
    if isinstance(error, Numerics):
        return "numerics"
    text = ("%s %s" % (type(error).__name__, error)).lower()
    if isinstance(error, MemoryError) or "outofmemoryerror" in text or any(m in text for m in OOM_MESSAGES):
        return "oom"
    return "crashed"


def describe(error):
    """One line, short."""
    return ("%s: %s" % (type(error).__name__, error)).strip().split("\n")[0][:300]
