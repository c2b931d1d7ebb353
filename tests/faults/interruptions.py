"""Faults that reach the tool's processes: signals, kills, and streams that close."""

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from faults.checks import Finished, completed, completes, ended_as, nothing_left
from faults.workplace import LONGER, Workplace
from support import processes_of, until

KILLS = 10
"""In one attempt."""
FROZEN_MINUTES = 0.05
"""The time-out of launches that are frozen for good."""


def nothing(place: Workplace) -> int:
    """Do nothing, the control: without a fault everything holds."""
    completes(place)
    return 1


def killed(place: Workplace) -> int:
    """Kill (-9) at random moments, from the first import to the report; each time the next run continues."""
    return kill_and_complete(place, KILLS)


def kill_and_complete(place: Workplace, kills: int) -> int:
    """Kill (-9) so many runs, each of which continues the one before; then make a whole run. Return `kills`."""
    finished = Finished(place)
    for _ in range(kills):
        process = place.start()
        at_random_moment(place, process)
        process.kill()
        ended_as(place.end(process), 0, -signal.SIGKILL)
        finished.check()
    completes(place)
    return kills


def report_killed(place: Workplace) -> int:
    """Kill `report` (-9) at random moments."""
    completes(place)
    for _ in range(3):
        process = place.start("report")
        at_random_moment(place, process)
        process.kill()
        ended_as(place.end(process), 0, -signal.SIGKILL)
    ended_as(place.call("report"), 0)
    nothing_left(place)
    return 3


def publish_killed(place: Workplace) -> int:
    """Kill `report --publish` (-9) while several processes render its pages: they end with it, and the next one publishes."""
    for _ in range(4):
        ended_as(place.call("run", "--engine", "local", "--new", "--launches", "1"), 0)
    mark = str(place.folder / "publishing")
    marked = f"TORCHMATRIX_OWNER={mark}".encode()
    for site in ("first", "second", "third"):  # a new one each time: what is finished is not rendered again
        process = place.start("report", "--publish", site, variables={"TORCHMATRIX_OWNER": mark})
        until(lambda: len(processes_of(marked)) > 2, process)
        at_random_moment(place, process)
        process.kill()
        ended_as(place.end(process), 0, -signal.SIGKILL)
        until(lambda: not processes_of(marked))
        ended_as(place.call("report", "--publish", site), 0)
        assert not list((place.folder / site).rglob("*.part")), "half-written files were left"
    completed(place)
    return 3


def signalled(place: Workplace, number: signal.Signals) -> int:
    """Send a signal at a random moment."""
    process = place.start()
    at_random_moment(place, process)
    return _interrupted(place, process, number)


def signalled_while_starting(place: Workplace, number: signal.Signals) -> int:
    """Send a signal before anything is measured."""
    process = place.start()
    with suppress(subprocess.TimeoutExpired):
        process.wait(place.random.random() * 0.3 * place.usual_seconds)
    return _interrupted(place, process, number)


def signalled_while_measuring(place: Workplace, number: signal.Signals) -> int:
    """Send a signal during a launch."""
    process = place.start(variables=LONGER)
    until(lambda: place.is_measuring, process)
    return _interrupted(place, process, number)


def signalled_twice(place: Workplace, number: signal.Signals) -> int:
    """Send a signal during a launch, and again at a random moment of what then follows."""
    process = place.start(variables=LONGER)
    until(lambda: place.is_measuring, process)
    process.send_signal(number)
    at_random_moment(place, process)
    return _interrupted(place, process, number)


def group_signalled(place: Workplace, number: signal.Signals) -> int:
    """Send a signal to the whole process group, as a terminal sends it."""
    process = place.start(variables=LONGER)
    until(lambda: place.is_measuring, process)
    os.killpg(process.pid, number)
    ended_as(place.end(process), 130)
    completes(place)
    return 1


def suspended(place: Workplace) -> int:
    """Stop the tool for a moment while its launch works on."""
    process = place.start(variables=LONGER)
    until(lambda: place.is_measuring, process)
    process.send_signal(signal.SIGSTOP)
    until(lambda: not place.processes)
    process.send_signal(signal.SIGCONT)
    ended_as(place.end(process), 0)
    completes(place)
    return 1


def launch_killed(place: Workplace) -> int:
    """Kill a launch (-9): it has crashed, and the others are measured."""
    process = place.start(variables=LONGER)
    until(lambda: place.is_measuring and place.processes, process)
    place.signal_launches(signal.SIGKILL)
    ended_as(place.end(process), 1)
    completed(place, "crashed", "ok")
    return 1


def launch_paused(place: Workplace) -> int:
    """Stop a launch for a moment."""
    process = place.start(variables=LONGER)
    until(lambda: place.is_measuring and place.processes, process)
    place.signal_launches(signal.SIGSTOP)
    with suppress(subprocess.TimeoutExpired):
        process.wait(place.random.random())
    place.signal_launches(signal.SIGCONT)
    ended_as(place.end(process), 0)
    completed(place)
    return 1


def launch_frozen(place: Workplace) -> int:
    """Stop a launch for good: it ends at its time-out."""
    place.matrix.write_text(place.matrix.read_text().replace("[run]", f"[run]\ntimeout_minutes = {FROZEN_MINUTES}"))
    process = place.start("run", "--engine", "local", "--launches", "1", variables=LONGER)
    until(lambda: place.is_measuring and place.processes, process)
    place.signal_launches(signal.SIGSTOP)
    ended_as(place.end(process), 1)
    completed(place, "timeout", "ok")
    return 1


def reader_gone(place: Workplace) -> int:
    """Close the reader: nobody reads what the tool writes any more: `torchmatrix run | true`, and its stderr too."""
    reading, writing = os.pipe()
    os.close(reading)
    both = place.random.random() < 0.5
    process = place.start(stdout=writing, stderr=writing if both else subprocess.PIPE)
    os.close(writing)
    ended_as(place.end(process), 0)
    completes(place)
    return 1


def output_full(place: Workplace) -> int:
    """Send progress, or the result, to a full disk: what is measured doesn't depend on it."""
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        ended_as(place.call(stderr=full), 0)
        completed(place)
        ended_as(place.call(stdout=full), 4)
    completed(place)
    return 2


def streams_closed(place: Workplace) -> int:
    """Start the tool with closed standard streams."""
    ended = place.call(before=["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"])
    ended_as(ended, 0)
    completes(place)
    return 1


def at_random_moment(place: Workplace, process: "subprocess.Popen[str]") -> None:
    """Wait for a part of the time that an undisturbed run takes, or for the end."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(place.random.random() * place.usual_seconds)


def _interrupted(place: Workplace, process: "subprocess.Popen[str]", number: signal.Signals) -> int:
    """Send the signal: the tool ends as documented; before its first line, as every program does."""
    process.send_signal(number)
    ended_as(place.end(process), 0, 130, -number)
    completes(place)
    return 1
