"""Launch a planned cell once under a profiler. It measures nothing, and the profile is kept apart from all launches."""

import base64
import binascii
import json
import time
from collections.abc import Generator, Sequence
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from torchmatrix.core import __version__, errors, settings
from torchmatrix.core.toml_keys import shown
from torchmatrix.engines import recipes
from torchmatrix.engines.engine import Image, LaunchSpec, Recipe, time_limit
from torchmatrix.facts import launch_file
from torchmatrix.facts.lines import Event
from torchmatrix.matrix.method import Method
from torchmatrix.matrix.workloads import AUTO, Workload
from torchmatrix.planning import plan
from torchmatrix.planning.plan import Cell
from torchmatrix.running import readiness, run, session
from torchmatrix.running.launch_cell import cache_name, device_flags, devices_of, factor_flags, flags_in_words, spec_of
from torchmatrix.running.session import Session
from torchmatrix_plugins.profile import profiles
from torchmatrix_plugins.profile.explanation import recorded
from torchmatrix_plugins.profile.profiles import MEMORY, TRACE, Profile

TAIL_LINES = 20
MOST_NAMED = 8
WORK = ("model", "mode", "batch", "image_size", "sequence_length")
"""Cells that differ in one of these, or in the number of devices, do different work: their steps are not compared."""


def one_cell(s: Session, word: str) -> Cell:
    """Return the only planned cell that `word` (an id or a glob) means. Raises NothingSelected or BadInput."""
    matching = [cell for cell in s.plan.cells if fnmatchcase(cell.id, word)]
    if len(matching) == 1:
        return matching[0]
    if matching:
        listing = "".join(f"\n  {cell.id}" for cell in matching[:MOST_NAMED])
        more = f"\n  … and {len(matching) - MOST_NAMED} more" if len(matching) > MOST_NAMED else ""
        raise errors.BadInput(
            f"{word} means {len(matching)} cells, not one:{listing}{more}", hint="name one of them, or add --where"
        )
    why = next((skip.why for skip in s.plan.skips if fnmatchcase(skip.cell.id, word)), None)
    if why:
        raise errors.NothingSelected(
            f"{word} is skipped here: {why.reason}", hint=f"{why.fix}; torchmatrix plan --skipped lists all"
        )
    raise errors.NothingSelected(f'"{shown(word)}" matches no cell', hint="torchmatrix plan lists the ids of all cells")


def same_work(a: Cell, b: Cell) -> None:
    """Raise BadInput if steps of the two cells don't do the same work."""
    work_a, work_b = work_of(a.workload, len(a.gpus.indices)), work_of(b.workload, len(b.gpus.indices))
    differ = [
        f"{name.replace('_', ' ')} ({work_a[name]} and {work_b[name]})" for name in work_a if work_a[name] != work_b[name]
    ]
    if a.id == b.id:
        raise errors.BadInput(f"{a.id} is both A and B", hint="name two cells; a cell on two stacks has two ids")
    if differ:
        raise errors.BadInput(
            f"a step of A does other work than a step of B: they differ in {', '.join(differ)}",
            hint="choose two cells that differ in the stack or in a setting, such as compile or precision",
        )


def work_of(workload: Workload, devices: int) -> dict[str, Any]:
    """Return what a step does: the settings of WORK, and the number of devices."""
    return {**{name: workload.factors.get(name) for name in WORK}, "devices": devices}


def refuse_unknown(cells: Sequence[Cell], held: Sequence[Profile | None]) -> None:
    """Raise BadInput, with the commands, for cells that were not profiled."""
    missing = [cell.id for cell, newest in zip(cells, held, strict=True) if newest is None]
    if missing:
        commands = "; ".join(f"torchmatrix profile '{cell}'" for cell in missing)
        raise errors.BadInput(f"not profiled yet on this machine: {', '.join(missing)}", hint=commands)


def known(s: Session, root: Path, cell: Cell, named: bool) -> Profile | None:
    """Return the newest profile of this cell on this machine, by the program, packages and threads of now.

    `named`: as in `profile`. Of a stack that isn't built here any profile counts.
    """
    newest = profiles.newest_profile(root, cell.id, s.host.machine, recipes.workload_hash())
    recipe = _ready_recipe(s, cell)
    if newest is None or (recipe and newest.environment != recipe.environment):
        return None
    if newest.gpus.get("threads", cell.gpus.threads) != cell.gpus.threads:
        return None
    return newest if newest.named or not _names_kernels(cell, named) else None


def _ready_recipe(s: Session, cell: Cell) -> Recipe | None:
    """Return the recipe by which the cell's stack is built; None if it isn't built."""
    return recipes.ready_recipe(cell.stack, s.engine_for(cell.stack), s.locks.get(cell.stack.name))


def _names_kernels(cell: Cell, named: bool) -> bool:
    """Check whether kernels need names: only kernels compiled for a CPU have none of their own."""
    return named and cell.workload.compile and cell.gpus.vendor == "cpu"


