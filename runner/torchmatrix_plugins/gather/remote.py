"""A folder on another machine as a source, by the system's OpenSSH; there it needs a shell, find, stat and tar.

One command lists names, sizes and times, and one fetches the new files. Logins, keys and known hosts are the business of ssh
and its configuration; nothing is ever typed. TORCHMATRIX_SSH: another command than "ssh", with options.
"""

import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO

from torchmatrix.core import inputs
from torchmatrix.core.errors import BadInput, EngineUnusable
from torchmatrix.core.formatting import clipped, in_one_line
from torchmatrix.core.process import end_with_parent
from torchmatrix_plugins.gather.sources import LINK, LONGEST_FILE_BYTES, RECORD, Limits, Name, Offer, Sorting, Source

_HOST = r"(?P<host>(?:[^\s/:@]+@)?(?:\[[0-9A-Fa-f:.%]+\]|[^\s/:@\[\]]+))"
_PLACE = re.compile(rf"{_HOST}:(?P<path>.*)", re.DOTALL)
_URL = re.compile(rf"ssh://{_HOST}(?::(?P<port>[0-9]{{1,5}}))?(?P<path>/.*)", re.DOTALL)
_OPTIONS = ("-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20", "-o", "ServerAliveInterval=15", "-o", "ControlMaster=auto")
_LISTED = re.compile(rb"([0-9a-f]{1,8}) ([0-9]{1,18}) (-?[0-9]{1,18}) \./(.+)")
_BEGIN = b"torchmatrix begins\n"
"""Printed before anything else: what a login prints by itself (~/.bashrc, a forced command) stands before it."""
_END = b".\n"
"""The last line of a list: without it the list was cut off."""
_UNREAD = re.compile(r"(?:find|stat): (?:cannot stat\w* )?'?\./(.+?)'?: (.+)")
"""The message of find or stat for a file that it can't read; the rest is listed."""
_UNREADABLE = "it can't be read there"
_BEGINS = f"echo {_BEGIN.decode().strip()}; "
_LONGEST_LINE = 16 << 10
_MOST_ERROR_BYTES = 64 << 10
_MOST_GREETING_LINES = 1000
_HEADER_BYTES = 4 << 10
"""The size of a file's header in a tar, with a long name and the padding."""
_GRACE_SECONDS = 10.0
_VARIABLE = "TORCHMATRIX_SSH"
_LOST = 255
"""The exit code of ssh when the connection or its login fails."""


def is_remote(word: str) -> bool:
    """Check whether `word` names a place by ssh: user@host:path, host:path or ssh://user@host:port/path."""
    return word.startswith("ssh://") or ("://" not in word and bool(_PLACE.fullmatch(word)))


def of_remote(word: str, stack: ExitStack, limits: Limits) -> Source:
    """Return the facts below a folder on another machine; `stack` ends the connection. Raises BadInput or EngineUnusable."""
    place = (_URL if word.startswith("ssh://") else _PLACE).fullmatch(word)
    if place is None or place["host"].startswith("-"):
        raise BadInput(f"{word} is no place on another machine", hint="write it as user@host:path or ssh://user@host:port/path")
    host, path = place["host"], place["path"] or "."
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tm-", ignore_cleanup_errors=True))
    port = ["-p", place["port"]] if place.groupdict().get("port") else []
    shared = ("-o", f"ControlPath={folder}/c", "-o", "ControlPersist=60")
    ssh = [*_program(), *_OPTIONS, *shared, *port]
    host = re.sub(r"[\[\]]", "", host)
    stack.callback(_end_connection, [*ssh, "-O", "exit", "--", host])
    return _Remote([*ssh, "--", host], word, path, limits).source()


def _program() -> list[str]:
    """Return the words that begin ssh's command line. Raises BadInput if the variable that names them can't be used."""
    try:
        words = shlex.split(os.environ.get(_VARIABLE, "")) or ["ssh"]
    except ValueError as why:
        raise BadInput(f"{_VARIABLE} can't be read as a command: {why}", hint="quote it as a shell would") from None
    if shutil.which(words[0]) is None:
        raise BadInput(f"there is no program {words[0]}", hint=f"install OpenSSH's client, or name another one in {_VARIABLE}")
    return words


