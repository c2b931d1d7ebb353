"""After a build: does the image contain what its recipe says, and does it train? Once per image; the result is stored."""

import json
from pathlib import Path
from typing import Any

from torchmatrix.engines import packages
from torchmatrix.engines.engine import Engine, Image, LaunchSpec, Log, Recipe, time_limit
from torchmatrix.engines.output import text_of
from torchmatrix.facts import launch_file
from torchmatrix.ground import settings
from torchmatrix.ground.errors import BuildFailed, LaunchFailed
from torchmatrix.ground.files import write_whole
from torchmatrix.planning.plan import GpuSet

TIMEOUT_SECONDS = 900.0


def ensure(engine: Engine, image: Image, recipe: Recipe, marks: Path, owner: str, log: Log) -> dict[str, Any]:
    """What the self-test of `image` found, now or when it was built. Raises BuildFailed.

    `marks`: the folder that stores it, one file per engine and environment; editing the workload needs no new test.
    """
    before = known(engine, recipe, marks)
    if before is not None:
        return before
    found, mark = run(engine, image, recipe, owner, log), _mark(engine, recipe, marks)
    try:
        marks.mkdir(parents=True, exist_ok=True)
        write_whole(mark, json.dumps(found).encode())
    except OSError as error:
        raise BuildFailed(f"can't write {mark}: {error.strerror}") from None
    return found


def known(engine: Engine, recipe: Recipe, marks: Path) -> dict[str, Any] | None:
    """What the self-test found when the recipe was built here, or None."""
    try:
        return dict(json.loads(_mark(engine, recipe, marks).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def _mark(engine: Engine, recipe: Recipe, marks: Path) -> Path:
    return marks / f"{engine.name}-{recipe.stack}-{recipe.environment}.json"


def run(engine: Engine, image: Image, recipe: Recipe, owner: str, log: Log) -> dict[str, Any]:
    """Run the self-test in the image as a launch would run: no network, no privileges, only the CPU."""
    events, told, line_mb = [], list[str](), settings.load().line_mb
    try:
        execution = engine.start(image, _spec(recipe, owner))
        log(f"$ {execution.command}")
        with execution, time_limit(execution, TIMEOUT_SECONDS):
            for stream, line in execution.lines():
                log(text_of(line))
                told += [text_of(line)] if stream == "err" else []
                event = launch_file.event_in(stream, line, line_mb)
                events += [event] if event else []
            end = execution.wait()
    except launch_file.Refused as why:
        raise BuildFailed(f"self-test: {why}") from None
    except LaunchFailed as failure:
        raise BuildFailed(f"the self-test could not be started: {failure}") from None
    found = next((event for event in events if event["event"] == "self-test"), None)
    said = next((event.get("message") for event in events if event["event"] == "failure"), None)
    if said or found is None or end.returncode:
        words = packages.first_error(told) if told else "no message"
        raise BuildFailed(f"self-test: {said or f'exit code {end.returncode}, {words}'}")
    return found


def _spec(recipe: Recipe, owner: str) -> LaunchSpec:
    exact = [word for word in recipe.requires if "==" in word]
    flags = [part for word in exact for part in ("--require", word)]
    gpus = GpuSet(indices=(0,), vendor="cpu")
    return LaunchSpec(
        program="selftest.py",
        arguments=(*flags, *(["--compile"] if recipe.can_compile else [])),
        processes=1,
        gpus=gpus,
        cache="",
        owner=owner,
    )
