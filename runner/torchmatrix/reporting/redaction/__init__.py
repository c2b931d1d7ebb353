"""Facts without what must not be shown: credentials and absolute paths always; names of people, machines and sites on request.

Works on the facts, before anything is rendered, so that no view can leak. Always: credentials are removed, a path below
the results folder or this checkout becomes relative, a home becomes "~", any other absolute path "…/" and its last part.

With `enabled`: names of hosts and users, identities of machines, UUIDs, serial numbers, VBIOS versions, PCI, MAC and IP
addresses, container ids and the registries and mirrors of a private site become pseudonyms (host-1, GPU-2), the same in all
texts and all runs of a results folder. A name of one or two characters, or one that is a common word, is replaced in its own
field only. Fields of a workload's events that the wire schema doesn't have are left out.
"""

import getpass
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from torchmatrix.core import assets, settings
from torchmatrix.core.files import files_below
from torchmatrix.core.formatting import count
from torchmatrix.facts import lines
from torchmatrix.facts.environments import condition_of
from torchmatrix.facts.lines import Event, Lines
from torchmatrix.facts.store import Results, RunFolder
from torchmatrix.facts.wire import EVENTS, Reveals
from torchmatrix.reporting.redaction import schema
from torchmatrix.reporting.redaction.identities import Identities, Places, Pseudonyms, load, strings
from torchmatrix.reporting.redaction.secrets import GONE, MOST_CHARACTERS, each_without_secrets, is_secret_name, without_secrets

__all__ = ["Pseudonyms", "Redaction", "for_results", "redacted", "staged"]

_VOCABULARY = frozenset((
    "event", "kind", "phase", "vendor", "mode", "unit", "precision", "model", "backend", "statistic", "accelerator", "source",
    "variant", "compile_cache", "parallel", "requested", "matmul", "convolution", "device_name",
))  # fmt: skip
"""Fields with torchmatrix's vocabulary: they stay, even if a host has the same name."""
_IDENTITY_FIELDS = {
    "uuid": "GPU", "serial": "serial", "vbios": "VBIOS", "pci_bus": "PCI", "slice_of": "GPU", "board_id": "machine",
}  # fmt: skip
_NUMBERS: tuple[type, ...] = (int, float, type(None))
_IMAGES = ("image", "base", "tag", "reference", "digests", "index")
_identifier = lru_cache(4096)(without_secrets)


