"""What torch.compile has made of the timed step: how many graphs it runs, and where torch fell back to eager mode.

torch puts each graph that it compiles into the globals of the code that calls it, as __compiled_fn_1 (torch 2.0 to newest),
and counts them all; one more step, after everything timed, tells which of them run.
"""

import logging
import os
import re
import sys

import torch

from channel import Unsupported

_GRAPH = "__compiled_fn"
_SWITCHES = ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE")
_FALLBACK = re.compile(r"torch\._dynamo hit config\.(\w+)|WON'T CONVERT (\S+)")
_PLACE = re.compile(r"function: '(\S+)' ")
_MOST = 5
"""Fallbacks that are told."""


class Fallbacks(logging.Handler):
    """What torch says of code that it leaves in eager mode: `texts`."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.texts = []

    def emit(self, record):
        found = _FALLBACK.search(record.getMessage())
        if not found or len(self.texts) == _MOST:
            return
        place, limit = _PLACE.search(record.getMessage()), found.group(1)
        why = "torch's %s" % limit if limit else "an error of the compiler"
        text = "%s runs in eager mode: %s" % (found.group(2) or (place.group(1) if place else "some code"), why)
        if text not in self.texts:
            self.texts.append(text)


def watch():
    """Fallbacks, from now on to the end of the process."""
    found = Fallbacks()
    logging.getLogger("torch._dynamo.convert_frame").addHandler(found)
    return found


def look(step, fallbacks):
    """Of one more step: `graphs` and `operations` compiled so far, `graph_breaks`, how many graphs the step has `run` (None if
    that can't be seen), and the `fallbacks` told so far.
    """
    from torch._dynamo.utils import counters

    stats = counters["stats"]
    found = {
        "graphs": stats["unique_graphs"],
        "operations": stats["calls_captured"],
        "graph_breaks": sum(counters["graph_break"].values()),
        "fallbacks": list(fallbacks.texts),
    }
    return dict(found, run=_run(step, is_seen=not (found["graphs"] and not fallbacks.texts)))


def _run(step, is_seen):
    """How many graphs `step` runs. `is_seen`: whether none that can be found means that there is none."""
    graphs, ran = _graphs(), set()

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
    return len(ran) if graphs or is_seen else None


def _graphs():
    """(globals, name, graph) of each that is alive."""
    places = {id(vars(module)): vars(module) for module in list(sys.modules.values()) if hasattr(module, "__dict__")}
    return [(place, name, value) for place in places.values() for name, value in list(place.items()) if name.startswith(_GRAPH)]


def refuse(found):
    """Raise Unsupported if no compiled graph runs in a step: a figure would have a wrong name. `found`: look."""
    if found["run"] == 0:
        raise Unsupported("%s was compiled: %s" % ("nothing of what runs" if found["graphs"] else "nothing", _why(found)))


def _why(found):
    switches = [name for name in _SWITCHES if os.environ.get(name) == "1"]
    if switches:
        return "%s is set" % " and ".join(switches)
    if found["fallbacks"]:
        return "; ".join(found["fallbacks"])
    if torch._dynamo.config.disable:
        return "torch._dynamo.config.disable is set"
    return "torch.compile runs no graph of this model, since its code switches the compiler off or holds nothing to compile"


def remarks(found):
    """What the reader of a figure must know, in words."""
    unseen = ["it could not be seen whether compiled code runs"] if found["run"] is None else []
    return unseen + ["compiled in part: %s" % text for text in found["fallbacks"]]
