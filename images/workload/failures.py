"""The meaning of an exception: the outcomes that the workload can recognize, and the cause in words."""

import os
import re
import traceback

from channel import Numerics, Unsupported

OOM_MESSAGES = (
    "out of memory", "alloc_failed", "allocation_failed", "allocfailed", "failed to allocate", "can't allocate memory",
    "cannot allocate memory", "not enough memory", "erroroutofmemory", "error_out_of_memory", "bad_alloc",
)  # fmt: skip
"""Words of torch 1.12 to newest, cuBLAS, cuDNN, MIOpen, HIP, NCCL and the CPU allocator for a lack of memory, which no
exception class says."""


NO_KERNEL = re.compile(r"not implemented for '(half|bfloat16|float8\w*)'")
"""torch's words for an operation that it lacks in a data type on this device."""
FLOAT8_SHAPE = re.compile(r"divisible by 16|rows must be a multiple of 32|divisible by block_size")
"""The words of torch and torchao for rows (items × tokens) that a product in float8 can't take."""


def kind_of(error):
    """Return the outcome that an exception, or its cause, means: unsupported, numerics, oom or crashed."""
    return next((outcome for outcome in map(_classify, _causes(error)) if outcome != "crashed"), "crashed")


def _classify(error):
    if isinstance(error, Unsupported):
        return "unsupported"
    if isinstance(error, Numerics):
        return "numerics"
    text = ("%s %s" % (type(error).__name__, _text(error))).lower()
    if isinstance(error, MemoryError) or "outofmemoryerror" in text or any(m in text for m in OOM_MESSAGES):
        return "oom"
    if NO_KERNEL.search(text) or FLOAT8_SHAPE.search(text):
        return "unsupported"
    return "crashed"


def message(error, file=""):
    """Say what went wrong: on the first line the place in the user's `file`, if it was there, and the innermost cause."""
    summary, text = describe(error), _text(error).strip()
    cause = describe(_causes(error)[-1])
    if cause not in summary:
        summary += "; caused by " + cause
    elif _find_handled(error):
        summary += "; while handling " + describe(_find_handled(error))
    place = place_in(file, error)
    lines = [(place and place + ": ") + summary, *(text.splitlines() if len(text) > len(summary) else text.splitlines()[1:])]
    return "\n".join(lines)


def describe(error):
    """Describe an exception on one short line: its first line, the last one, too, if its text holds another process's
    traceback, and the first error of a compiler.
    """
    lines = [line.strip() for line in _text(error).splitlines() if line.strip()]
    is_traceback = any(line.startswith(("Traceback (most", "Original Traceback (most")) for line in lines)
    chosen = lines[:1] + lines[-1:] if is_traceback else lines[: 2 if lines and lines[0].endswith(":") else 1]
    chosen += [line for line in lines if " error: " in line and line not in chosen][:1]
    if not chosen:
        frames = traceback.extract_tb(error.__traceback__)
        chosen = ["without a message, at `%s`" % frames[-1].line if frames else "without a message"]
    return "%s: %s" % (type(error).__name__, " ".join(line[: 300 // len(chosen)] for line in chosen))


def place_in(file, error):
    """Return the place in the user's file where an error came from, such as "tiny.py, line 14, in forward"; "" if elsewhere.

    The place comes from the traceback of the innermost cause, or from its text: that of a compiler of the file's code, or of
    another process.
    """
    for cause in reversed(_causes(error)) if file else ():
        frames = traceback.extract_tb(cause.__traceback__)
        places = [(frame.lineno, frame.name) for frame in frames if frame.filename == file]
        places += re.findall(r'File "%s", line (\d+), in (\S+)' % re.escape(file), _text(cause))
        if places:
            return "%s, line %s, in %s" % (os.path.basename(file), *places[-1])
    return ""


def _causes(error):
    """Return the exception and its chain of causes, the innermost last. An exception of the workload's own ends the chain."""
    chain = []
    while error is not None and not any(error is member for member in chain):
        chain.append(error)
        error = None if isinstance(error, (Unsupported, Numerics)) else _cause(error)
    return chain


def _cause(error):
    """Return the cause. torch.compile keeps it as inner_exception and drops the others; a group of exceptions has several."""
    candidates = (getattr(error, "inner_exception", None), error.__cause__, *_group_members(error))
    return next((candidate for candidate in candidates if isinstance(candidate, BaseException)), None)


def _group_members(error):
    members = getattr(error, "exceptions", ())
    return members if isinstance(members, (tuple, list)) else ()


def _find_handled(error):
    """Return the exception that was being handled when this one was raised without `from`."""
    return None if error.__suppress_context__ or isinstance(error, (Unsupported, Numerics)) else error.__context__


def _text(error):
    try:
        return str(error)
    except Exception as another:  # the exception is the user's own, and so is what it does when it is shown
        return "its text can't be had: %s" % type(another).__name__
