"""A published site: it works from anywhere, says nothing that it must not, and grows without touching what is there."""

import io
import json
import re
import shutil
import tarfile
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from test_redaction import PLANTED, leaks, planted_run

from records import write_run
from torchmatrix.facts.store import Results, RunFolder
from torchmatrix.ground.errors import BadInput
from torchmatrix.reporting import site


def add_run(root: Path, run: str = "20260101T000000Z", host: str = "testhost", **more: Any) -> RunFolder:
    """A run of one cell with two launches under `root`/`host`/`run`."""
    about = {"name": host, "cpu": "Test CPU", "gpus": [], "cores": [0], "kernel": "6.1"}
    made = write_run(root / ".making", [{"rate": 100.0}, {"rate": 101.0}], **{"host": about, **more})
    folder = root / host / run
    folder.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(made.path, folder)
    shutil.rmtree(root / ".making")
    return RunFolder(folder)


def publish(root: Path, target: Path, redact: bool = False) -> site.Site:
    results = Results(root)
    return site.publish(results, results.runs(), target, redact=redact)


def contents(target: Path) -> dict[str, bytes]:
    return {path.relative_to(target).as_posix(): path.read_bytes() for path in target.rglob("*") if path.is_file()}


def times(target: Path) -> dict[str, int]:
    return {path.relative_to(target).as_posix(): path.stat().st_mtime_ns for path in target.rglob("*") if path.is_file()}


def addresses(html: str) -> Iterator[str]:
    class Links(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.found: list[str] = []

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            self.found += [value or "" for name, value in attrs if name in ("href", "src", "action", "poster", "data")]

    links = Links()
    links.feed(html)
    return iter(links.found)


def test_a_site_has_an_index_and_a_permalink_for_each_run_with_its_data(tmp_path: Path) -> None:
    add_run(tmp_path / "r"), add_run(tmp_path / "r", "20260102T000000Z")
    made = publish(tmp_path / "r", tmp_path / "site")
    assert made.written == ("20260101T000000Z", "20260102T000000Z") and made.kept == ()
    index = made.index.read_text()
    assert index.index("20260102T000000Z") < index.index("20260101T000000Z")  # the newest first
    assert "Test CPU" in index and "stack-a" in index and "1 of 1" in index
    held = contents(tmp_path / "site")
    for name in ("index.html", "facts.tar.gz", "tables/cells.csv", "tables/launches.csv", "tables/columns.csv", "run.json"):
        assert f"runs/20260101T000000Z/{name}" in held
    with tarfile.open(fileobj=io.BytesIO(held["runs/20260101T000000Z/facts.tar.gz"])) as tar:
        assert "20260101T000000Z/run.jsonl" in tar.getnames()


def test_every_link_is_relative_and_leads_to_a_file(tmp_path: Path) -> None:
    add_run(tmp_path / "r"), add_run(tmp_path / "r", "2026 #1 ?%41")
    publish(tmp_path / "r", tmp_path / "site")
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) >= 3
    for page in pages:
        for address in addresses(page.read_text()):
            if address.startswith(("#", "data:", "https://")):  # an article of a preset is a link out, and loads nothing
                continue
            assert not re.match(r"[a-z]+:|/", address), address
            assert (page.parent / unquote(address.partition("#")[0])).is_file(), address


def test_no_page_loads_anything_and_no_file_names_the_machines_folders(tmp_path: Path) -> None:
    add_run(tmp_path / "r", command=f"torchmatrix run --results {tmp_path}/r")
    publish(tmp_path / "r", tmp_path / "site")
    for name, content in contents(tmp_path / "site").items():
        assert str(tmp_path).encode() not in content and str(Path.home()).encode() + b"/" not in content, name
    index = (tmp_path / "site" / "index.html").read_text()
    assert not re.search(r"""(?:src|@import|url\()\s*=?\s*["']?https?:""", index)


def test_publishing_again_writes_only_what_changed(tmp_path: Path) -> None:
    run = add_run(tmp_path / "r")
    publish(tmp_path / "r", tmp_path / "site")
    before = times(tmp_path / "site")
    again = publish(tmp_path / "r", tmp_path / "site")
    assert again.kept == ("20260101T000000Z",) and times(tmp_path / "site") == before
    add_run(tmp_path / "r", "20260103T000000Z")
    run.append("run-exit", complete=True)
    third = publish(tmp_path / "r", tmp_path / "site")
    assert third.written == ("20260101T000000Z", "20260103T000000Z")
    assert "20260103T000000Z" in (tmp_path / "site" / "index.html").read_text()
    untouched = [name for name, time in times(tmp_path / "site").items() if before.get(name) == time]
    assert "runs/20260101T000000Z/tables/cells.csv" in untouched  # the same content isn't written again


def test_permalinks_of_runs_that_are_gone_stay_and_foreign_files_too(tmp_path: Path) -> None:
    add_run(tmp_path / "r"), add_run(tmp_path / "r", "20260102T000000Z")
    target = tmp_path / "site"
    publish(tmp_path / "r", target)
    (target / "CNAME").write_text("bench.example")
    (target / "runs" / "20260101T000000Z" / "comment.txt").write_text("mine")
    shutil.rmtree(tmp_path / "r" / "testhost" / "20260101T000000Z")
    publish(tmp_path / "r", target)
    assert (target / "CNAME").read_text() == "bench.example" and (target / "runs/20260101T000000Z/comment.txt").exists()
    assert 'href="runs/20260101T000000Z/index.html"' in (target / "index.html").read_text()


