"""Run a night: measure all cells, let the gate judge, write the pages, remove old runs. Every step is a command of its own, so
that the failure of one does not affect the others, and the log shows commands that can be pasted.
"""

import os
import select
import shlex
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from torchmatrix.core import __version__, settings
from torchmatrix.core.errors import EngineUnusable, ExitCode, ToolError
from torchmatrix.core.files import lock_holder, plain_open
from torchmatrix.core.process import end_with_parent
from torchmatrix.facts.alike import counting
from torchmatrix.facts.launch import UNLIKE
from torchmatrix.facts.store import Results, RunFolder
from torchmatrix.nightly.journal import Journal, Next, decide
from torchmatrix.nightly.keeping import is_complete, name_of
from torchmatrix_plugins.nights.timers import own_command

# Commands: start one in its own process, log its output, end it.

TIMED_OUT = 124
"""The exit code that timeout(1) uses."""
NOT_STARTED = 127
"""The exit code that a shell uses."""
_GRACE_SECONDS = 60.0

Echo = Callable[[bytes], None]


class Log:
    """A night's log; `echo` receives the commands' output. A failed write, as on a full disk, doesn't end the night."""

    def __init__(self, path: Path, echo: Echo) -> None:
        try:
            self._file: IO[bytes] = plain_open(path, "ab", buffering=0)
        except OSError as error:
            raise EngineUnusable(f"can't write {path}: {error.strerror}", hint="free space or fix the permissions") from None
        self._echo = echo

    def line(self, text: str) -> None:
        """Add a line of the night itself."""
        self._write(f"{text}\n".encode(errors="surrogateescape"))

    def write(self, data: bytes) -> None:
        """Add a command's output unchanged, and echo it."""
        self._write(data)
        self._echo(data)

    def _write(self, data: bytes) -> None:
        with suppress(OSError):
            self._file.write(data)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


QUIET_WAIT_MINUTES = 60
"""The longest wait of a night's launch for other programs, such as a backup, unless the matrix or this site says it."""


def _environment() -> dict[str, str]:
    said = settings.load().quiet_wait_minutes
    return {**os.environ, "TORCHMATRIX_QUIET_WAIT_MINUTES": f"{QUIET_WAIT_MINUTES if said is None else said:g}"}


def carry_out(command: Sequence[str], log: Log, limit_seconds: float | None = None) -> int:
    """Run a command to its end and return its exit code; TIMED_OUT if it was ended after `limit_seconds`; NOT_STARTED.

    The command has a session of its own, so that an interruption reaches the night first: it is passed on once, as SIGTERM,
    and the night waits while the command cleans up. If the night is killed, the command gets SIGTERM from the kernel.
    """
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True, env=_environment(), preexec_fn=partial(end_with_parent, os.getpid(), signal.SIGTERM),
        )  # fmt: skip
    except OSError as error:
        log.line(f"can't start it: {error}")
        return NOT_STARTED
    with process:
        try:
            if _copy(process, log, limit_seconds):
                return process.wait()
            _end(process)
            return TIMED_OUT
        except KeyboardInterrupt:
            try:
                process.terminate()
                _copy(process, log, None)
                process.wait()
            except KeyboardInterrupt:  # once more: it has a grace period left
                _end(process)
            raise


