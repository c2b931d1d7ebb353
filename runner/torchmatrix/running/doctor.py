"""Make the checks of `doctor`: engine, GPUs, disk, indexes and skipped cells, each with its fix."""

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torchmatrix.analysis.rows import group_by
from torchmatrix.core import settings
from torchmatrix.core.errors import ExitCode, ToolError
from torchmatrix.core.formatting import count, in_one_line
from torchmatrix.engines import containment, recipes
from torchmatrix.engines.choose import HOW_TO_HAVE_CONTAINERS
from torchmatrix.facts import environments
from torchmatrix.facts.store import Results, verified
from torchmatrix.matrix import matrix_file
from torchmatrix.planning.fit import least_disk_bytes
from torchmatrix.running import readiness, run, session

MOST_NAMED = 20
"""The most files that are named when they can't be read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One finding. `mark`: "ok", "note" (works with less) or "bad" (can't run)."""

    mark: str
    subject: str
    finding: str
    fix: str = ""
    exit_code: ExitCode = ExitCode.OK

    def as_record(self) -> dict[str, Any]:
        """Return the finding for --json."""
        return asdict(self)


def examine(matrix: Path, results: Path, engine: str, starter: Callable[[], str]) -> list[Check]:
    """Make all checks, in the order in which a user would fix them; a check that can't be made is itself a finding.

    `starter`: makes a matrix for this machine, which is checked where there is none yet.
    """
    setup = []
    try:
        s = session.prepare(matrix, results, engine, [], [])
    except ToolError as error:
        setup = [Check(mark="bad", subject="setup", finding=str(error), fix=error.hint, exit_code=error.exit_code)]
        if matrix.exists() or matrix.is_symlink():
            return [*setup, *_facts(results)]
        try:
            made = matrix_file.parse(starter(), folder=matrix.absolute().parent)
            s = session.without_locks(session.assemble(made, {}, results, engine, [], []))
        except ToolError:  # such as of the engine: without a matrix, the first thing to do is to make one
            return [*setup, *_facts(results)]
    return [
        *setup,
        _engine(s),
        _machine(s),
        _conditions(s),
        *_gpus(s),
        *_watching(s),
        *_quota(s),
        *_limits(s),
        *_variables(s),
        _disk(s),
        _writable(results),
        *_facts(results),
        *_compiler(s),
        *_indexes(s),
        *_skips(s),
        _summary(s),
    ]


def _engine(s: session.Session) -> Check:
    engine = s.engines.builder
    if engine.capabilities.runs_images:
        return Check(mark="ok", subject="engine", finding=f"{s.engines.why}, version {engine.version()}")
    fix = f"to run vendors' images: {HOW_TO_HAVE_CONTAINERS}"
    return Check(mark="note", subject="engine", finding=s.engines.why, fix=fix)


def _machine(s: session.Session) -> Check:
    if s.host.machine:
        return Check(mark="ok", subject="machine", finding=f"{s.host.name}, identity {s.host.machine}")
    fix = "set TORCHMATRIX_MACHINE, so that other machines of this name are told apart"
    return Check(mark="note", subject="machine", finding=f"{s.host.name}, without an identity of its own", fix=fix)


def _conditions(s: session.Session) -> Check:
    """Count what can change a figure and can be read here; conditions that can't be read are never taken to be equal."""
    conditions = environments.of_machine(s.host.as_record())
    lacking = [name for name, words in conditions.items() if words == environments.UNKNOWN]
    finding = f"{len(conditions) - len(lacking)} of {len(conditions)} that can change a figure are read"
    return Check(mark="ok", subject="conditions", finding=finding + (f"; not read: {', '.join(lacking)}" if lacking else ""))


