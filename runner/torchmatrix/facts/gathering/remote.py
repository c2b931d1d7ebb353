"""A folder on another machine as a source, by the system's OpenSSH; there it needs a shell, find, stat and tar.

One command lists names, sizes and times, and one fetches what is new. Who is asked for what, keys and known hosts are the
business of ssh and its configuration; nothing is ever typed. TORCHMATRIX_SSH: another command than "ssh", with options.
"""

import os
import re
import shlex
import stat
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from torchmatrix.facts.gathering.sources import LINK, LONGEST_FILE_BYTES, RECORD, Name, Offer, Sorting, Source
from torchmatrix.ground.errors import BadInput, EngineUnusable
from torchmatrix.ground.texts import in_one_line

_HOST = r"(?P<host>(?:[^\s/:@]+@)?(?:\[[0-9A-Fa-f:.%]+\]|[^\s/:@\[\]]+))"
_PLACE = re.compile(rf"{_HOST}:(?P<path>.*)", re.DOTALL)
_URL = re.compile(rf"ssh://{_HOST}(?::(?P<port>[0-9]{{1,5}}))?(?P<path>/.*)", re.DOTALL)
_OPTIONS = ("-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20", "-o", "ServerAliveInterval=15", "-o", "ControlMaster=auto")
_LISTED = re.compile(rb"([0-9a-f]{1,8}) ([0-9]{1,18}) ([0-9]{1,18}) \./(.+)")
_LOST = 255
"""What ssh ends with when the connection or its login fails."""


def is_remote(word: str) -> bool:
    """Whether this names a place by ssh: user@host:path, host:path or ssh://user@host:port/path."""
    return word.startswith("ssh://") or ("://" not in word and bool(_PLACE.fullmatch(word)))


def of_remote(word: str, stack: ExitStack) -> Source:
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
    stack.callback(subprocess.run, [*ssh, "-O", "exit", "--", host], capture_output=True, stdin=subprocess.DEVNULL)
    remote = _Remote([*ssh, "--", host], word, path)
    return remote.listed()


class _Remote:
    """A folder on another machine. `command`: runs what is appended to it there."""

    def __init__(self, command: Sequence[str], label: str, path: str) -> None:
        self._command, self._label = command, label
        self._cd = f"LC_ALL=C; export LC_ALL; cd -- {_quoted(path)}"
        self._prefix = ""

    def listed(self) -> Source:
        """What is there, without hidden folders."""
        wanted = "-name '*.jsonl' -o -name '*.log' -o -path '*/locks/*.lock' -o -type l"
        names = rf"\( {wanted} \) ! -type d -exec stat -c '%f %s %Y %n' {{}} +"
        root, *lines = self._output(f"{self._cd} && pwd -P && find . -name '.?*' -prune -o {names}").split(b"\n")
        if any(line.endswith(f" ./{RECORD}".encode()) for line in lines):  # of a run's folder, the name is the run's id
            self._prefix = f"{Path(os.fsdecode(root)).name}/"
        found = Sorting()
        for line in filter(None, lines):
            if entry := _LISTED.fullmatch(line):
                problem = None if stat.S_ISREG(int(entry[1], 16)) else LINK
                offer = Offer(size=int(entry[2]), changed_ns=int(entry[3]) * 10**9)
                found.add(self._prefix + os.fsdecode(entry[4]), offer, problem)
            else:
                found.others += 1
        return found.source(self._label, self.fetch)

    def fetch(self, names: Iterable[Name]) -> Iterator[tuple[Name, bytes]]:
        """The contents as one tar, read as it comes."""
        wanted = {f"./{name.removeprefix(self._prefix)}": name for name in names}
        if not wanted:
            return
        with tempfile.TemporaryFile() as listed, tempfile.TemporaryFile() as said:
            listed.write(b"".join(os.fsencode(name) + b"\n" for name in wanted))
            listed.seek(0)
            process = subprocess.Popen(
                [*self._command, _in_shell(f"{self._cd} && tar -c -f - -T -")],
                stdin=listed,
                stdout=subprocess.PIPE,
                stderr=said,
            )
            assert process.stdout is not None
            with process:
                try:
                    yield from _members(process.stdout, wanted)
                except (tarfile.TarError, EOFError, OSError):
                    process.kill()
                    self._complain(process.wait(), said)
                finally:
                    process.stdout.close()
                if process.wait() in (_LOST, 127):
                    self._complain(process.returncode, said)

    def _output(self, script: str) -> bytes:
        with tempfile.TemporaryFile() as said:
            command = [*self._command, _in_shell(script)]
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said, check=False)
            if done.returncode != 0:
                self._complain(done.returncode, said)
            return done.stdout

    def _complain(self, code: int, said: IO[bytes]) -> None:
        """Raise the error that ssh or the other machine told of in its last line."""
        said.seek(0)
        told = [in_one_line(line) for line in said.read().decode(errors="replace").splitlines() if line.strip()]
        last = told[-1] if told else "the connection ended early"
        if code == _LOST or not told:
            hint = f"try: ssh {self._command[-1]}; it must log in without asking. The same command then goes on"
            raise EngineUnusable(f"can't reach {self._label}: {last}", hint=hint)
        hint = "name a folder of results there; it needs a Linux with sh, find, stat and tar"
        raise BadInput(f"can't read {self._label}: {last}", hint=hint)


def _members(stream: IO[bytes], wanted: dict[Name, Name]) -> Iterator[tuple[Name, bytes]]:
    """The wanted files of a tar that comes as a stream; anything else that the other side sends is passed over."""
    with tarfile.open(fileobj=stream, mode="r|") as tar:
        for member in tar:
            name = wanted.pop(member.name, None) or wanted.pop(f"./{member.name}", None)
            content = tar.extractfile(member) if name and member.isreg() else None
            if name and content:
                yield name, content.read(LONGEST_FILE_BYTES + 1)


def _quoted(path: str) -> str:
    """A path for a shell, where "~/" is the home as everywhere."""
    return f'"$HOME"/{shlex.quote(path[2:])}' if path.startswith("~/") else '"$HOME"' if path == "~" else shlex.quote(path)


def _in_shell(script: str) -> str:
    """A command for whatever shell the user has there."""
    return f"exec sh -c {shlex.quote(script)}"