def _copy(process: "subprocess.Popen[bytes]", log: Log, limit_seconds: float | None) -> bool:
    """Copy the output into the log until it ends, or until the process ends and only stray children hold the output open.

    Returns False if `limit_seconds` passed before.
    """
    assert process.stdout is not None
    begin, descriptor = time.monotonic(), process.stdout.fileno()
    while limit_seconds is None or time.monotonic() - begin < limit_seconds:
        has_ended = process.poll() is not None  # asked first: what it wrote is then there to be read
        ready, _, _ = select.select([descriptor], [], [], 0.2)
        data = os.read(descriptor, 1 << 16) if ready else b""
        if data:
            log.write(data)
        elif ready or has_ended:
            return True
    return False


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Send SIGTERM, and after a grace period SIGKILL to the whole group."""
    process.terminate()
    try:
        process.wait(timeout=_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


STEP_SECONDS = 3600.0
"""The time limit of each step but measuring, whose launches have limits of their own: a hanging hook must not hold the lock."""
_VERDICTS: dict[int, str] = {
    ExitCode.OK: "pass",
    ExitCode.NOTHING_SELECTED: "no baseline yet",
    ExitCode.REGRESSION: "regression",
    ExitCode.INCOMPLETE: "incomplete",
}
_MEASURING_FAILED = (ExitCode.BAD_INPUT, ExitCode.NOTHING_SELECTED, ExitCode.ENGINE_UNUSABLE)


@dataclass(frozen=True, kw_only=True, slots=True)
class NightOptions:
    """The options of a night; paths are absolute. `run_words`, `gate_words`: further arguments of these verbs. `free_gb`: with
    less space on the results' disk no night begins. `keep`, `disk_gb`, `pins`: see `keeping`."""

    matrix: Path
    results: Path
    reports: Path
    engine: str
    free_gb: float
    run_words: tuple[str, ...] = ()
    gate_words: tuple[str, ...] = ()
    keep: int | None = None
    disk_gb: float | None = None
    pins: tuple[str, ...] = ()

    def words(self) -> list[str]:
        """Return the words of `nightly run` with these options."""
        words = ["nightly", "run", "--matrix", str(self.matrix), "--results", str(self.results), "--reports", str(self.reports)]
        words += ["--engine", self.engine, "--free-gb", f"{self.free_gb:g}"]
        words += ["--run-with", shlex.join(self.run_words)] if self.run_words else []
        words += ["--gate-with", shlex.join(self.gate_words)] if self.gate_words else []
        return words + self.limits()

    def limits(self) -> list[str]:
        """Return the options that `nightly run` and `clean --runs` share."""
        words = [] if self.keep is None else ["--keep", str(self.keep)]
        words += [] if self.disk_gb is None else ["--disk-gb", f"{self.disk_gb:g}"]
        return words + [word for pin in self.pins for word in ("--pin", pin)]


@dataclass(frozen=True, kw_only=True, slots=True)
class End:
    """A night's end: its exit code, and a summary in one line."""

    exit_code: ExitCode
    summary: str


def run_night(
    options: NightOptions, say: Callable[[str], None], echo: Echo, at: str | None = None, tool: Sequence[str] | None = None
) -> End:
    """Run a night, or continue one that was cut. Raises EngineUnusable where another is under way, somebody measures, or the
    disk is nearly full; KeyboardInterrupt.

    `say`: receives the night's own lines; `echo`: its commands' output. `at`: only if the night of the last HH:MM is missing.
    `tool`: the command that starts torchmatrix; by default this one.
    """
    journal = Journal(options.results)
    if at and (who := lock_holder(journal.lock_file)):
        return End(exit_code=ExitCode.OK, summary=f"nothing is missed: a night is under way: {who}")
    with journal.lock():
        decision = decide(journal.events(options.matrix), time.time(), at)
        if not decision.is_due:
            return End(exit_code=ExitCode.OK, summary=decision.why)
        return _Night(options, journal, decision, say, echo, tool or own_command()).run_all()


def gate_arguments(options: NightOptions, run: RunFolder) -> list[str]:
    """Return the gate's arguments but for paths: those of the user, and which run to judge."""
    return [*options.gate_words, run.id, "--host", run.path.parent.name]


def _begun_by(commands: Sequence[Sequence[str]], runs: Sequence[RunFolder]) -> RunFolder | None:
    """Return the newest of `runs` that one of these commands began; None if there is none."""
    typed = {shlex.join(["torchmatrix", *words]) for words in commands}
    return next((run for run in reversed(runs) if run.read_record().command in typed), None)