def test_runs_of_one_id_on_two_hosts_keep_their_addresses(tmp_path: Path) -> None:
    add_run(tmp_path / "r", host="beta")
    publish(tmp_path / "r", tmp_path / "site")
    plain = (tmp_path / "site/runs/20260101T000000Z/index.html").read_bytes()
    add_run(tmp_path / "r", host="alpha")
    made = publish(tmp_path / "r", tmp_path / "site")
    assert made.written == ("20260101T000000Z-2",)
    assert (tmp_path / "site/runs/20260101T000000Z/index.html").read_bytes() == plain


@pytest.mark.parametrize("name", ["..evil", "a b", "<script>", "ünï", "-", "x" * 200, "con?x=1&y", "%2e%2e"])
def test_an_address_is_safe_whatever_the_run_is_called(tmp_path: Path, name: str) -> None:
    add_run(tmp_path / "r", name)
    made = publish(tmp_path / "r", tmp_path / "site")
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}", made.written[0])
    assert (tmp_path / "site" / "runs" / made.written[0] / "index.html").exists()


def test_a_folder_with_another_index_is_refused(tmp_path: Path) -> None:
    add_run(tmp_path / "r")
    target = tmp_path / "site"
    target.mkdir()
    (target / "index.html").write_text("my homepage")
    with pytest.raises(BadInput, match="isn't ours"):
        publish(tmp_path / "r", target)
    assert contents(target) == {"index.html": b"my homepage"}


def test_several_runs_have_a_page_of_their_history(tmp_path: Path) -> None:
    add_run(tmp_path / "r")
    publish(tmp_path / "r", tmp_path / "site")
    assert not (tmp_path / "site/history.html").exists()
    add_run(tmp_path / "r", "20260102T000000Z")
    publish(tmp_path / "r", tmp_path / "site")
    assert 'href="history.html"' in (tmp_path / "site/index.html").read_text()
    history = (tmp_path / "site/history.html").read_text()
    assert 'href="index.html"' in history and "stack-a" in history
    shutil.rmtree(tmp_path / "r/testhost/20260101T000000Z")
    publish(tmp_path / "r", tmp_path / "site")
    assert not (tmp_path / "site/history.html").exists() and "history.html" not in (tmp_path / "site/index.html").read_text()


def test_no_planted_word_is_in_any_byte_of_a_redacted_site(tmp_path: Path) -> None:
    run = planted_run(tmp_path / "gpubox7-results")
    shutil.copytree(run.path, run.path.with_name("20260102T000000Z-gpubox7"))
    publish(tmp_path / "gpubox7-results", tmp_path / "site", redact=True)
    found = 0
    for name, content in contents(tmp_path / "site").items():
        assert not leaks(name.encode()) and not leaks(content), name
        if name.endswith(".tar.gz"):
            with tarfile.open(fileobj=io.BytesIO(content)) as tar:
                for member in tar:
                    held = tar.extractfile(member)
                    assert held is not None and not leaks(held.read()) and not leaks(member.name.encode())
                    found += 1
    assert found == 10  # of each run run.jsonl, three launches, a lock
    assert "user-" in (tmp_path / "site" / "history.html").read_text()
    index = (tmp_path / "site" / "index.html").read_text()
    assert "host-1" in index and "NVIDIA H200" in index and "Pseudonyms" in index


def test_without_redact_no_credential_and_no_absolute_path_is_published(tmp_path: Path) -> None:
    planted_run(tmp_path / "r")
    publish(tmp_path / "r", tmp_path / "site")
    words = {name: PLANTED[name] for name in ("token", "mount")}
    assert not [name for name, content in contents(tmp_path / "site").items() if leaks(content, words) or b"/home/" in content]


def test_pseudonyms_are_the_same_after_more_runs_and_are_never_published(tmp_path: Path) -> None:
    add_run(tmp_path / "r", "20260102T000000Z", host="zetabox")
    publish(tmp_path / "r", tmp_path / "site", redact=True)
    first = (tmp_path / "site/runs/20260102T000000Z/run.json").read_bytes()
    assert b'"host-1"' in first
    add_run(tmp_path / "r", "20260101T000000Z", host="deltabox")
    publish(tmp_path / "r", tmp_path / "site", redact=True)
    held = contents(tmp_path / "site")
    assert held["runs/20260102T000000Z/run.json"] == first and b'"host-2"' in held["runs/20260101T000000Z/run.json"]
    secret = json.loads((tmp_path / "r" / ".pseudonyms.json").read_text())["secret"].encode()
    assert not [name for name, content in held.items() if secret in content or b"zetabox" in content or b"deltabox" in content]


def test_redacted_and_other_pages_never_stand_side_by_side(tmp_path: Path) -> None:
    add_run(tmp_path / "r")
    publish(tmp_path / "r", tmp_path / "open")
    publish(tmp_path / "r", tmp_path / "closed", redact=True)
    with pytest.raises(BadInput, match="redacted site"):
        publish(tmp_path / "r", tmp_path / "closed")
    publish(tmp_path / "r", tmp_path / "open", redact=True)  # all its pages are written again
    assert not [name for name, content in contents(tmp_path / "open").items() if b"testhost" in content]
    add_run(tmp_path / "other", "20260105T000000Z")
    publish(tmp_path / "other", tmp_path / "mixed")
    with pytest.raises(BadInput, match="without --redact"):
        publish(tmp_path / "r", tmp_path / "mixed", redact=True)


def test_hostile_texts_are_inert_in_the_index(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    about = {"name": evil, "cpu": evil, "gpus": [{"name": evil, "uuid": "GPU-0"}], "cores": [], "kernel": "6"}
    made = write_run(tmp_path / "r", [{"stack": "x", "outcome": "crashed", "error": evil}], host=about, command=evil)
    assert made.record.exists()
    publish(tmp_path / "r", tmp_path / "site")
    index = (tmp_path / "site" / "index.html").read_text()
    assert "<script>alert" not in index and "&lt;script&gt;alert" in index
