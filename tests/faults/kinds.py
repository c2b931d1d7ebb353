"""All kinds of fault, each with what it needs; what this machine lacks for a kind is said by name, and never counts as held."""

import os
import pkgutil
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from random import Random
from signal import SIGHUP, SIGINT, SIGTERM

from faults import borders, engines, interruptions, machine, surroundings
from faults.workplace import Workplace
from support import clean_engine

CASES = 2000
"""Bad inputs in one attempt at a border."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of fault. `attempt`: makes it in a workplace and returns how often; raises if the tool didn't hold.

    `attempts`: in a whole bench. `needs`: names in MISSING. `is_input`: bad input at a border, tried as often as time allows.
    """

    name: str
    attempt: Callable[[Workplace], int]
    attempts: int = 2
    needs: tuple[str, ...] = ()
    is_input: bool = False


MISSING: dict[str, Callable[[], str | None]] = {
    "root": lambda: None if os.geteuid() == 0 else "needs root",
    "engine": clean_engine.why_not,
    "compiler": lambda: None if shutil.which("cc") else "needs a C compiler (cc)",
}
"""What a kind may need -> why this machine lacks it, or None."""


def _on_engine(name: str, fault: engines.Fault, attempts: int = 1) -> Kind:
    return Kind(name=name, attempt=partial(engines.on_own_daemon, fault=fault), attempts=attempts, needs=("engine",))


FAULTS = (
    Kind(name="no fault", attempt=interruptions.nothing, attempts=1),
    Kind(name="kill -9 of the tool", attempt=interruptions.killed, attempts=10),
    Kind(name="kill -9 of report", attempt=interruptions.report_killed),
    Kind(name="kill -9 of report --publish", attempt=interruptions.publish_killed, attempts=1),
    Kind(name="Ctrl-C", attempt=partial(interruptions.signalled, number=SIGINT)),
    Kind(name="Ctrl-C while starting", attempt=partial(interruptions.signalled_while_starting, number=SIGINT)),
    Kind(name="Ctrl-C while measuring", attempt=partial(interruptions.signalled_while_measuring, number=SIGINT)),
    Kind(name="Ctrl-C twice", attempt=partial(interruptions.signalled_twice, number=SIGINT)),
    Kind(name="Ctrl-C to the whole group", attempt=partial(interruptions.group_signalled, number=SIGINT)),
    Kind(name="SIGTERM", attempt=partial(interruptions.signalled, number=SIGTERM)),
    Kind(name="SIGHUP", attempt=partial(interruptions.signalled, number=SIGHUP)),
    Kind(name="the tool is suspended", attempt=interruptions.suspended),
    Kind(name="kill -9 of a launch", attempt=interruptions.launch_killed),
    Kind(name="a launch is paused", attempt=interruptions.launch_paused),
    Kind(name="a launch freezes", attempt=interruptions.launch_frozen, attempts=1),
    Kind(name="the reader of the output goes away", attempt=interruptions.reader_gone),
    Kind(name="the output goes to a full disk", attempt=interruptions.output_full, attempts=1),
    Kind(name="closed standard streams", attempt=interruptions.streams_closed, attempts=1),
    Kind(name="two runs at once", attempt=surroundings.two_runs),
    Kind(name="two starts at once", attempt=surroundings.two_starts),
    Kind(name="reports during a run", attempt=surroundings.reports_meanwhile),
    Kind(name="the results vanish", attempt=surroundings.results_vanish),
    Kind(name="the matrix changes during a run", attempt=surroundings.matrix_changes),
    Kind(name="the matrix changes between runs", attempt=surroundings.matrix_changes_between),
    Kind(name="the interpreter vanishes", attempt=surroundings.interpreter_vanishes),
    Kind(name="links and pipes where files are written", attempt=surroundings.links_planted, attempts=1),
    Kind(name="two publications at once", attempt=surroundings.two_publications, attempts=1),
    Kind(name="foreign files among the results", attempt=surroundings.rubbish),
    Kind(name="disk of the results full", attempt=machine.results_full, needs=("root",), attempts=4),
    Kind(name="disk of the report full", attempt=machine.report_full, needs=("root",)),
    Kind(name="disk of the caches full", attempt=machine.caches_full, needs=("root",)),
    Kind(name="results become read-only", attempt=machine.results_read_only, needs=("root",)),
    Kind(name="home can't be written", attempt=machine.home_read_only, attempts=1),
    Kind(name="few open files", attempt=machine.few_files, attempts=4),
    Kind(name="little memory", attempt=machine.little_memory, attempts=4),
    Kind(name="limited size of files", attempt=machine.small_files, attempts=4),
    Kind(name="clock jumps forwards", attempt=partial(machine.clock_jumps, days=3), needs=("compiler",)),
    Kind(name="clock jumps backwards", attempt=partial(machine.clock_jumps, days=-3), needs=("compiler",)),
    _on_engine("kill -9 of the tool, with containers", engines.tool_killed, attempts=2),
    _on_engine("Ctrl-C, with containers", engines.interrupted),
    _on_engine("the daemon freezes for a moment", engines.daemon_frozen),
    _on_engine("the daemon is killed", engines.daemon_killed),
    _on_engine("a container is paused", engines.container_paused),
    _on_engine("a container freezes", engines.container_frozen),
    _on_engine("a container is killed", engines.container_killed),
    _on_engine("a container is removed", engines.container_removed),
    _on_engine("the image is removed", engines.image_removed),
)


def kinds() -> list[Kind]:
    """Return all kinds: faults while the tool works, then bad input at its borders."""
    names = sorted(module.name for module in pkgutil.iter_modules(borders.__path__) if not module.name.startswith("_"))
    return [*FAULTS, *(Kind(name=f"input: {name}", attempt=partial(_bad_input, name), is_input=True) for name in names)]


def missing(kind: Kind) -> str | None:
    """Return what this machine lacks for a kind, or None."""
    return next(filter(None, (MISSING[need]() for need in kind.needs)), None)


def _bad_input(border: str, place: Workplace) -> int:
    """Try a number of cases of one border, from the beginning of a stream of their own."""
    stream = import_module(f"faults.borders.{border}").cases(Random(place.random.random()))
    for number in range(CASES):
        case = next(stream)
        try:
            case()
        except Exception as error:
            error.add_note(f"in case {number}")
            raise
    return CASES
