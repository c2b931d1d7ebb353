"""What a node does of a launch that another node records: it runs its ranks, watches its devices and tells both.

several_nodes.py names the lines that it tells.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torchmatrix.engines import recipes
from torchmatrix.engines.engine import Execution, Image, LaunchSpec
from torchmatrix.facts.store import RunFolder, keep_model
from torchmatrix.ground.errors import BuildFailed, LaunchFailed, ToolError
from torchmatrix.machine.telemetry import Watcher
from torchmatrix.planning.plan import Cell
from torchmatrix.running import readiness, run
from torchmatrix.running.build_stacks import build_all
from torchmatrix.running.cluster import orders
from torchmatrix.running.cluster.on_node import refuse_others, session_of
from torchmatrix.running.cluster.several_nodes import meeting_of
from torchmatrix.running.launch_cell import Job, Telling, devices_of, image_record
from torchmatrix.running.readiness import Ready

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
            ready = _ready(job, cell)
            execution = _execution(job, cell, image, asked, name)
            node = 2 + asked["nodes"].index(name)
            say("node", number=node, **_facts(job, cell, image, ready, execution))
            if may_begin():
                _run(job, cell, execution, node, say)
    except (ToolError, BuildFailed, LaunchFailed) as error:
        say("failed", message=str(error))


def _built(job: Job, cell: Cell, asked: Mapping[str, Any]) -> Image:
    """The stack, which must be that of the recording node."""
    building = build_all(job, recipes.stacks_of([cell]))
    while True:
        try:
            next(building)
        except StopIteration as over:
            image = over.value[cell.stack.name]
            break
    if isinstance(image, BuildFailed):
        raise image
    if image.environment != asked["environment"]:
        raise LaunchFailed(f"its stack {cell.stack.name} is not that of the recording node")
    assert isinstance(image, Image)
    return image


def _ready(job: Job, cell: Cell) -> Ready:
    waiting = readiness.wait(job.sensors, devices_of(cell), job.method)
    while True:
        try:
            next(waiting)
        except StopIteration as over:
            ready: Ready = over.value
            return ready


def _execution(job: Job, cell: Cell, image: Image, asked: Mapping[str, Any], name: str) -> Execution:
    nodes, address = asked["nodes"], asked["address"]
    spec = LaunchSpec(
        arguments=tuple(asked["arguments"]),
        processes=len(cell.gpus.indices),
        gpus=cell.gpus,
        cache=asked["cache"],
        owner=job.owner,
        model_file=keep_model(job.folder.models, own.path, own.content) if (own := cell.workload.own) else None,
        meeting=meeting_of(1 + nodes.index(name), 1 + len(nodes), address, asked["port"], towards=address),
    )
    return job.engine_for(cell.stack).start(image, spec)


def _facts(job: Job, cell: Cell, image: Image, ready: Ready, execution: Execution) -> dict[str, Any]:
    return {
        "machine": job.host.machine,
        "host": job.host.as_record(),
        "gpus": asdict(cell.gpus),
        "engine": job.engine_facts.get(job.engine_for(cell.stack).name, {}),
        "image": image_record(image),
        "start": ready.as_record(),
        "command": execution.command,
        "started": execution.started,
    }


def _run(job: Job, cell: Cell, execution: Execution, number: int, say: Callable[..., None]) -> None:
    """To the end of this node's ranks. A CPU's readings say which node, since each node has one."""

    def told(readings: list[dict[str, Any]]) -> None:
        say("telemetry", readings=[r | {"device": f"cpu@{number}"} if r["device"] == "cpu" else r for r in readings])

    with execution, Watcher(job.sensors, Telling(execution, told, devices_of(cell))):
        for stream, line in execution.lines():
            say("line", stream=stream, text=line.decode(errors="replace"))
        end = execution.wait()
    say("exit", returncode=end.returncode, oom_killed=end.oom_killed, problem=end.problem)