def _gpus(s: session.Session) -> list[Check]:
    notes = [Check(mark="note", subject="GPU", finding=note) for note in s.host.notes]
    if not s.host.gpus:
        fix = "on a GPU server, check the driver: nvidia-smi or /dev/kfd"
        return [*notes, Check(mark="note", subject="GPU", finding="none found", fix=fix)]
    names = ", ".join(f"{gpu.index}: {gpu.name}" for gpu in s.host.gpus)
    driver = f"driver {s.host.driver}" + (f", CUDA up to {s.host.cuda_driver}" if s.host.cuda_driver else "")
    return [*notes, Check(mark="ok", subject="GPU", finding=f"{names}; {driver}")]


def _watching(s: session.Session) -> list[Check]:
    """Check what can be read of the devices while a launch runs, and who uses them now."""
    with run.watching(s) as (sensors, notes):
        readings = [reading for sensor in sensors for reading in sensor.read()]
        busy = readiness.busy_with(readings)
    wanted = {"temperature_celsius": "temperature", "power_watts": "power", "energy_joules": "energy"}
    gpus = [reading for reading in readings if reading["device"] != "cpu"] or readings
    readable = [word for key, word in wanted.items() if gpus and all(key in reading for reading in gpus)]
    lacking = [word for word in wanted.values() if word not in readable]
    finding = f"{', '.join(readable) or 'neither temperature, power nor energy'} can be read"
    finding += f"; not {' or '.join(lacking)}" if readable and lacking else ""
    checks = [Check(mark="note" if lacking else "ok", subject="watching", finding=finding, fix="; ".join(notes))]
    fix = "wait for it or choose other GPUs; a busy GPU is refused; torchmatrix ends nobody's process"
    return checks + [Check(mark="note", subject="busy", finding=phrase, fix=fix) for phrase in busy]


def _quota(s: session.Session) -> list[Check]:
    """Note what this process may use less than the machine has, if the launches are on this machine."""
    words = s.host.limits_in_words
    few = s.host.cpu_quota is not None and s.host.cpu_quota < 1
    fix = "less than one CPU: every launch will be held up; ask for at least one" if few else ""
    finding = words if s.host.limits_unseen else f"{words}; it is planned by them"
    return [Check(mark="note", subject="share", finding=finding, fix=fix)] if words else []


def _limits(s: session.Session) -> list[Check]:
    """Note engines of the plan whose launches could use all memory of the machine."""
    used = {id(engine): engine for engine in (s.engine_for(cell.stack) for cell in s.plan.cells)}
    reasons = [(engine.name, why) for engine in used.values() if (why := engine.why_unlimited())]
    fix = "as an ordinary user: systemd-run --user --scope torchmatrix run; or use containers"
    return [
        Check(mark="note", subject="limits", finding=f"launches ({name}) have no limit of memory and processes: {why}", fix=fix)
        for name, why in reasons
    ]


def _variables(s: session.Session) -> list[Check]:
    """Note variables of the user's shell that act on launches of the local engine but do not reach them."""
    is_local = any(s.engine_for(cell.stack).name == "local" for cell in s.plan.cells)
    names = containment.withheld_variables(settings.load().variables) if is_local else []
    finding = f"don't reach launches: {', '.join(names)}"
    fix = "name those that should, such as TORCHMATRIX_VARIABLES=OMP_PROC_BIND,KMP_*"
    return [Check(mark="note", subject="variables", finding=finding, fix=fix)] if names else []


def _disk(s: session.Session) -> Check:
    if s.prerequisites.disk is None:
        return Check(mark="note", subject="disk", finding="the free space on the engine's disk can't be read from here")
    to_build = [stack for stack in recipes.stacks_of(s.plan.cells) if stack.name not in s.prerequisites.stored]
    sizes = [size for stack in to_build if (size := least_disk_bytes(stack))]
    needed, free = sum(sizes), s.prerequisites.disk.free_bytes
    finding = f"{free / 2**30:.0f} GiB free under {s.prerequisites.disk.place}; "
    finding += f"what is to be built takes {needed / 2**30:.0f} GiB or more (stacks: {len(sizes)})"
    if free >= needed:
        return Check(mark="ok", subject="disk", finding=finding)
    fix = f"free space (torchmatrix clean), or {s.prerequisites.disk.larger}"
    return Check(mark="note", subject="disk", finding=finding, fix=fix)


