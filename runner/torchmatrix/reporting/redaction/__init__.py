"""Facts without what must not be shown: credentials and absolute paths always; names of people, machines and sites on request.

Works on the facts, before anything is rendered, so that no view can leak. Always: credentials are removed, a path below
the results folder or this checkout becomes relative, a home becomes "~", any other absolute path "…/" and its last part.

With `enabled`: names of hosts and users, identities of machines, UUIDs, serial numbers, VBIOS versions, PCI, MAC and IP
addresses, container ids and the registries and mirrors of a private site become pseudonyms (host-1, GPU-2), the same in all
texts and all runs of a results folder. A name of one or two characters, or one that is a common word, is replaced in its own
field only. Fields of a workload's events that the wire schema doesn't have are left out.

What a workload, a library or a build says of its failure is free text, in which credentials can only be guessed. It stays away
from what is published but for `with_messages`; the tool's own sentences stay.
"""

import getpass
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from torchmatrix.analysis import machines
from torchmatrix.analysis.machines import Chosen
from torchmatrix.core import assets, settings
from torchmatrix.core.errors import BadInput
from torchmatrix.core.files import disk_errors, files_below, named_below
from torchmatrix.core.formatting import count
from torchmatrix.core.inputs import without_comments
from torchmatrix.core.secrets import GONE, MOST_CHARACTERS, each_without_secrets, is_secret_name, without_secrets
from torchmatrix.facts import lines
from torchmatrix.facts.lines import Event, Lines
from torchmatrix.facts.reveals import Field, Fields, fields_of, may_name
from torchmatrix.facts.store import Results, RunFolder
from torchmatrix.facts.wire import Reveals
from torchmatrix.reporting.redaction.identities import Identities, Places, Pseudonyms, load

__all__ = ["Pseudonyms", "Redaction", "for_results", "redacted", "redacting", "staged", "staged_choice", "staged_together"]

_NUMBERS: tuple[type, ...] = (int, float, type(None))
_NO_NAMES = (None, Reveals.NOTHING, Reveals.TEXT, Reveals.MESSAGE, Reveals.IMAGE)
"""What a field may reveal whose texts are redacted word by word, not replaced by one pseudonym."""
_COMMITS, _COMMIT = ("torch_git",), re.compile("[0-9a-f]{40}")
"""Fields in which 40 hexadecimal digits are a commit."""
_CELLS = ("cell", "beside")
"""Fields with ids of cells."""
_CELL = re.compile(r"""(?!-[IL]/)[^\s/=:,;('"<>]+/[^\s/]+/[^\s/]+""")
"""Stack, workload and devices; not what a path would follow."""
WITHHELD = "the message is not published"
"""Stands for the message of a workload, a library or a build."""
UNREADABLE_MATRIX = "# the matrix is not published: it can't be read\n"
_identifier = lru_cache(4096)(without_secrets)


