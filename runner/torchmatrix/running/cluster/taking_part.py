"""What a node does of a launch that another node records: it runs its ranks, watches its devices and tells both.

several_nodes.py names the lines that it tells.
"""

import os
from collections.abc import Callable, Generator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from torchmatrix.engines import recipes
from torchmatrix.engines.engine import Execution, Image, LaunchSpec
from torchmatrix.facts.parts import device_on
from torchmatrix.facts.store import RunFolder
from torchmatrix.ground.errors import BuildFailed, LaunchFailed, ToolError
from torchmatrix.machine.telemetry import Watcher
from torchmatrix.planning.plan import Cell
from torchmatrix.running import readiness, run
from torchmatrix.running.build_stacks import build_all
from torchmatrix.running.cluster import orders
from torchmatrix.running.cluster.on_node import refuse_others, session_of
from torchmatrix.running.cluster.several_nodes import meeting_of
from torchmatrix.running.launch_cell import Job, Telling, as_set_now, devices_of, gpus_of, image_record, model_file_of
from torchmatrix.running.readiness import Ready

Result = TypeVar("Result")
Tell = Callable[[dict[str, Any]], None]


def take_part(place: Path, number: int, task: int, asked: Mapping[str, Any], tell: Tell, may_begin: Callable[[], bool]) -> None:
    """Run this node's ranks of the launch `task` of the array `number`.

    `asked`: what the recording node asks for. `may_begin`: waits for its word; False if it has gone.
    """
    order = orders.read(place)
    home, launches = orders.launches_of(order, number)
    name = os.environ["SLURMD_NODENAME"]

    def say(event: str, **fields: Any) -> None:
        tell({"event": event, "name": name, **fields})

    try:
        s = session_of(order, [launches[task][0]], [])
        refuse_others(s.host)
        cell = next((one for one in s.plan.cells if one.id == launches[task][0]), None)
        if cell is None:
            raise LaunchFailed(f"it has no cell {launches[task][0]}: {s.host.gpus_in_words}")
        with run.at_work(s, lambda: RunFolder(order.results / home / order.run)) as job:
            image = _built(job, cell, asked)
            ready = _result_of(readiness.wait(job.sensors, devices_of(cell), job.method))
            rank = 1 + asked["nodes"].index(name)
            execution = _execution(job, cell, image, asked, rank)
            say("node", number=1 + rank, **_facts(job, cell, image, ready, execution))
            if may_begin():
                _run(job, cell, execution, 1 + rank, say)
    except (ToolError, BuildFailed, LaunchFailed) as error:
        say("failed", message=str(error))


def _built(job: Job, cell: Cell, asked: Mapping[str, Any]) -> Image:
    """The stack, which must be that of the recording node."""
    image = _result_of(build_all(job, recipes.stacks_of([cell])))[cell.stack.name]
    if isinstance(image, BuildFailed):
        raise image
    if image.environment != asked["environment"]:
        raise LaunchFailed(f"its stack {cell.stack.name} is not that of the recording node")
    return image


def _result_of(doing: Generator[object, None, Result]) -> Result:
    """What a generator returns, whose news nobody wants."""
    while True:
        try:
            next(doing)
        except StopIteration as over:
            result: Result = over.value
            return result


def _execution(job: Job, cell: Cell, image: Image, asked: Mapping[str, Any], rank: int) -> Execution:
    address = asked["address"]
    spec = LaunchSpec(
        arguments=tuple(asked["arguments"]),
        processes=len(cell.gpus.indices),
        gpus=cell.gpus,
        cache=asked["cache"],
        owner=job.owner,
        model_file=model_file_of(job, cell),
        meeting=meeting_of(rank, 1 + len(asked["nodes"]), address, asked["port"], towards=address),
    )
    return job.engine_for(cell.stack).start(image, spec)


def _facts(job: Job, cell: Cell, image: Image, ready: Ready, execution: Execution) -> dict[str, Any]:
    host = as_set_now(job, cell)
    return {
        "machine": job.host.machine,
        "host": host.as_record(),
        "gpus": asdict(gpus_of(cell, host)),
        "engine": job.engine_facts.get(job.engine_for(cell.stack).name, {}),
        "image": image_record(image),
        "start": ready.as_record(),
        "command": execution.command,
        "started": execution.started,
    }


def _run(job: Job, cell: Cell, execution: Execution, number: int, say: Callable[..., None]) -> None:
    """To the end of this node's ranks. Its readings say which node they are of."""

    def told(readings: list[dict[str, Any]]) -> None:
        say("telemetry", readings=[reading | {"device": device_on(number, reading["device"])} for reading in readings])

    with execution, Watcher(job.sensors, Telling(execution, told, job, cell)):
        for stream, line in execution.lines():
            say("line", stream=stream, text=line.decode(errors="replace"))
        end = execution.wait()
    say("exit", returncode=end.returncode, oom_killed=end.oom_killed, problem=end.problem)