class _Remote:
    """A folder on another machine. `command`: runs a script there, which is appended to it."""

    def __init__(self, command: Sequence[str], label: str, path: str, limits: Limits) -> None:
        self._command, self._label, self._limits = command, label, limits
        self._cd = f"LC_ALL=C; export LC_ALL; cd -- {_quoted(path)}"
        self._prefix = ""
        self._lost: dict[Name, str] = {}
        self._sizes: dict[Name, int] = {}

    def source(self) -> Source:
        """List the folder, without hidden folders, and return it as a source."""
        wanted = "-name '*.jsonl' -o -name '*.log' -o -path '*/locks/*.lock' -o -type l"
        names = rf"\( {wanted} \) ! -type d -exec stat -c '%f %s %Y %n' {{}} +"
        sorting, entries, root = Sorting(label=self._label, limits=self._limits), list[re.Match[bytes]](), b""
        script = f"{self._cd} && pwd -P || exit; find . -name '.?*' -prune -o {names}; code=$?; echo .; exit $code"
        with self._running(script, subprocess.DEVNULL, self._limits.seconds) as (stream, end):
            root, line = stream.readline(_LONGEST_LINE).rstrip(b"\n"), b""
            for line in iter(partial(stream.readline, _LONGEST_LINE), b""):
                if entry := _LISTED.fullmatch(line.removesuffix(b"\n")):
                    entries.append(entry)
                elif line != _END:
                    sorting.others += 1
                if len(entries) + sorting.others > self._limits.files:
                    raise BadInput(f"{self._label} lists more than {self._limits.files:,} files", hint="name one of its runs")
            code, errors = end()
        if line != _END:
            self._fail(code or _LOST, errors)
        self._sort(sorting, root, entries)
        unread = {match[1]: match[2] for line in errors if (match := _UNREAD.fullmatch(line))}
        sorting.refused |= {self._prefix + name: f"{_UNREADABLE}: {why}" for name, why in unread.items()}
        if code != 0 and not (root and unread):
            self._fail(code, errors)
        self._sizes = {name: offer.size for name, offer in sorting.offers.items()}
        return sorting.source(self.fetch, self._lost)

    def _sort(self, sorting: Sorting, root: bytes, entries: Sequence["re.Match[bytes]"]) -> None:
        if any(entry[4] == RECORD.encode() for entry in entries):  # of a run's folder, the name is the run's id
            self._prefix = f"{Path(os.fsdecode(root)).name}/"
        for entry in entries:
            problem = None if stat.S_ISREG(int(entry[1], 16)) else LINK
            offer = Offer(size=int(entry[2]), changed_ns=int(entry[3]) * 10**9)
            sorting.add(self._prefix + os.fsdecode(entry[4]), offer, problem)

    def fetch(self, names: Iterable[Name]) -> Iterator[tuple[Name, bytes]]:
        """Yield the contents of files from one tar, read as it arrives."""
        wanted = {f"./{name.removeprefix(self._prefix)}": name for name in names}
        if not wanted:
            return
        most = sum(self._sizes[name] + _HEADER_BYTES for name in wanted.values()) + LONGEST_FILE_BYTES  # some may have grown
        with tempfile.TemporaryFile() as listed:
            listed.write(b"".join(os.fsencode(name) + b"\n" for name in wanted))
            listed.seek(0)
            seconds = self._limits.seconds_for(most)
            with self._running(f"{self._cd} && tar -c -f - -T -", listed, seconds) as (stream, end):
                try:
                    yield from _members(stream, wanted, most)
                except (*inputs.NOT_A_TAR, OSError) as error:
                    stream.close()
                    code, errors = end()
                    self._fail(code, errors or [f"what it sends is no archive of what was asked for: {error}"])
                stream.close()
                code, errors = end()
            if code in (_LOST, 127):
                self._fail(code, errors)
        for path, name in wanted.items():
            if line := next((line for line in errors if path in line), ""):
                self._lost[name] = f"{_UNREADABLE}: {line.rpartition(': ')[2]}"

    @contextmanager
    def _running(
        self, script: str, given: "IO[bytes] | int", seconds: float
    ) -> "Iterator[tuple[IO[bytes], Callable[[], tuple[int, list[str]]]]]":
        """Run a command there; yield its output, and a function that waits for its end: it returns exit code and error lines.

        Raises EngineUnusable if it takes longer than `seconds`.
        """
        process = subprocess.Popen(
            [*self._command, f"exec sh -c {shlex.quote(_BEGINS + script)}"],
            stdin=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            preexec_fn=partial(end_with_parent, os.getpid(), signal.SIGTERM),
        )  # fmt: skip
        assert process.stdout is not None and process.stderr is not None
        errors, late = bytearray(), threading.Event()
        listener = threading.Thread(target=_keep_first, args=(process.stderr, errors), daemon=True)
        listener.start()

        def give_up() -> None:
            late.set()
            process.kill()

        watch = threading.Timer(seconds, give_up)
        watch.daemon = True
        watch.start()

        def end() -> tuple[int, list[str]]:
            process.wait()
            listener.join(timeout=_GRACE_SECONDS)
            if late.is_set():
                hint = "the same command goes on with what is missing"
                raise EngineUnusable(f"{self._label} took longer than {seconds:.0f} s to answer", hint=hint)
            text = bytes(errors).decode(errors="replace")
            return process.returncode, [in_one_line(line) for line in text.splitlines() if line.strip()]

        try:
            _skip_greeting(process.stdout)
            yield process.stdout, end
        finally:
            watch.cancel()
            process.kill()
            process.wait()
            process.stdout.close()

    def _fail(self, code: int, errors: Sequence[str]) -> None:
        """Raise the error that ssh or the other machine reported in its last line."""
        last = clipped(errors[-1], 300) if errors else "the connection ended early"
        if code == _LOST or not errors:
            hint = f"try: ssh {self._command[-1]}; it must log in without asking. The same command then goes on"
            raise EngineUnusable(f"can't reach {self._label}: {last}", hint=hint)
        hint = "name a folder of results there; it needs a Linux with sh, find, stat and tar"
        raise BadInput(f"can't read {self._label}: {last}", hint=hint)


