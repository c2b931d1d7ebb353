"""The command `torchmatrix`: the only package that prints or exits. Heavy imports are inside the verbs."""

import errno
import math
import os
import signal
import sys
import time
from contextlib import suppress
from typing import Annotated, NoReturn

import typer

from torchmatrix.cli import keep, measure, plugins, read, render, start
from torchmatrix.cli.console import complain
from torchmatrix.cli.options import app
from torchmatrix.core import __version__, process
from torchmatrix.core import plugins as core_plugins
from torchmatrix.core.errors import ExitCode, ToolError, is_interruption, lack_of
from torchmatrix.core.formatting import clipped

__all__ = ["invoke", "keep", "main", "measure", "read", "render", "start"]
COMPLETION = "_TORCHMATRIX_COMPLETE"
"""The variable that a shell sets to get completions."""
ONE_INTERRUPTION_SECONDS = 0.1
"""Signals that follow each other within so long interrupt once."""


def main() -> NoReturn:
    """Complete for a shell, or carry out the command line and exit."""
    if COMPLETION in os.environ:  # the command's own `main` answers the shell and exits
        plugins.command().main(prog_name="torchmatrix")
    numbers, code = _interrupt_on_signals(), int(ExitCode.INTERRUPTED)
    with suppress(KeyboardInterrupt):  # once more, while the first is reported
        code = invoke(sys.argv[1:])
    process.end_helpers()  # an interruption may have come while they were being ended
    for number in numbers:  # nothing is left to tidy up: now they end the process, without a traceback
        signal.signal(number, signal.SIG_DFL)
    sys.exit(code)


def invoke(words: list[str]) -> int:
    """Carry out a command line. This is the only place that turns errors into a message, a hint and an exit code.

    The command is invoked without its own `main`, which would not report an interruption.
    """
    try:
        process.require_address_space()
        if words[:1] and words[0] in plugins.jobs():  # Typer would add a quarter to a launch's cost
            return int(core_plugins.made(core_plugins.JOBS, words[0], lambda code: isinstance(code, int), words[1:]))
        command = plugins.command(*words[:1])
        plugins.tell_broken()
        with command.make_context("torchmatrix", words) as context:
            return int(command.invoke(context) or 0)
    except ToolError as error:
        complain(str(error), error.hint)
        return error.exit_code
    except typer.Exit as request:
        return request.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.OK
    except BaseException as error:  # a panic is no Exception
        if isinstance(error, typer.Abort) or is_interruption(error):
            complain("interrupted", "the same command continues where it stopped")
            exec("")  # CPython ends `python -m` by SIGINT if the last text evaluated, such as dataclasses', was interrupted
            return ExitCode.INTERRUPTED
        if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
            complain(f"this name is too long: {clipped(str(error.filename))}", "no file and no folder can have it")
            return ExitCode.BAD_INPUT
        if lacking := lack_of(error):
            complain(*lacking)
            return ExitCode.ENGINE_UNUSABLE
        if not hasattr(error, "format_message"):  # click's errors are about the arguments
            raise
        complain(str(error.format_message()), "see torchmatrix --help, or torchmatrix VERB --help")
        return ExitCode.BAD_INPUT


def _interrupt_on_signals() -> list[signal.Signals]:
    """Let SIGTERM end a run as Ctrl-C does; SIGHUP and SIGINT too, unless nohup or a shell's background job ignores them.

    Signals that follow at once, as SIGHUP follows systemd's SIGTERM, are one interruption. Return these signals.
    """
    last = -math.inf

    def interrupt(number: int, frame: object) -> None:
        nonlocal last
        before, last = last, time.monotonic()
        if last - before > ONE_INTERRUPTION_SECONDS:
            raise KeyboardInterrupt

    others = [number for number in (signal.SIGINT, signal.SIGHUP) if signal.getsignal(number) is not signal.SIG_IGN]
    for number in (signal.SIGTERM, *others):
        signal.signal(number, interrupt)
    return [signal.SIGTERM, *others]


@app.callback(invoke_without_command=True)
def _about(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False
) -> None:
    if version or context.invoked_subcommand is None:
        print(__version__ if version else context.get_help())
        raise typer.Exit()
