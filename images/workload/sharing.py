"""How a rank shared the machine while it was timed, by what the kernel counts of its threads and of its CPUs.

Read before and after a window, never inside one (measure.window). A key that is absent is unknown: a kernel without scheduler
statistics, or a container that doesn't see its host's CPUs (proc(5); Documentation/scheduler/sched-stats.rst of Linux).
"""

import itertools
import os
import resource

_BUSY, _STOLEN = (0, 1, 2, 5, 6), 7
"""Columns of a CPU in /proc/stat: user, nice, system, irq and softirq; steal, which a hypervisor took. Guests are in user."""


HELPERS = set()
"""Processes of this rank, such as those that load its data: what they do is its own."""


def read():
    """Return the counters as they are now; None for what can't be read."""
    usage, cpus = resource.getrusage(resource.RUSAGE_SELF), sorted(os.sched_getaffinity(0))
    return {
        "switches": usage.ru_nivcsw,
        "faults": usage.ru_majflt,
        "threads": _of_threads(),
        "cpus": cpus,
        "times": _of_cpus(cpus),
    }


def since(before):
    """Return what happened since `before` was read: seconds in which the threads of this process ran, and in which they waited
    for a CPU; its `cpus`, and the seconds in which these were busy, and in which a hypervisor took them; how often a thread had
    to leave its CPU (`switches`), and how often a page came from a disk (`faults`).
    """
    now = read()
    shared = {name: now[name] - before[name] for name in ("switches", "faults")}
    if now["threads"] and before["threads"]:
        grown = [_grown(counted, before["threads"].get(thread, (0, 0))) for thread, counted in now["threads"].items()]
        run, wait = map(sum, zip(*grown))
        shared.update(run_seconds=run / 1e9, wait_seconds=wait / 1e9)
    if now["times"] and before["times"] and now["cpus"] == before["cpus"]:
        busy, stolen = _grown(now["times"], before["times"])
        shared.update(cpus=_ranges(now["cpus"]), busy_seconds=busy, stolen_seconds=stolen)
    return shared


def _ranges(cpus):
    """Return sorted numbers as the kernel lists them, such as "0-3,8"."""
    runs = itertools.groupby(enumerate(cpus), lambda place: place[1] - place[0])
    ends = ((members[0][1], members[-1][1]) for members in (list(run) for _, run in runs))
    return ",".join("%d-%d" % two if two[0] < two[1] else "%d" % two[0] for two in ends)


def _grown(now, before):
    """Return by how much each counter grew; one that was set back is taken as unchanged."""
    return [max(0, new - old) for new, old in zip(now, before)]


def _of_threads():
    """Return of each thread the nanoseconds in which it ran, and in which it waited for a CPU."""
    counted = {}
    for process in ("self", *sorted(HELPERS)):
        folder = "/proc/%s/task" % process
        for thread in os.listdir(folder) if os.path.isdir(folder) else ():
            words = (_text("%s/%s/schedstat" % (folder, thread)) or "").split()  # a thread may just have ended
            if len(words) == 3:
                counted[thread] = int(words[0]), int(words[1])
    return counted


def _of_cpus(cpus):
    """Return the seconds in which these CPUs were busy and stolen, all together; None unless all of them are listed."""
    lines = (line.partition(" ") for line in (_text("/proc/stat") or "").splitlines() if line.startswith("cpu"))
    columns = {name: rest.split() for name, _, rest in lines}
    rows = [columns.get("cpu%d" % cpu, ()) for cpu in cpus]
    if any(len(row) <= _STOLEN for row in rows):
        return None
    per_second = os.sysconf("SC_CLK_TCK")
    return [sum(int(row[place]) for row in rows for place in places) / per_second for places in (_BUSY, (_STOLEN,))]


def _text(path):
    try:
        with open(path, encoding="ascii") as file:
            return file.read()
    except (OSError, ValueError):
        return None