class _Night:
    """A night under way; `codes`: how its steps ended; `removed`: how many old runs went."""

    def __init__(
        self,
        options: NightOptions,
        journal: Journal,
        decision: Next,
        say: Callable[[str], None],
        echo: Echo,
        tool: Sequence[str],
    ) -> None:
        self.options, self.journal, self.decision, self.tool, self._say = options, journal, decision, tool, say
        self.id = decision.continues.id if decision.continues else journal.new_id()
        self.began = int(decision.continues.began if decision.continues else time.time())
        self.results = Results(options.results)
        self.run: RunFolder | None = None
        self.codes: dict[str, int] = {}
        self.removed = 0
        self.begin = time.monotonic()
        self.log = Log(journal.log(self.id), echo)

    def run_all(self) -> End:
        """Run all steps; the journal gets the night's end whatever happens, unless the process is killed.

        A night that was cut stays so where it can't be continued yet.
        """
        if self.decision.continues:
            try:
                self._check_machine()
            except ToolError:
                self.log.close()
                raise
        self.journal.append("night", night=self.id, matrix=str(self.options.matrix), why=self.decision.why)
        self.say(f"torchmatrix {__version__}, night {self.id}: {self.decision.why}; log: {self.journal.log(self.id)}")
        code, problem = ExitCode.CELL_NOT_OK, "the night ended with an error of its own"
        try:
            self._run_steps()
            code, problem = self._exit_code(), ""
        except ToolError as error:
            code, problem = error.exit_code, str(error)
            raise
        except KeyboardInterrupt:
            code, problem = ExitCode.INTERRUPTED, "interrupted"
            raise
        finally:
            summary = self._close(code, problem)
        return End(exit_code=code, summary=summary)

    def _run_steps(self) -> None:
        if not self.decision.continues:
            self._check_machine()
        self._measure()
        if not self.run:  # nothing is new: there is nothing to judge, to show or to remove
            return
        results, pages = ("--results", str(self.options.results)), self.options.reports
        files = ("--junit", str(pages / "gate.xml"), "--markdown", str(pages / "gate.md"))
        self._run_step("gate", *gate_arguments(self.options, self.run), *results, *files)
        self._run_step("report", "--run", self.run.id, *results, "--output", str(pages / "index.html"))
        self._run_step("history", *results, "--output", str(pages / "history.html"))
        self._remove_old_runs()

    def _check_machine(self) -> None:
        """Raise EngineUnusable where nothing can be measured now."""
        self._refuse_other_run()
        self._free_disk_space()

    def _refuse_other_run(self) -> None:
        """Raise EngineUnusable while another run is measured: not even rendering may disturb it."""
        if who := lock_holder(self.results.lock_file):
            raise EngineUnusable(
                f"another run holds {self.results.root}: {who}",
                hint="this night is skipped; the next one starts at its usual time",
            )

    def _free_disk_space(self) -> None:
        """Remove old runs if the disk is nearly full; raise EngineUnusable if it still is: a full disk would cost the night."""
        if self._free_gb() < self.options.free_gb:
            self._remove_old_runs()
        if (free := self._free_gb()) < self.options.free_gb:
            raise EngineUnusable(
                f"only {free:.3f} GB are free for {self.results.root}; the limit is {self.options.free_gb:g}",
                hint="free space, keep fewer runs (--keep N, --disk-gb X), or lower the limit (--free-gb X)",
            )

    def _free_gb(self) -> float:
        return shutil.disk_usage(self.results.root).free / 1e9

    def _measure(self) -> None:
        """Measure all cells in a new run, or what is left of the run of a night that is continued."""
        options = self.options
        words = ["run", *options.run_words, "--matrix", str(options.matrix), "--results", str(options.results)]
        words += ["--engine", options.engine, "--output", str(options.reports / "index.html")]
        commands = (words, [*words, "--new"])
        earlier = self.results.runs()
        if self.decision.continues:
            self.run = _begun_by(commands, [run for run in earlier if run.started >= self.began])
        if self.run and is_complete(self.run):
            self.say(f"{name_of(self.run)} is complete: nothing is left to measure")
            self.codes["run"] = ExitCode.OK if set(self._outcomes()) <= {"ok", UNLIKE} else ExitCode.CELL_NOT_OK
            return
        try:
            self._run_step(*(commands[0] if self.run else commands[1]), limit_seconds=None)
        finally:  # told by what was there before, not by the time: a clock may jump in any night
            paths = {run.path for run in earlier}
            self.run = _begun_by(commands, [run for run in self.results.runs() if run.path not in paths]) or self.run
        if self.codes["run"] == ExitCode.INTERRUPTED:
            raise KeyboardInterrupt

    def _remove_old_runs(self) -> None:
        """Remove old runs of the host of this night's run, or of the last night's that had one."""
        runs = [night.run for night in self.journal.nights() if night.run]
        name = name_of(self.run) if self.run else next(reversed(runs), None)
        if name and (self.options.keep or self.options.disk_gb is not None):
            host, before = name.partition("/")[0], len(self.results.runs())
            self._run_step(
                "clean", "--runs", "--results", str(self.options.results), "--host", host, "--yes", *self.options.limits()
            )
            self.removed += before - len(self.results.runs())

    def _run_step(self, *words: str, limit_seconds: float | None = STEP_SECONDS) -> None:
        name, begin, command = words[0], time.monotonic(), [*self.tool, *words]
        self.say(f"$ {shlex.join(command)}")
        self.codes[name] = carry_out(command, self.log, limit_seconds)
        self.say(f"-> exit {self.codes[name]} after {time.monotonic() - begin:.1f} s")

    def say(self, line: str) -> None:
        """Write a line of the night itself into the log and pass it to `say`."""
        self.log.line(line)
        self._say(line)

    def _exit_code(self) -> ExitCode:
        """Return the exit code nearest to the cause: measuring failed, then a regression, then any other failure."""
        run, gate = self.codes["run"], self.codes.get("gate", ExitCode.OK)
        if not self.run or not (is_complete(self.run) or run == ExitCode.CELL_NOT_OK):
            return ExitCode(run) if run in _MEASURING_FAILED else ExitCode.ENGINE_UNUSABLE
        if gate == ExitCode.REGRESSION:
            return ExitCode.REGRESSION
        return ExitCode.CELL_NOT_OK if run != ExitCode.OK or self._failed_steps() else ExitCode.OK

    def _failed_steps(self) -> list[str]:
        """Return the steps after measuring that failed; a gate with a verdict did not."""
        later = {name: code for name, code in self.codes.items() if name != "run"}
        return [name for name, code in later.items() if code and not (name == "gate" and code in _VERDICTS)]

    def _outcomes(self) -> dict[str, int]:
        return dict(Counter(launch.outcome for launch in counting(self.run.launches()))) if self.run else {}

    def _close(self, code: ExitCode, problem: str) -> str:
        """Write the end of the night into log and journal; return its summary."""
        seconds = time.monotonic() - self.begin
        gate = _VERDICTS.get(self.codes["gate"], f"failed with exit {self.codes['gate']}") if "gate" in self.codes else None
        parts = [self._run_in_words(), f"gate: {gate or 'n/a'}", *([problem] if problem else [])]
        parts += [f"{name} failed with exit {self.codes[name]}" for name in self._failed_steps() if name != "gate"]
        parts += [f"{self.removed} old runs removed"] if self.removed else []
        summary = f"night {self.id}: {'; '.join(parts)}; exit {int(code)} after {seconds / 60:.1f} min"
        self.log.line(summary)
        self.log.close()
        outcome = {"exit_code": int(code), "seconds": seconds, "gate": gate, "summary": summary}
        run = name_of(self.run) if self.run else None
        self.journal.append("night-exit", night=self.id, matrix=str(self.options.matrix), run=run, **outcome)
        return summary

    def _run_in_words(self) -> str:
        if not self.run:
            return "no run"
        counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(self._outcomes().items())) or "no launch"
        return f"run {name_of(self.run)}{'' if is_complete(self.run) else ', not complete'}: {counts}"