def profile(s: Session, root: Path, cell: Cell, steps: int, named: bool) -> Generator[str, None, Profile]:
    """Launch the cell under torch.profiler; yields each step. Raises ToolError, also if the workload fails.

    `named`: what is compiled for a CPU is compiled with names, which takes minutes.
    """
    engine, recipe = s.engine_for(cell.stack), _ready_recipe(s, cell)
    if recipe is None:
        raise errors.NothingSelected(f"stack {cell.stack.name} is not built", hint=f"torchmatrix build '{cell.stack.name}/*'")
    batch = _batch(s, cell)
    with run.alone(s, cell.gpus.gpus, plan.launch_seconds(cell, 1, {})), run.watching(s) as (sensors, _):
        session.remove_orphans(s)
        try:
            image = engine.build(recipe, lambda line: None)
        except errors.BuildFailed as failure:
            raise errors.EngineUnusable(
                f"{cell.stack.name}: {failure}", hint=f"torchmatrix build '{cell.stack.name}/*'"
            ) from None
        yield from readiness.wait(sensors, devices_of(cell), Method())
        begin = time.time()
        command, events = yield from _launch(s, cell, image, _spec(s, cell, batch, steps, _names_kernels(cell, named)))
    record = _record(cell, image, command, events, batch, begin) | {"named": _names_kernels(cell, named)}
    record |= {"machine": s.host.machine, "host_facts": s.host.as_record()}
    traces = {name: _join_parts(events, name) for name in (TRACE, MEMORY)}
    return profiles.save_profile(root, s.results.home(s.host.name, s.host.machine), json.loads(json.dumps(record)), traces)


def _batch(s: Session, cell: Cell) -> int:
    """Return the batch of a cell; one that the tool is to find comes from the newest run. Raises NothingSelected."""
    if cell.workload.batch != AUTO:
        return int(cell.workload.batch)
    launches = recorded(s.results, s.host.machine, cell.id)
    batch = next((launch.batch_used for _, launch in launches if launch.batch_used), None)
    if batch is None:
        raise errors.NothingSelected(
            f"the batch of {cell.id} is not known yet: it is the largest that fits",
            hint=f"torchmatrix run '{cell.id}' finds it",
        )
    return batch


def _spec(s: Session, cell: Cell, batch: int, steps: int, named: bool) -> LaunchSpec:
    options = device_flags(cell, s.host, s.matrix.seed, s.matrix.timeout_seconds) | {"--profile": steps}
    flags = (*factor_flags({**cell.workload.factors, "batch": batch}), *flags_in_words(options))
    arguments = (*flags, "--name-kernels") if named else flags
    cache = f"{cache_name(cell, batch, s.host)}-profile{'-named' * named}"
    return spec_of(cell, s.results.owner, arguments, cache, s.results.profiled_models)


def _launch(s: Session, cell: Cell, image: Image, spec: LaunchSpec) -> Generator[str, None, tuple[str, list[Event]]]:
    """Run the launch and return its command and events. Raises ToolError with what went wrong."""
    events, tail, line_mb = list[Event](), list[str](), settings.load().line_mb
    packed_bytes = 0
    try:
        execution = s.engine_for(cell.stack).start(image, spec)
        with execution, time_limit(execution, s.matrix.timeout_seconds) as timed_out:
            yield f"$ {execution.command}"
            for stream, line in execution.lines():
                event = launch_file.event_in(stream, line, line_mb)
                if event is None:
                    tail = [*tail[1 - TAIL_LINES :], line[:500].decode(errors="replace").rstrip("\n")]
                    continue
                if event["event"] == "part":
                    packed_bytes += len(event["data"])
                if packed_bytes > profiles.MOST_PACKED_BYTES:
                    raise launch_file.Refused("the traces are larger than 256 MiB: profile fewer steps (--steps)")
                events.append(event)
                if event["event"] == "phase":
                    yield f"{event['phase']}: {event['seconds']:.1f} s"
            code = execution.wait().returncode
    except errors.LaunchFailed as failure:
        raise _failed(cell, str(failure)) from None
    if timed_out.is_set():
        raise _failed(cell, f"ended after the time-out of {s.matrix.timeout_seconds:g} s ([run] timeout_minutes)")
    failures = [str(event.get("message") or "no message").splitlines()[0] for event in events if event["event"] == "failure"]
    if failures or code or not any(event["event"] == "done" for event in events):
        raise _failed(cell, next(iter(failures), f"exit code {code}; last line: {tail[-1] if tail else 'none'}"))
    return execution.command, events


def _failed(cell: Cell, why: str) -> errors.ToolError:
    return errors.ToolError(
        f"{cell.id} could not be profiled: {why}",
        hint=f"torchmatrix run --new --launches 1 '{cell.id}' measures it, and keeps what it says",
        exit_code=errors.ExitCode.CELL_NOT_OK,
    )


def _record(cell: Cell, image: Image, command: str, events: Sequence[Event], batch: int, begin: float) -> dict[str, Any]:
    """Return the content of profile.json but for the machine."""
    environment = next((event for event in events if event["event"] == "environment"), {})
    timed = next((event for event in events if event["event"] == "profile"), None)
    if timed is None:
        raise _failed(cell, "the workload did not say how long the steps took")
    return {
        "tool": __version__,
        "unix_seconds": begin,
        "cell": cell.id,
        "stack": cell.stack.name,
        "torch": environment.get("torch"),
        "environment": image.environment,
        "workload_hash": recipes.workload_hash(),
        "work": {**work_of(cell.workload, len(cell.gpus.indices)), "batch": batch},
        "workload": cell.workload.as_record(),
        "gpus": {**asdict(cell.gpus), "label": cell.gpus.label},
        "command": command,
        **{name: timed[name] for name in ("steps", "plain_seconds", "profiled_seconds")},
        "box": environment,
    }


def _join_parts(events: Sequence[Event], name: str) -> bytes:
    """Return a file that the workload sent in parts. Raises ToolError if one is missing."""
    parts = [event for event in events if event["event"] == "part" and event["name"] == name]
    numbers = [part["number"] for part in parts]
    try:
        if not parts or numbers != list(range(parts[0]["count"])):
            raise ValueError(f"{len(parts)} parts came")
        return b"".join(base64.b64decode(part["data"], validate=True) for part in parts)
    except (ValueError, binascii.Error) as error:
        raise errors.ToolError(
            f"the workload sent no whole {name} trace: {error}",
            hint="try again, with fewer --steps",
            exit_code=errors.ExitCode.CELL_NOT_OK,
        ) from None
