"""What an exception means: the outcomes that this box can recognize, and its cause in words."""

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
    """The outcome that an exception, or what caused it, means: unsupported, numerics, oom or crashed."""
    return next((kind for kind in map(_own_kind, _causes(error)) if kind != "crashed"), "crashed")


def _own_kind(error):
    if isinstance(error, Unsupported):
        return "unsupported"
    if isinstance(error, Numerics):
        return "numerics"
    text = ("%s %s" % (type(error).__name__, _text(error))).lower()
    if isinstance(error, MemoryError) or "outofmemoryerror" in text or any(m in text for m in OOM_MESSAGES):
        return "oom"
    if NO_KERNEL.search(text):
        return "unsupported"
    return "crashed"


def message(error, file=""):
    """What went wrong: on the first line where in the user's `file`, if it was there, and the innermost cause."""
    said, rest = describe(error), _text(error).strip()
    cause = describe(_causes(error)[-1])
    if cause not in said:
        said += "; caused by " + cause
    elif _handled(error):
        said += "; while handling " + describe(_handled(error))
    place = place_in(file, error)
    lines = [(place and place + ": ") + said, *(rest.splitlines() if len(rest) > len(said) else rest.splitlines()[1:])]
    return "\n".join(lines)


def describe(error):
    """One line, short. The last line, too, of an exception that tells one of another process; and what a compiler found."""
    lines = [line.strip() for line in _text(error).splitlines() if line.strip()]
    told_again = any(line.startswith(("Traceback (most", "Original Traceback (most")) for line in lines)
    said = lines[:1] + lines[-1:] if told_again else lines[: 2 if lines and lines[0].endswith(":") else 1]
    said += [line for line in lines if " error: " in line and line not in said][:1]
    if not said:
        frames = traceback.extract_tb(error.__traceback__)
        said = ["without a message, at `%s`" % frames[-1].line if frames else "without a message"]
    return "%s: %s" % (type(error).__name__, " ".join(one[: 300 // len(said)] for one in said))


def place_in(file, error):
    """Where in the user's file an error came from, such as "tiny.py, line 14, in forward"; "" if it isn't from there.

    The traceback of the innermost cause says it, or words do: of what compiles the file's code, or of another process.
    """
    for cause in reversed(_causes(error)) if file else ():
        frames = traceback.extract_tb(cause.__traceback__)
        told = [(frame.lineno, frame.name) for frame in frames if frame.filename == file]
        told += re.findall(r'File "%s", line (\d+), in (\S+)' % re.escape(file), _text(cause))
        if told:
            return "%s, line %s, in %s" % (os.path.basename(file), *told[-1])
    return ""


def _causes(error):
    """The exception and what it names as its cause, the innermost last. What this box words itself needs no other cause."""
    found = []
    while error is not None and not any(error is one for one in found):
        found.append(error)
        error = None if isinstance(error, (Unsupported, Numerics)) else _cause(error)
    return found


def _cause(error):
    """torch.compile keeps it as inner_exception and drops the other ways; a group of exceptions has several."""
    told = (getattr(error, "inner_exception", None), error.__cause__, *_several(error))
    return next((one for one in told if isinstance(one, BaseException)), None)


def _several(error):
    found = getattr(error, "exceptions", ())
    return found if isinstance(found, (tuple, list)) else ()


def _handled(error):
    """The exception that was being handled when this one was raised, without `from`."""
    return None if error.__suppress_context__ or isinstance(error, (Unsupported, Numerics)) else error.__context__


def _text(error):
    try:
        return str(error)
    except Exception as another:  # the exception is the user's own, and so is what it does when it is shown
        return "its text can't be had: %s" % type(another).__name__