class Redaction:
    """Removes from texts and JSON values what must not be shown. `roots`: absolute folders and their replacements.
    It must learn names before it changes the texts that hold them; `staged` does so for a whole run.
    `with_messages`: messages of workloads, libraries and builds stay in the lines, redacted as all texts are.
    """

    def __init__(self, *, enabled: bool, roots: Mapping[str, str], names: Pseudonyms, with_messages: bool = False) -> None:
        self.enabled, self.with_messages = enabled, with_messages
        self._identities = Identities(names)
        self._places = Places(roots, enabled, lambda host: self._identities.of("mirror", host))
        self._done: dict[str, str] = {}
        self._words: dict[str, str] = {}
        self._forms = Identities(Pseudonyms())
        self._learnt: set[Path] = set()
        for kind, name in names.kept() if enabled else ():
            self._identities.know(kind, name)
        self.dropped: set[tuple[str, str]] = set()
        """The fields that nobody declares, which were left out: (event, field)."""
        self.sources: dict[Path, Path] = {}
        """The file that each copy is of."""

    def know(self, kind: str, name: str) -> None:
        """Learn another name; `kind`: host, user or mirror."""
        self._identities.know(kind, name)
        self._done.clear()
        self._words.clear()

    def learn(self, value: Any, fields: Fields | None = None) -> None:
        """Learn the names in a JSON value, by what its fields may reveal."""
        if not self.enabled:
            return
        for reveals, whole in _texts(value, fields):
            text = whole[:MOST_CHARACTERS]
            if reveals not in _NO_NAMES:
                self._identities.know(reveals.value, text)
            if reveals is Reveals.IMAGE:
                self._identities.learn_image(text)
            self._identities.learn_from(text)
        self._done.clear()
        self._words.clear()

    def learn_line(self, event: Event) -> None:
        """Learn the names in a line of a launch file or of a run's record."""
        self.learn(event, fields_of(event["event"]))

    def learn_run(self, run: RunFolder) -> None:
        """Learn the names in all facts of a run, once."""
        if not self.enabled or run.path in self._learnt:
            return
        self._learnt.add(run.path)
        self.know("host", run.path.parent.name)
        for path in _facts_of(run):
            for event in _events_with_names(path):
                self.learn_line(event)

    def text(self, text: str) -> str:
        """Redact a text."""
        shown = self._done.get(text)
        if shown is None:
            shown = without_secrets(text)
            shown = self._places.text(self._identities.text(shown) if self.enabled else shown)
            self._done[text] = shown
        return shown

    def named(self, kind: str, name: str) -> str:
        """Redact a name of a kind, such as host."""
        return self._identities.of(kind, name) if self.enabled else name

    def value(self, value: Any, words: Collection[str] = ()) -> Any:
        """Redact a JSON value that no schema declares; numbers stay. `words`: fields that reveal nothing."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {
                _identifier(name) if name.isidentifier() else self.text(name): self._word_or_value(name, member, value, words)
                for name, member in value.items()
            }
        if isinstance(value, (list, tuple)) and not all(isinstance(member, _NUMBERS) for member in value):
            is_of_texts = len(value) > 1 and all(isinstance(member, str) for member in value)
            members = each_without_secrets(value) if is_of_texts else value
            return type(value)(self.value(member, words) for member in members)
        return value

    def line(self, event: Event) -> Event | None:
        """Redact a line; if enabled, without the fields that nobody declares, and None for a line that nobody declares."""
        fields = fields_of(event["event"])
        if fields and not self.with_messages:
            is_own = event["event"] == "exit" and event.get("own") is True and "message" in event
            event = {**_without_messages(event, fields), **({"message": event["message"]} if is_own else {})}
            if isinstance(matrix := event.get("matrix"), str):
                event["matrix"] = _without_comments(matrix)
        elif event["event"] == "exit" and isinstance(tail := event.get("tail"), list) and all(isinstance(x, str) for x in tail):
            event = {**event, "tail": self.text("\n".join(tail)).splitlines()}  # a break may cut a credential
        if not self.enabled:
            redacted_line: Event = self.value(event)
            return redacted_line
        if fields is None:
            self.dropped |= {("", name) for name in event}
            return None
        return {"event": event["event"], **self.declared(event, fields, event["event"])}

    def declared(self, value: Any, fields: Fields, event: str = "") -> Any:
        """Redact the declared fields of an object, or of each in a list; if enabled, leave the others out."""
        if isinstance(value, (list, tuple)):
            return [self.declared(member, fields, event) for member in value]
        if not self.enabled:
            return self.value(value)
        if not isinstance(value, dict):  # of no declared kind
            return _numbers_of(value)
        self.dropped |= {(event, name) for name in value.keys() - fields.keys() - {"event"}}
        return {name: self._field(fields[name], name, value, event) for name in value if name in fields}

    def _field(self, field: Field, name: str, parent: Event, event: str) -> Any:
        """Redact a declared field by what it may reveal."""
        member = parent[name]
        if field.fields:
            return self.declared(member, field.fields, event)
        if field.is_number:
            return _numbers_of(member)
        if field.reveals not in _NO_NAMES and isinstance(member, (str, int)) and not isinstance(member, bool):
            return self._identities.of(field.reveals.value, str(member))
        if field.reveals is Reveals.NOTHING and not is_secret_name(name):
            return self._term(member)
        return self._member(name, member, parent)

    def _term(self, value: Any) -> Any:
        """Redact the words in a field that reveals nothing."""
        if isinstance(value, str):
            return self._word(value)
        if isinstance(value, list) and not all(isinstance(member, _NUMBERS) for member in value):
            return [self._term(member) for member in value]
        return value if isinstance(value, (list, *_NUMBERS)) else self.value(value)

    def _word(self, text: str) -> str:
        """Return a word as it is, even if a host has the same name; redact it if its form is that of a path or identity."""
        shown = self._words.get(text)
        if shown is None:
            plain = self._places.text(self._forms.text(without_secrets(text)))
            shown = self._words[text] = text if plain == text else self.text(text)
        return shown

    def _word_or_value(self, name: str, member: Any, parent: Any, words: Collection[str]) -> Any:
        return self._word(member) if name in words and isinstance(member, str) else self._member(name, member, parent, words)

    def _member(self, name: str, member: Any, parent: Any, words: Collection[str] = ()) -> Any:
        if is_secret_name(name) or (name == "value" and is_secret_name(str(parent.get("name", "")))):
            return _without_texts(member)
        if name in _COMMITS and isinstance(member, str) and _COMMIT.fullmatch(member):
            return member
        if name in _CELLS and isinstance(member, (str, list)):
            return self.cell(member) if isinstance(member, str) else [self.cell(cell) for cell in map(str, member)]
        return member if isinstance(member, _NUMBERS) else self.value(member, words)

    def cell(self, cell: str) -> str:
        """Redact a cell's id part by part, as its folders are: its slashes begin no absolute path."""
        return "/".join(map(self.text, cell.split("/"))) if _CELL.fullmatch(cell) else self.text(cell)


