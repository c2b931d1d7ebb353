"""A folder on another machine as a source, by the system's OpenSSH; there it needs a shell, find, stat and tar.

One command lists names, sizes and times, and one fetches what is new. Who is asked for what, keys and known hosts are the
business of ssh and its configuration; nothing is ever typed. TORCHMATRIX_SSH: another command than "ssh", with options.
"""

import os
import re
import shlex
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
from torchmatrix.facts.gathering.sources import LINK, LONGEST_FILE_BYTES, RECORD, Limits, Name, Offer, Sorting, Source

_HOST = r"(?P<host>(?:[^\s/:@]+@)?(?:\[[0-9A-Fa-f:.%]+\]|[^\s/:@\[\]]+))"
_PLACE = re.compile(rf"{_HOST}:(?P<path>.*)", re.DOTALL)
_URL = re.compile(rf"ssh://{_HOST}(?::(?P<port>[0-9]{{1,5}}))?(?P<path>/.*)", re.DOTALL)
_OPTIONS = ("-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20", "-o", "ServerAliveInterval=15", "-o", "ControlMaster=auto")
_LISTED = re.compile(rb"([0-9a-f]{1,8}) ([0-9]{1,18}) ([0-9]{1,18}) \./(.+)")
_UNREAD = re.compile(r"(?:find|stat): (?:cannot stat\w* )?'?\./(.+?)'?: (.+)")
"""What find or stat says of what it can't read; the rest is listed."""
_UNREADABLE = "it can't be read there"
_LONGEST_LINE = 16 << 10
_MOST_SAID_BYTES = 64 << 10
_HEADER_BYTES = 4 << 10
"""In a tar, with a long name and the padding, beside each file."""
_GRACE_SECONDS = 10.0
_LOST = 255
"""What ssh ends with when the connection or its login fails."""


def is_remote(word: str) -> bool:
    """Whether this names a place by ssh: user@host:path, host:path or ssh://user@host:port/path."""
    return word.startswith("ssh://") or ("://" not in word and bool(_PLACE.fullmatch(word)))


def of_remote(word: str, stack: ExitStack, limits: Limits) -> Source:
    """The facts below a folder on another machine; `stack` ends the connection. Raises BadInput or EngineUnusable."""
    found = (_URL if word.startswith("ssh://") else _PLACE).fullmatch(word)
    if found is None or found["host"].startswith("-"):
        raise BadInput(f"{word} is no place on another machine", hint="write it as user@host:path or ssh://user@host:port/path")
    host, path = found["host"], found["path"] or "."
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tm-", ignore_cleanup_errors=True))
    port = ["-p", found["port"]] if found.groupdict().get("port") else []
    once = ("-o", f"ControlPath={folder}/c", "-o", "ControlPersist=60")
    ssh = [*shlex.split(os.environ.get("TORCHMATRIX_SSH") or "ssh"), *_OPTIONS, *once, *port]
    host = re.sub(r"[\[\]]", "", host)
    stack.callback(_end_connection, [*ssh, "-O", "exit", "--", host])
    return _Remote([*ssh, "--", host], word, path, limits).listed()