class Redaction:
    """Removes from texts and JSON values what must not be shown. `roots`: absolute folders and their replacements.
    It must learn names before it changes the texts that hold them; `staged` does so for a whole run.
    """

    def __init__(self, *, enabled: bool, roots: Mapping[str, str], names: Pseudonyms) -> None:
        self.enabled = enabled
        self._identities = Identities(names)
        self._places = Places(roots, enabled, lambda host: self._identities.of("mirror", host))
        self._done: dict[str, str] = {}
        self._words: dict[str, str] = {}
        self._forms = Identities(Pseudonyms())
        self.dropped: set[tuple[str, str]] = set()
        """The fields of events that the wire schema doesn't have, which `line` left out: (event, field)."""

    def know(self, kind: str, name: str) -> None:
        """Learn another name; `kind`: host, user or mirror."""
        self._identities.know(kind, name)
        self._done.clear()
        self._words.clear()

    def learn(self, event: Any) -> None:
        """Learn the names in a JSON value."""
        if not self.enabled:
            return
        for parent, key, whole in strings(event):
            text = whole[:MOST_CHARACTERS]
            kind = _kind_of(parent, key)
            if kind:
                self._identities.know(kind, text)
            if key in _IMAGES or (isinstance(parent, dict) and "FROM" in key.upper()):
                self._identities.learn_image(text)
            self._identities.learn_from(text)
        self._done.clear()
        self._words.clear()

    def text(self, text: str) -> str:
        """Redact a text."""
        shown = self._done.get(text)
        if shown is None:
            shown = without_secrets(text)
            shown = self._places.text(self._identities.text(shown) if self.enabled else shown)
            self._done[text] = shown
        return shown

    def host(self, name: str) -> str:
        """Redact a host's name."""
        return self._identities.of("host", name) if self.enabled else name

    def value(self, value: Any, key: str = "", parent: Any = None) -> Any:
        """Redact a JSON value; numbers, and the words of torchmatrix's vocabulary, stay."""
        if isinstance(value, str):
            return self._string(value, key, parent)
        if isinstance(value, dict):
            return {
                _identifier(name) if name.isidentifier() else self.text(name): self._member(name, member, value)
                for name, member in value.items()
            }
        if isinstance(value, (list, tuple)) and not all(isinstance(member, _NUMBERS) for member in value):
            is_of_texts = len(value) > 1 and all(isinstance(member, str) for member in value)
            members = each_without_secrets(value) if is_of_texts else value
            return type(value)(self.value(member, key, parent) for member in members)
        return value

    def line(self, event: Event) -> Event:
        """Redact a line; if enabled, without the fields of a workload's event that the wire schema doesn't have."""
        struct = EVENTS.get(event["event"])
        if struct is None or not self.enabled:
            redacted_line: Event = self.value(event)
            return redacted_line
        shown: Event = self._declared(event, struct, event["event"])
        return {"event": event["event"], **shown}

    def _declared(self, value: Any, struct: type, event: str) -> Any:
        """Redact the declared fields of a struct, or of each in a list, and leave the others out."""
        if isinstance(value, list):
            return [self._declared(member, struct, event) for member in value]
        if not isinstance(value, dict):
            return self.value(value)
        fields = schema.fields_of(struct)
        self.dropped |= {(event, name) for name in value.keys() - fields.keys() - {"event"}}
        return {name: self._field(fields[name], name, value, event) for name in value if name in fields}

    def _field(self, field: schema.Field, name: str, parent: Event, event: str) -> Any:
        """Redact a declared field by what it may reveal."""
        if field.struct:
            return self._declared(parent[name], field.struct, event)
        if field.reveals is Reveals.NOTHING and not is_secret_name(name):
            return self._term(parent[name])
        return self._member(name, parent[name], parent)

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

    def _member(self, name: str, member: Any, parent: Any) -> Any:
        if is_secret_name(name) or (name == "value" and is_secret_name(str(parent.get("name", "")))):
            return _without_texts(member)
        if self.enabled and name in _IDENTITY_FIELDS and isinstance(member, int):
            return self._identities.of(_IDENTITY_FIELDS[name], str(member))
        return member if isinstance(member, _NUMBERS) else self.value(member, name, parent)

    def _string(self, text: str, key: str, parent: Any) -> str:
        if key in _VOCABULARY or (key == "name" and _is_device(parent)):
            return self._word(text)
        kind = _kind_of(parent, key) if self.enabled else None
        return self._identities.of(kind, text) if kind else self.text(text)