def _writable(results: Path) -> Check:
    folder = next(path for path in (results.absolute(), *results.absolute().parents) if os.path.lexists(path))
    if folder.is_dir() and os.access(folder, os.W_OK):
        return Check(mark="ok", subject="results", finding=f"{results} can be written")
    finding, fix = f"{folder} can't be written", "write elsewhere: --results DIR"
    return Check(mark="bad", subject="results", finding=finding, fix=fix, exit_code=ExitCode.ENGINE_UNUSABLE)


def _facts(results: Path) -> list[Check]:
    """Count the launch files that their checksums verify; nothing where there are no files."""
    files = verified(Results(results))
    parts = [
        f"{files.verified} verified by checksum" if files.verified else "",
        f"{files.unverified} unverified: without checksums, from earlier versions" if files.unverified else "",
        f"{len(files.unreadable)} unreadable" if files.unreadable else "",
    ]
    counts = ", ".join(filter(None, parts))
    if not files.unreadable:
        return [Check(mark="ok", subject="facts", finding=f"files of launches: {counts}")] if counts else []
    first, *others = [in_one_line(f"{file.path}: {file.reason}") for file in files.unreadable[:MOST_NAMED]]
    fix = "gather the run again from its machine (torchmatrix gather), or remove the file"
    findings = [f"files of launches: {counts}, the first: {first}", *others]
    return [Check(mark="note", subject="facts", finding=finding, fix=fix) for finding in findings]


def _compiler(s: session.Session) -> list[Check]:
    local = any(cell.workload.compile and not s.engine_for(cell.stack).capabilities.isolates for cell in s.plan.cells)
    if not local or shutil.which("g++") or shutil.which("c++"):
        return []
    return [Check(mark="note", subject="compiler", finding="torch.compile needs a C++ compiler", fix="install g++")]


def _indexes(s: session.Session) -> list[Check]:
    return [
        Check(mark="note", subject="index", finding=f"{url} does not answer", fix="check the network and the proxy settings")
        for url in sorted(s.prerequisites.unreachable)
    ]


def _skips(s: session.Session) -> list[Check]:
    """Return a finding for each reason; what only other hardware can run is no fault of this machine."""
    checks = []
    for reason, skips in group_by(s.plan.skips, lambda skip: skip.why.reason).items():
        stacks = list(dict.fromkeys(skip.cell.stack.name for skip in skips))
        of = stacks[0] if len(stacks) == 1 else f"{len(stacks)} stacks"
        is_for_gpus = s.plan.cells and not s.host.gpus and all(skip.cell.stack.accelerator != "cpu" for skip in skips)
        finding, fix = (f"{reason}: normal here", "") if is_for_gpus else (reason, skips[0].why.fix)
        checks.append(Check(mark="note", subject=f"skipped: {count(len(skips), 'cell')} of {of}", finding=finding, fix=fix))
    return checks


def _summary(s: session.Session) -> Check:
    counts = f"{count(len(s.plan.cells), 'cell')} would run, {len(s.plan.skips)} would be skipped"
    if s.plan.cells:
        return Check(mark="ok", subject="plan", finding=counts)
    fix = "torchmatrix init --force writes a matrix for this machine"
    return Check(mark="bad", subject="plan", finding=counts, fix=fix, exit_code=ExitCode.NOTHING_SELECTED)


def as_text(checks: Sequence[Check]) -> str:
    """Return the findings as lines for a terminal or a file."""
    lines = []
    for check in checks:
        lines.append(f"{check.mark:<5} {check.subject}: {check.finding}")
        lines += [f"      fix: {check.fix}"] if check.fix else []
    return "\n".join(lines)


def as_records(checks: Sequence[Check]) -> list[dict[str, Any]]:
    """Return the findings for JSON."""
    return [check.as_record() for check in checks]