def _keep_first(stream: IO[bytes], kept: bytearray) -> None:
    """Read a stream to its end, so that its writer never waits; keep only the first bytes, as many as may be shown."""
    with suppress(ValueError, OSError), stream:
        while data := stream.read1(_LONGEST_LINE):  # type: ignore[attr-defined]  # it is a BufferedReader
            kept += data[: _MOST_ERROR_BYTES - len(kept)]


def _skip_greeting(stream: IO[bytes]) -> None:
    """Read a stream until our own first line has passed; no further than a greeting may be long."""
    for _ in range(_MOST_GREETING_LINES):
        line = stream.readline(_LONGEST_LINE)
        if not line or line.endswith(_BEGIN):
            return


def _end_connection(command: Sequence[str]) -> None:
    with suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=_GRACE_SECONDS)


def _members(stream: IO[bytes], wanted: dict[Name, Name], most: int) -> Iterator[tuple[Name, bytes]]:
    """Yield the wanted files of a tar that arrives as a stream; skip anything else that the other side sends."""
    with inputs.stream_tar(stream, most) as tar:
        while member := tar.next():
            tar.members = []  # type: ignore[attr-defined]  # else it keeps all of them
            name = wanted.get(member.name) or wanted.get(f"./{member.name}")
            content = inputs.member_content(tar, member, LONGEST_FILE_BYTES) if name else None
            if name and content is not None:
                yield name, content
                wanted.pop(member.name, None)
                wanted.pop(f"./{member.name}", None)


def _quoted(path: str) -> str:
    """Quote a path for a shell; "~/" stays the home folder."""
    return f'"$HOME"/{shlex.quote(path[2:])}' if path.startswith("~/") else '"$HOME"' if path == "~" else shlex.quote(path)
