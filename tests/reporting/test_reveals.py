"""Redaction by the wire schema: every field says what it may reveal, and a field that no event declares is not published."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import pytest
from msgspec import Struct

from support.records import write_run
from torchmatrix.engines.containment import Limits
from torchmatrix.engines.docker import INFO_KEYS
from torchmatrix.engines.engine import Isolation
from torchmatrix.facts import lines, reveals
from torchmatrix.facts.reveals import HOST_LINES
from torchmatrix.facts.store import Results
from torchmatrix.facts.wire import EVENTS, shape_of
from torchmatrix.machine.cpu import CoreGroup
from torchmatrix.machine.host import Gpu, Host
from torchmatrix.machine.telemetry import amd, nvidia
from torchmatrix.matrix.factors import FACTORS
from torchmatrix.matrix.method import Method
from torchmatrix.matrix.stacks import Index, Stack
from torchmatrix.planning.plan import GpuSet
from torchmatrix.reporting import redaction
from torchmatrix.reporting.redaction import Pseudonyms, Redaction
from torchmatrix.running.readiness import Ready

UUID = "GPU-5eed1234-0000-4000-8000-00000000abcd"
TOKEN = "hf_" + "aB3dE5fG7h" * 4
PLANT = f"/mnt/tank/secret-project/x.py gpubox7.acme.example alicesmith@gpubox7 {UUID} HF_TOKEN={TOKEN}"
PLANTED = ("/mnt/tank", "secret-project", "gpubox7", "acme", "alicesmith", UUID, UUID[4:], TOKEN)


def cleaner() -> Redaction:
    made = Redaction(enabled=True, roots={}, names=Pseudonyms())
    made.know("host", "gpubox7")
    made.know("user", "alicesmith")
    return made


def filled(kind: Any) -> Any:
    """Return a value with the planted text wherever a type can hold a text; None if it can hold none."""
    arguments = get_args(kind)
    if get_origin(kind) is Annotated:
        return filled(shape_of(kind) or arguments[0])
    if kind in (str, Any):
        return PLANT
    if isinstance(kind, type) and issubclass(kind, Struct):
        return {name: filled(hint) for name, hint in hints_of(kind).items()}
    if get_origin(kind) is Literal or not arguments:
        return None
    if "Mapping" in str(get_origin(kind)) or get_origin(kind) is dict:
        return {PLANT: filled(arguments[1]), "key": filled(arguments[1])}
    inner = next((value for value in map(filled, arguments) if value is not None), None)
    return [inner] if inner is not None and get_origin(kind) in (list, tuple) else inner


def hints_of(struct: type[Struct]) -> dict[str, Any]:
    hints = get_type_hints(struct, include_extras=True)
    return dict(zip(struct.__struct_encode_fields__, map(hints.get, struct.__struct_fields__), strict=True))


LINES = {**EVENTS, **HOST_LINES}
FIELDS = [
    (kind, name, filled(hint)) for kind, struct in LINES.items() for name, hint in hints_of(struct).items() if name != "facts"
]


@pytest.mark.parametrize("kind", LINES)
def test_every_field_that_can_hold_a_text_says_what_it_may_reveal(kind: str) -> None:
    assert reveals.fields_of(kind)


def test_a_field_with_a_text_and_no_class_is_refused() -> None:
    class Bare(Struct):
        name: str | None = None

    class Wild(Struct):
        names: dict[str, int] = {}

    for struct in (Bare, Wild):
        with pytest.raises(TypeError, match="may hold texts"):
            reveals.fields_of_struct(struct)


@pytest.mark.parametrize(("kind", "name", "value"), [field for field in FIELDS if field[2] is not None])
def test_no_planted_word_survives_in_any_field_of_any_event(kind: str, name: str, value: Any) -> None:
    event = {"event": kind, name: value}
    redacts = cleaner()
    redacts.learn_line(event)
    shown = repr(redacts.line(event)).lower()
    assert name in shown
    assert not [word for word in PLANTED if word.lower() in shown]


def test_a_uuid_alone_gets_a_pseudonym_and_words_stay_though_a_host_has_their_name() -> None:
    redacts = cleaner()
    redacts.know("host", "nccl")
    device = {"name": "NVIDIA H200", "uuid": UUID[4:], "memory_bytes": 1}
    shown = redacts.line({"event": "setup", "backend": "nccl", "devices": [device]})
    assert shown == {"event": "setup", "backend": "nccl", "devices": [device | {"uuid": "GPU-1"}]}


def test_a_field_that_no_event_declares_is_left_out_and_named_once(tmp_path: Path) -> None:
    secret = "swordfish"
    unknown = {"event": "done", "note": secret, "serial_of_all": 77_123_456}
    host = {"cpu": "EPYC", "cores": [0], "owner": secret, "gpus": [{"name": "NVIDIA H200", "owner": secret}]}
    device = {"event": "setup", "devices": [{"name": "cpu", "label": secret}]}
    run = write_run(tmp_path / "results", [{"told": [device, unknown], "host": host}, {"told": [device]}])
    run.append("weather", sun=secret)
    texts: list[str] = []
    copy, _ = redaction.redacted(Results(tmp_path / "results"), run, tmp_path / "copy", texts.append)
    content = b"".join(path.read_bytes() for path in copy.path.rglob("*.jsonl"))
    assert secret.encode() not in content and b"77123456" not in content and b'"cpu"' in content
    assert b"EPYC" in content and b"weather" not in content
    assert texts == ["7 fields that torchmatrix doesn't know left out: nobody can say what is in them"]


@pytest.mark.parametrize(("event", "name"), [("launch", "host"), ("exit", "returncode"), ("launch", "unix_seconds")])
def test_a_text_where_a_number_or_an_object_is_declared_is_left_out(tmp_path: Path, event: str, name: str) -> None:
    run = write_run(tmp_path / "results", [{}])
    (path,) = run.path.rglob("round*.jsonl")
    events = [line | ({name: "codename swordfish"} if line["event"] == event else {}) for line in lines.read(path).events]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in events))
    copy, _ = redaction.redacted(Results(tmp_path / "results"), run, tmp_path / "copy", print)
    (copied,) = copy.path.rglob("round*.jsonl")
    assert "swordfish" not in copied.read_text() and any(line.get(name) == "…" for line in lines.read(copied).events)


def test_without_redact_unknown_fields_stay_and_lose_their_credentials(tmp_path: Path) -> None:
    remarks = [{"event": "remarks", "texts": [], "note": f"HF_TOKEN={TOKEN}", "more": "kept"}]
    run = write_run(tmp_path / "results", [{"told": remarks}])
    copy = redaction.staged(run, redaction.for_results(Results(tmp_path / "results"), False, Pseudonyms()), tmp_path / "staged")
    events = [event for path in copy.path.rglob("round*.jsonl") for event in lines.read(path).events]
    assert {"note": "HF_TOKEN=…", "more": "kept"}.items() <= next(e for e in events if e["event"] == "remarks").items()


def names(record: type) -> set[str]:
    return {field.name for field in fields(record)}


_WORKLOAD = {"id", "name", "unit", "device", "batch_for", "explain", "stacks", "counts", "own"}


@pytest.mark.parametrize(
    ("line", "path", "recorded"),
    [
        ("launch", "host", names(Host) - {"machine"}),
        ("run", "host.gpus", names(Gpu)),
        ("node", "host.core_groups", names(CoreGroup)),
        ("launch", "gpus", {*names(GpuSet), "label"}),
        ("launch", "stack", names(Stack)),
        ("launch", "stack.indexes", names(Index)),
        ("launch", "method", {*names(Method), "parallel"}),
        ("launch", "workload", {factor.name for factor in FACTORS} | _WORKLOAD),
        ("launch", "engine", {"engine", "client", *INFO_KEYS}),
        ("launch", "start", names(Ready)),
        ("launch", "started", {*Limits().as_facts(), *Isolation(network="none").as_facts(), "compile_cache", "variables"}),
        ("telemetry", "readings", {"device", "error", "foreign", *nvidia._FIELDS, *amd._PATHS} - {"processes"}),
    ],
)
def test_what_is_recorded_is_declared(line: str, path: str, recorded: set[str]) -> None:
    """Without that, a redacted run would become poorer with a new field."""
    declared = reveals.fields_of(line) or {}
    for name in path.split("."):
        declared = declared[name].fields or {}
    assert recorded <= set(declared)
