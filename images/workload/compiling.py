"""The result of torch.compile for the timed step: how many graphs the step runs, and where torch fell back to eager mode.

torch puts each graph that it compiles into the globals of the code that calls it, as __compiled_fn_1 (torch 2.0 to newest),
and counts them all; one more step, after everything timed, shows which of them run.
"""

import hashlib
import logging
import os
import re
import sys

import torch

import extras
from channel import Unsupported

_GRAPH = "__compiled_fn"
_SWITCHES = ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE")
_FALLBACK = re.compile(r"torch\._dynamo hit config\.(\w+)|WON'T CONVERT (\S+)")
_PLACE = re.compile(r"function: '(\S+)' ")
_FOLDER = "TORCHINDUCTOR_CACHE_DIR"
_MOST = 5
"""Most fallbacks that are kept."""


class Fallbacks(logging.Handler):
    """Log handler that collects what torch says of code that it leaves in eager mode: `texts`."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.texts = []

    def emit(self, record):
        match = _FALLBACK.search(record.getMessage())
        if not match or len(self.texts) == _MOST:
            return
        place, limit = _PLACE.search(record.getMessage()), match.group(1)
        reason = "torch's %s" % limit if limit else "an error of the compiler"
        text = "%s runs in eager mode: %s" % (match.group(2) or (place.group(1) if place else "some code"), reason)
        if text not in self.texts:
            self.texts.append(text)


def watch():
    """Start to collect Fallbacks, to the end of the process, and return them."""
    fallbacks = Fallbacks()
    logging.getLogger("torch._dynamo.convert_frame").addHandler(fallbacks)
    return fallbacks


def look(step, fallbacks):
    """Run one more step; return the `graphs` and `operations` compiled so far, `graph_breaks`, how many graphs the step has
    `run` (None if that can't be seen), how often it called code that the compiler generated (None if it did before, but not in
    this step, as where a CUDA graph is replayed), the texts of the `fallbacks` so far, and the `options` of the compiler.
    """
    from torch._dynamo.utils import counters

    stats = counters["stats"]
    counts = {
        "graphs": stats["unique_graphs"],
        "operations": stats["calls_captured"],
        "graph_breaks": sum(counters["graph_break"].values()),
        "fallbacks": list(fallbacks.texts),
        "options": extras.attempt("the options of torch.compile", _options),
    }
    is_certain = not (counts["graphs"] and not fallbacks.texts)
    run, calls = _count_generated_calls(lambda: _count_graphs(step, is_certain))
    return dict(counts, run=run, generated=calls or (None if _has_generated() else 0))


def _options():
    """Return a `hash` of all of torch._inductor.config, and what code `changed` in it, such as "max_autotune = True".

    What variables of the environment set is a default there: the record has them by themselves. torch's own get_hash() doesn't
    follow changes after its first call in 2.5. The hash is None where torch can't list its configuration.
    """
    from torch._inductor import config

    lines = [line.replace("torch._inductor.config.", "", 1) for line in config.codegen_config().splitlines()]
    values = repr(sorted(config.save_config_portable().items())) if hasattr(config, "save_config_portable") else None
    return {"hash": values and hashlib.sha256(values.encode()).hexdigest()[:12], "changed": sorted(lines)}


def _count_generated_calls(action):
    """Return what `action` gives, and how often this thread called code of inductor meanwhile, which stands in files."""
    folder, calls, before = os.environ.get(_FOLDER, ""), [], sys.getprofile()

    def note(frame, event, _value):
        if event == "call" and frame.f_code.co_name == "call" and frame.f_code.co_filename.startswith(folder):
            calls.append(frame.f_code)

    sys.setprofile(note if folder else before)
    try:
        return action(), len(calls)
    finally:
        sys.setprofile(before)


def _has_generated():
    folder = os.environ.get(_FOLDER, "")
    return any((getattr(module, "__file__", None) or "").startswith(folder) for module in list(sys.modules.values()))


def _count_graphs(step, is_certain):
    """Count the graphs that `step` runs. `is_certain`: whether there is no graph if none can be found; else return None."""
    graphs, ran = _find_graphs(), set()

    def noting(name, graph):
        @torch._dynamo.disable
        def noted(*given, **named):
            ran.add(name)
            return graph(*given, **named)

        return noted

    for place, name, graph in graphs:
        place[name] = noting(name, graph)
    try:
        step()
    finally:
        for place, name, graph in graphs:
            place[name] = graph
    return len(ran) if graphs or is_certain else None


def _find_graphs():
    """Return (globals, name, graph) of each compiled graph that is alive."""
    places = {id(vars(module)): vars(module) for module in list(sys.modules.values()) if hasattr(module, "__dict__")}
    return [(place, name, value) for place in places.values() for name, value in list(place.items()) if name.startswith(_GRAPH)]


def refuse(record):
    """Raise Unsupported if no compiled graph runs in a step: a figure would have a wrong name. `record`: from `look`."""
    if record["run"] == 0:
        raise Unsupported("%s was compiled: %s" % ("nothing of what runs" if record["graphs"] else "nothing", _reason(record)))
    if record["generated"] == 0:
        raise Unsupported("inductor, the compiler that was asked for, generated no code: another backend runs the graphs")


def _reason(record):
    switches = [name for name in _SWITCHES if os.environ.get(name) == "1"]
    if switches:
        return "%s is set" % " and ".join(switches)
    if record["fallbacks"]:
        return "; ".join(record["fallbacks"])
    if torch._dynamo.config.disable:
        return "torch._dynamo.config.disable is set"
    return "torch.compile runs no graph of this model, since its code switches the compiler off or holds nothing to compile"


def remarks(record):
    """Return what the reader of a figure must know, in words. `record`: from `look`."""
    unseen = ["it could not be seen whether compiled code runs"] if record["run"] is None else []
    run, calls = record["run"], record["generated"]
    few = ["only %d of %d graphs run code that inductor generated" % (calls, run)] if run and calls and calls < run else []
    return unseen + few + ["compiled in part: %s" % text for text in record["fallbacks"]]