class _Remote:
    """A folder on another machine. `command`: runs what is appended to it there."""

    def __init__(self, command: Sequence[str], label: str, path: str, limits: Limits) -> None:
        self._command, self._label, self._limits = command, label, limits
        self._cd = f"LC_ALL=C; export LC_ALL; cd -- {_quoted(path)}"
        self._prefix = ""
        self._lost: dict[Name, str] = {}
        self._sizes: dict[Name, int] = {}

    def listed(self) -> Source:
        """What is there, without hidden folders."""
        wanted = "-name '*.jsonl' -o -name '*.log' -o -path '*/locks/*.lock' -o -type l"
        names = rf"\( {wanted} \) ! -type d -exec stat -c '%f %s %Y %n' {{}} +"
        found, entries, root = Sorting(label=self._label, limits=self._limits), list[re.Match[bytes]](), b""
        script = f"{self._cd} && pwd -P && find . -name '.?*' -prune -o {names}"
        with self._running(script, subprocess.DEVNULL, self._limits.seconds) as (stream, end):
            root = stream.readline(_LONGEST_LINE).rstrip(b"\n")
            while line := stream.readline(_LONGEST_LINE):
                if entry := _LISTED.fullmatch(line.removesuffix(b"\n")):
                    entries.append(entry)
                else:
                    found.others += 1
                if len(entries) + found.others > self._limits.files:
                    raise BadInput(f"{self._label} lists more than {self._limits.files:,} files", hint="name one of its runs")
            code, said = end()
        self._add(found, root, entries)
        unread = {told[1]: told[2] for line in said if (told := _UNREAD.fullmatch(line))}
        found.refused |= {self._prefix + name: f"{_UNREADABLE}: {why}" for name, why in unread.items()}
        if code != 0 and not (root and unread):
            self._complain(code, said)
        self._sizes = {name: offer.size for name, offer in found.offers.items()}
        return found.source(self.fetch, self._lost)

    def _add(self, found: Sorting, root: bytes, entries: Sequence["re.Match[bytes]"]) -> None:
        if any(entry[4] == RECORD.encode() for entry in entries):  # of a run's folder, the name is the run's id
            self._prefix = f"{Path(os.fsdecode(root)).name}/"
        for entry in entries:
            problem = None if stat.S_ISREG(int(entry[1], 16)) else LINK
            offer = Offer(size=int(entry[2]), changed_ns=int(entry[3]) * 10**9)
            found.add(self._prefix + os.fsdecode(entry[4]), offer, problem)

    def fetch(self, names: Iterable[Name]) -> Iterator[tuple[Name, bytes]]:
        """The contents as one tar, read as it comes."""
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
                    code, said = end()
                    self._complain(code, said or [f"what it sends is no archive of what was asked for: {error}"])
                stream.close()
                code, said = end()
            if code in (_LOST, 127):
                self._complain(code, said)
        for asked, name in wanted.items():
            if line := next((line for line in said if asked in line), ""):
                self._lost[name] = f"{_UNREADABLE}: {line.rpartition(': ')[2]}"

    @contextmanager
    def _running(
        self, script: str, given: "IO[bytes] | int", seconds: float
    ) -> "Iterator[tuple[IO[bytes], Callable[[], tuple[int, list[str]]]]]":
        """A command there: what it writes, and what waits for its end and gives its exit code and what it said.

        Raises EngineUnusable if it takes longer than so many seconds.
        """
        process = subprocess.Popen(
            [*self._command, _in_shell(script)], stdin=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            preexec_fn=partial(end_with_parent, os.getpid(), signal.SIGTERM),
        )  # fmt: skip
        assert process.stdout is not None and process.stderr is not None
        said, late = bytearray(), threading.Event()
        listener = threading.Thread(target=_keep_first, args=(process.stderr, said), daemon=True)
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
            text = bytes(said).decode(errors="replace")
            return process.returncode, [in_one_line(line) for line in text.splitlines() if line.strip()]

        try:
            yield process.stdout, end
        finally:
            watch.cancel()
            process.kill()
            process.wait()
            process.stdout.close()

    def _complain(self, code: int, said: Sequence[str]) -> None:
        """Raise the error that ssh or the other machine told of in its last line."""
        last = clipped(said[-1], 300) if said else "the connection ended early"
        if code == _LOST or not said:
            hint = f"try: ssh {self._command[-1]}; it must log in without asking. The same command then goes on"
            raise EngineUnusable(f"can't reach {self._label}: {last}", hint=hint)
        hint = "name a folder of results there; it needs a Linux with sh, find, stat and tar"
        raise BadInput(f"can't read {self._label}: {last}", hint=hint)


def _keep_first(stream: IO[bytes], said: bytearray) -> None:
    """Read a stream to its end, so that nobody waits for that; keep the first and no more than is shown."""
    with suppress(ValueError, OSError), stream:
        while data := stream.read1(_LONGEST_LINE):  # type: ignore[attr-defined]  # it is a BufferedReader
            said += data[: _MOST_SAID_BYTES - len(said)]


def _end_connection(command: Sequence[str]) -> None:
    with suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=_GRACE_SECONDS)


def _members(stream: IO[bytes], wanted: dict[Name, Name], most: int) -> Iterator[tuple[Name, bytes]]:
    """The wanted files of a tar that comes as a stream; anything else that the other side sends is passed over."""
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
    """A path for a shell, where "~/" is the home as everywhere."""
    return f'"$HOME"/{shlex.quote(path[2:])}' if path.startswith("~/") else '"$HOME"' if path == "~" else shlex.quote(path)


def _in_shell(script: str) -> str:
    """A command for whatever shell the user has there."""
    return f"exec sh -c {shlex.quote(script)}"