def _without_comments(matrix: str) -> str:
    try:
        return without_comments(matrix)
    except BadInput:
        return UNREADABLE_MATRIX


def _without_messages(value: Any, fields: Fields) -> Any:
    """Replace the messages in an object, or in each of a list, by a sentence that says that they are left out."""
    if isinstance(value, (list, tuple)):
        return [_without_messages(member, fields) for member in value]
    if not isinstance(value, dict):
        return value
    return {name: _without_message(member, fields.get(name, _UNDECLARED)) for name, member in value.items()}


def _without_message(value: Any, field: Field) -> Any:
    if field.fields:
        return _without_messages(value, field.fields)
    if field.reveals is not Reveals.MESSAGE or not value:
        return value
    return [WITHHELD] if isinstance(value, (list, tuple)) else WITHHELD


def _texts(value: Any, fields: Fields | None, reveals: Reveals | None = None) -> Iterator[tuple[Reveals | None, str]]:
    """Yield every text in a JSON value, with what it may reveal by the fields that hold it; None if nothing says so."""
    if isinstance(value, str):
        yield reveals, value
    elif isinstance(value, dict):
        for name, member in value.items():
            field = fields.get(name, _UNDECLARED) if fields else Field(reveals)
            yield from _texts(member, field.fields, field.reveals)
    elif isinstance(value, (list, tuple)):
        for member in value:
            yield from _texts(member, fields, reveals)


_UNDECLARED = Field()


def _numbers_of(value: Any) -> Any:
    """Redact a value of which no text is declared: numbers stay."""
    return value if isinstance(value, _NUMBERS) else _without_texts(value)