def _without_texts(value: Any) -> Any:
    """Redact the value of a telling name: "…" for a text or number; for an object or list, for the texts in it."""
    if isinstance(value, dict):
        return {name: member if isinstance(member, _NUMBERS) else _without_texts(member) for name, member in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(member if isinstance(member, _NUMBERS) else _without_texts(member) for member in value)
    return value if isinstance(value, (bool, type(None))) else GONE


def for_results(results: Results, enabled: bool, names: Pseudonyms) -> Redaction:
    """Return the redaction for publishing the runs of a results folder from this machine, by this user, at this site."""
    roots = {str(root): "results" for root in (results.root, results.root.resolve())}
    roots |= {str(assets.ROOT): ".", str(Path.home()): "~"}
    redaction = Redaction(enabled=enabled, roots=roots, names=names)
    with suppress(OSError, KeyError):  # no such user in a container
        redaction.know("user", getpass.getuser())
    for address in settings.load().mirrors.values():
        redaction.know("mirror", re.sub(r"^\w+://", "", address).partition("/")[0].partition(":")[0])
    return redaction


def redacted(results: Results, run: RunFolder, root: Path, tell: Callable[[str], None]) -> RunFolder:
    """Copy a run's facts below `root` with pseudonyms, which are stored for the next time; tell of fields that are left out.

    Raises EngineUnusable.
    """
    names = load(results.root)
    cleaner = for_results(results, True, names)
    copy = staged(run, cleaner, root)
    names.save(results.root)
    tell_dropped(cleaner, tell)
    return copy


def tell_dropped(cleaner: Redaction, tell: Callable[[str], None]) -> None:
    """Tell once how many fields were left out because the wire schema doesn't have them."""
    if cleaner.dropped:
        tell(f"{count(len(cleaner.dropped), 'field')} that torchmatrix doesn't know left out: nobody can say what is in them")


def cleaned(run: RunFolder, root: Path) -> RunFolder:
    """Copy a run's facts below `root` without credentials and absolute paths, with all names as they are."""
    results = Results(run.path.parent.parent)
    return staged(run, for_results(results, False, load(results.root)), root)


def staged(run: RunFolder, redaction: Redaction, root: Path, logs: bool = False) -> RunFolder:
    """Copy a run's facts, redacted, below `root` (as HOST/RUN); `logs`: with what was printed.
    A truncated line is left out. The names of folders and files change in the same way as the cells' ids in them.
    """
    redaction.know("host", run.path.parent.name)
    paths = [path for path in files_below(run.path) if path.suffix == ".jsonl"]
    for path in paths:
        for event in _events_with_names(path):
            redaction.learn(event)
    target = RunFolder(root / redaction.host(run.path.parent.name) / redaction.text(run.id))
    for path in paths:
        content = lines.read(path)
        damage = content.damage if path == run.record else content.damage_of_launch
        _put(target.path / _shown(path, run, redaction), _redacted(content, damage, redaction))
    endings = (".lock", ".log") if logs else (".lock",)
    for path in (path for path in files_below(run.path) if path.suffix in endings):
        shown = redaction.text(path.read_text(encoding="utf-8", errors="replace"))
        _put(target.path / _shown(path, run, redaction), shown.encode())
    return target


def _redacted(content: Lines, damage: str | None, redaction: Redaction) -> bytes:
    """Return the redacted lines; their checksums vouch for no more than those of the facts did."""
    damages = [{"event": lines.DAMAGED, "reason": damage}] if damage else []
    return lines.packed([*damages, *map(redaction.line, content.events)], checksums=content.verified)


def _kind_of(parent: Any, key: str) -> str | None:
    """Return the kind of name that a field holds."""
    if not isinstance(parent, dict):
        return None
    is_host = "kernel" in parent or parent.get("event") == "node"
    if (key == "name" and is_host) or (key == "Name" and "ServerVersion" in parent):
        return "host"
    if key == "machine" and parent.get("event") in ("run", "launch", "node"):
        return "machine"
    condition = condition_of(key) if " " in key else None
    return (condition.kind or None) if condition else _IDENTITY_FIELDS.get(key)


def _is_device(parent: Any) -> bool:
    """Check whether an object's name is that of a product, as vendors write it."""
    return isinstance(parent, dict) and "kernel" not in parent and not {"uuid", "memory_bytes", "isa"}.isdisjoint(parent)


def _events_with_names(path: Path) -> Iterator[Event]:
    """Yield the events that can hold names; of the telemetry, those that name other people's processes."""
    for event in lines.read(path).events:
        kind = event["event"]
        may_name = (
            schema.may_name(EVENTS[kind]) if kind in EVENTS else kind != "telemetry" or _names_others(event.get("readings"))
        )
        if may_name:
            yield event


def _names_others(readings: Any) -> bool:
    """Check whether readings name other people's processes; malformed ones may."""
    if type(readings) is not list:
        return readings is not None
    return any(type(reading) is not dict or "foreign" in reading for reading in readings)


def _shown(path: Path, run: RunFolder, redaction: Redaction) -> Path:
    return Path(*(redaction.text(part) for part in path.relative_to(run.path).parts))


def _put(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
