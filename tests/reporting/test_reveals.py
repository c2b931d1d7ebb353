"""Redaction by the wire schema: every field says what it may reveal, and a field that no event declares is not published."""

from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import pytest
from msgspec import Struct

from support.records import write_run
from torchmatrix.facts import lines
from torchmatrix.facts.store import Results
from torchmatrix.facts.wire import EVENTS
from torchmatrix.reporting import redaction
from torchmatrix.reporting.redaction import Pseudonyms, Redaction, schema

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
        return filled(arguments[0])
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


FIELDS = [(kind, name, hint) for kind, struct in EVENTS.items() for name, hint in hints_of(struct).items()]


@pytest.mark.parametrize("kind", EVENTS)
def test_every_field_that_can_hold_a_text_says_what_it_may_reveal(kind: str) -> None:
    assert schema.fields_of(EVENTS[kind])


def test_a_field_with_a_text_and_no_class_is_refused() -> None:
    class Bare(Struct):
        name: str | None = None

    class Wild(Struct):
        names: dict[str, int] = {}

    for struct in (Bare, Wild):
        with pytest.raises(TypeError, match="may hold texts"):
            schema.fields_of(struct)


@pytest.mark.parametrize(("kind", "name", "value"), [(k, n, v) for k, n, hint in FIELDS if (v := filled(hint)) is not None])
def test_no_planted_word_survives_in_any_field_of_any_event(kind: str, name: str, value: Any) -> None:
    event = {"event": kind, name: value}
    redacts = cleaner()
    redacts.learn(event)
    shown = repr(redacts.line(event)).lower()
    assert not [word for word in PLANTED if word.lower() in shown]


def test_a_uuid_alone_gets_a_pseudonym_and_words_stay_though_a_host_has_their_name() -> None:
    redacts = cleaner()
    redacts.know("host", "nccl")
    device = {"name": "NVIDIA H200", "uuid": UUID[4:], "memory_bytes": 1}
    shown = redacts.line({"event": "setup", "backend": "nccl", "devices": [device]})
    assert shown == {"event": "setup", "backend": "nccl", "devices": [device | {"uuid": "GPU-1"}]}


def test_a_field_that_no_event_declares_is_left_out_and_told_once(tmp_path: Path) -> None:
    secret = "swordfish"
    unknown = {"event": "done", "note": secret, "serial_of_all": 77_123_456}
    device = {"event": "setup", "devices": [{"name": "cpu", "label": secret}]}
    run = write_run(tmp_path / "results", [{"told": [device, unknown]}, {"told": [device]}])
    texts: list[str] = []
    copy = redaction.redacted(Results(tmp_path / "results"), run, tmp_path / "copy", texts.append)
    content = b"".join(path.read_bytes() for path in copy.path.rglob("*.jsonl"))
    assert secret.encode() not in content and b"77123456" not in content and b'"cpu"' in content
    assert texts == ["3 fields that torchmatrix doesn't know left out: nobody can say what is in them"]


def test_without_redact_unknown_fields_stay_and_lose_their_credentials(tmp_path: Path) -> None:
    told = [{"event": "remarks", "texts": [], "note": f"HF_TOKEN={TOKEN}", "more": "kept"}]
    run = write_run(tmp_path / "results", [{"told": told}])
    copy = redaction.staged(run, redaction.for_results(Results(tmp_path / "results"), False, Pseudonyms()), tmp_path / "staged")
    events = [event for path in copy.path.rglob("round*.jsonl") for event in lines.read(path).events]
    assert {"note": "HF_TOKEN=…", "more": "kept"}.items() <= next(e for e in events if e["event"] == "remarks").items()