def _without_texts(value: Any) -> Any:
    """Redact the value of a telling name: "…" for a text or number; for an object or list, for the texts in it."""
    if isinstance(value, dict):
        return {name: member if isinstance(member, _NUMBERS) else _without_texts(member) for name, member in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(member if isinstance(member, _NUMBERS) else _without_texts(member) for member in value)
    return value if isinstance(value, (bool, type(None))) else GONE


def for_results(results: Results, enabled: bool, names: Pseudonyms, with_messages: bool = False) -> Redaction:
    """Return the redaction for publishing the runs of a results folder from this machine, by this user, at this site."""
    roots = {str(root): "results" for root in (results.root, results.root.resolve())}
    roots |= {str(assets.ROOT): ".", str(settings.home_folder()): "~"}
    redaction = Redaction(enabled=enabled, roots=roots, names=names, with_messages=with_messages)
    with suppress(OSError, KeyError):  # no such user in a container
        redaction.know("user", getpass.getuser())
    for address in settings.load().mirrors.values():
        redaction.know("mirror", re.sub(r"^\w+://", "", address).partition("/")[0].partition(":")[0])
    return redaction


def of_texts(runs: Iterable[RunFolder], redaction: Redaction) -> Callable[[str], str]:
    """Return what redacts a text that is shown beside runs, whose hosts it may name."""
    for host in {run.path.parent.name for run in runs}:
        redaction.know("host", host)
    return redaction.text


def redacted(
    results: Results, run: RunFolder, root: Path, tell: Callable[[str], None], with_messages: bool = False
) -> tuple[RunFolder, Redaction]:
    """Copy a run's facts below `root` with pseudonyms, which are stored for the next time; tell of fields that are left out.

    Raises EngineUnusable.
    """
    with redacting(results, tell, with_messages) as cleaner:
        return staged(run, cleaner, root), cleaner


@contextmanager
def redacting(results: Results, tell: Callable[[str], None], with_messages: bool = False) -> Iterator[Redaction]:
    """Yield the redaction with pseudonyms; at the end store these and tell of fields that are left out.

    Raises EngineUnusable.
    """
    names = load(results.root)
    cleaner = for_results(results, True, names, with_messages)
    yield cleaner
    names.save(results.root)
    tell_dropped(cleaner, tell)


def staged_choice(chosen: Sequence[Chosen], redaction: Redaction, root: Path) -> list[Chosen]:
    """Copy the facts of chosen runs, redacted, below `root`, and return the same choice of the copies."""
    copies = staged_together([choice.run for choice in chosen], redaction, root)
    return machines.copied(chosen, copies, partial(redaction.named, "machine"))


def tell_dropped(cleaner: Redaction, tell: Callable[[str], None]) -> None:
    """Tell once how many fields were left out because nobody declares them."""
    if cleaner.dropped:
        tell(f"{count(len(cleaner.dropped), 'field')} that torchmatrix doesn't know left out: nobody can say what is in them")


def cleaned(run: RunFolder, root: Path) -> RunFolder:
    """Copy a run's facts below `root` without credentials and absolute paths, with all names as they are."""
    results = Results(run.path.parent.parent)
    return staged(run, for_results(results, False, Pseudonyms(), with_messages=True), root)


def staged_together(runs: Sequence[RunFolder], redaction: Redaction, root: Path) -> list[RunFolder]:
    """Copy runs as `staged` does; what one of them names is known in the texts of all."""
    for run in runs:
        redaction.learn_run(run)
    return [staged(run, redaction, root) for run in runs]


FACTS = ".jsonl"
UNREADABLE_FOLDER = f"round0-try0{FACTS}"
"""The file that stands in a copy for the launches of a folder that can't be read."""


def staged(run: RunFolder, redaction: Redaction, root: Path, logs: bool = False) -> RunFolder:
    """Copy a run's facts, redacted, below `root` (as HOST/RUN); `logs`: with what was printed.
    A truncated line is left out. The names of folders and files change in the same way as the cells' ids in them.
    Raises BadInput if two names become one.
    """
    redaction.learn_run(run)
    target = RunFolder(root / redaction.named("host", run.path.parent.name) / redaction.text(run.id))
    for path in _facts_of(run):
        content = lines.read(path)
        damage = content.damage if path == run.record else content.damage_of_launch
        copy = target.path / _shown(path, run, redaction)
        if copy.suffix != FACTS:  # a folder that can't be read, or a link to one: a file in it tells why
            copy /= UNREADABLE_FOLDER
        if (other := redaction.sources.setdefault(copy, path)) != path:
            raise BadInput(
                f"{other.relative_to(run.path)} and {path.relative_to(run.path)} would be one file: "
                "their names differ in what must not be shown only",
                hint="a name holds a credential, a path or an identity: publish other runs",
            )
        _put(copy, _redacted(content, damage, redaction))
    endings = (".lock", ".log") if logs else (".lock",)
    for path in (path for path in files_below(run.path) if path.suffix in endings):
        with suppress(PermissionError):
            shown = redaction.text(path.read_text(encoding="utf-8", errors="replace"))
            _put(target.path / _shown(path, run, redaction), shown.encode())
    return target


def _facts_of(run: RunFolder) -> list[Path]:
    """List a run's files of facts, and the folders in it that can't be read."""
    return named_below(run.path, f"*{FACTS}")


def _redacted(content: Lines, damage: str | None, redaction: Redaction) -> bytes:
    """Return the redacted lines; their checksums vouch for no more than those of the facts did."""
    damages = [{"event": lines.DAMAGED, "reason": damage}] if damage else []
    return lines.packed([*damages, *filter(None, map(redaction.line, content.events))], checksums=content.verified)


def _events_with_names(path: Path) -> Iterator[Event]:
    """Yield the events that can hold names; of the telemetry, those that name other people's processes."""
    for event in lines.read(path).events:
        kind = event["event"]
        if _names_others(event.get("readings")) if kind == "telemetry" else may_name(kind):
            yield event


def _names_others(readings: Any) -> bool:
    """Check whether readings name other people's processes; malformed ones may."""
    if type(readings) is not list:
        return readings is not None
    return any(type(reading) is not dict or "foreign" in reading for reading in readings)


def _shown(path: Path, run: RunFolder, redaction: Redaction) -> Path:
    return Path(*(redaction.text(part) for part in path.relative_to(run.path).parts))


def _put(path: Path, data: bytes) -> None:
    with disk_errors(path, hint="free space there, or name another folder for temporary files: TMPDIR"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
