"""What an exception means: the outcomes that this box can recognize."""

import os
import re
import traceback

from channel import Numerics, Unsupported

OOM_MESSAGES = (
    "out of memory", "alloc_failed", "allocation_failed", "allocfailed", "failed to allocate", "can't allocate memory",
    "cannot allocate memory", "not enough memory", "erroroutofmemory", "error_out_of_memory", "bad_alloc",
)  # fmt: skip
"""How torch 1.12 to newest, cuBLAS, cuDNN, MIOpen, HIP, NCCL and the CPU allocator word it where no exception class does."""


NO_KERNEL = re.compile(r"not implemented for '(half|bfloat16|float8\w*)'")
"""What torch says of an operation that it lacks in a type on this device."""


def kind_of(error):
    """The outcome that an exception means: unsupported, numerics, oom or crashed."""
    if isinstance(error, Unsupported):
        return "unsupported"
    if isinstance(error, Numerics):
        return "numerics"
    text = ("%s %s" % (type(error).__name__, error)).lower()
    if isinstance(error, MemoryError) or "outofmemoryerror" in text or any(m in text for m in OOM_MESSAGES):
        return "oom"
    if NO_KERNEL.search(text):
        return "unsupported"
    return "crashed"


def describe(error):
    """One line, short."""
    return ("%s: %s" % (type(error).__name__, error)).strip().split("\n")[0][:300]


def place_in(file, error):
    """Where in the user's file an error came from, such as "tiny.py, line 14, in forward"; "" if it isn't from there."""
    frames = traceback.extract_tb(error.__traceback__) if file else []
    inside = [frame for frame in frames if frame.filename == file]
    return "%s, line %d, in %s" % (os.path.basename(file), inside[-1].lineno, inside[-1].name) if inside else ""
