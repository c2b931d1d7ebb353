"""A published site: it works from anywhere, reveals nothing that it must not, and grows without touching older files."""

import hashlib
import io
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest
from test_redaction import PLANTED, leaks, planted_run

from support import PATIENCE_SECONDS, invented
from support.records import nights, write_run
from torchmatrix.analysis import facts_cache, history, machines, prices
from torchmatrix.core.errors import BadInput
from torchmatrix.facts import lines
from torchmatrix.facts.store import Results, RunFolder
from torchmatrix.reporting import exports, redaction
from torchmatrix.reporting.redaction import identities
from torchmatrix_plugins import publish as site
from torchmatrix_plugins.publish.front import atom_feed, badge_address
from torchmatrix_plugins.publish.pages import ABOUT, read_page


def add_run(root: Path, run: str = "20260101T000000Z", host: str = "testhost", **more: Any) -> RunFolder:
    """Write a run of one cell with two launches under `root`/`host`/`run`."""
    about = {"name": host, "cpu": "Test CPU", "gpus": [], "cores": [0], "kernel": "6.1"}
    made = write_run(root / ".making", [{"rate": 100.0}, {"rate": 101.0}], **{"host": about, "run": run, "key": run, **more})
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


def test_the_front_page_of_one_machine_begins_with_the_answers_of_its_newest_complete_run(tmp_path: Path) -> None:
    add_run(tmp_path / "r"), add_run(tmp_path / "r", "20260102T000000Z")
    made = publish(tmp_path / "r", tmp_path / "site")
    newest = json.loads((tmp_path / "site/runs/20260102T000000Z/run.json").read_text())["answers"]
    index, (first, *_) = made.index.read_text(), newest["answers"]
    assert newest["lead"] in index and first["figure"] in index
    assert f'href="runs/20260102T000000Z/index.html#{first["chart"]}"' in index
    (tmp_path / "site/runs/20260102T000000Z/run.json").write_text(
        '{"complete": true, "started_unix_seconds": 9e9, "answers": 7}'
    )
    assert front_of(tmp_path).count("class=tile") == 0, "what an older version or somebody else wrote has no answers"


def test_the_front_page_warns_as_the_runs_page_does_and_reads_answers_that_lack_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_run(tmp_path / "r")
    monkeypatch.setattr(
        sys.modules["torchmatrix.reporting.overview.answers"], "levels_in_words", lambda jump: "Launches lie in two levels."
    )
    made = publish(tmp_path / "r", tmp_path / "site")
    assert "<p class=notice>Launches lie in two levels.</p>" in made.index.read_text()
    kept = tmp_path / "site/runs/20260101T000000Z/run.json"
    kept.write_text(json.dumps(json.loads(kept.read_text()) | {"answers": {"lead": "Older words."}}))
    assert "Older words." in front_of(tmp_path)


def front_of(folder: Path) -> str:
    add_run(folder / "r", "20251231T000000Z")
    return publish(folder / "r", folder / "site").index.read_text()


def test_programs_find_every_runs_facts_with_their_size_and_digest(tmp_path: Path) -> None:
    add_run(tmp_path / "r", "20260102T000000Z", host="beta"), add_run(tmp_path / "r", host="alpha")
    add_run(tmp_path / "r", "20260102T000000Z", host="alpha")
    publish(tmp_path / "r", tmp_path / "site")
    held = json.loads((tmp_path / "site/site.json").read_text())
    assert held["format"] == 1 and held["redacted"] is False
    runs = [(entry["host"], entry["run"], entry["started_unix_seconds"]) for entry in held["runs"]]
    assert runs[0] == ("alpha", "20260101T000000Z", 1767225600.0) and {host for host, *_ in runs[1:]} == {"alpha", "beta"}
    assert len({entry["facts"]["address"] for entry in held["runs"]}) == 3
    for entry in held["runs"]:
        archive = (tmp_path / "site" / entry["facts"]["address"]).read_bytes()
        assert len(archive) == entry["facts"]["bytes"] and hashlib.sha256(archive).hexdigest() == entry["facts"]["sha256"]
        cells = json.loads((tmp_path / "site" / entry["tables"] / "cells.json").read_text())
        assert [cell["items_per_second"] for cell in cells] == [100.5]
        assert (tmp_path / "site" / entry["page"]).is_file() and (tmp_path / "site" / entry["tables"] / "cells.csv").is_file()


def test_the_front_page_of_two_machines_compares_them_and_lists_what_is_newest(tmp_path: Path) -> None:
    h100 = {"name": "NVIDIA H100 80GB HBM3", "uuid": "GPU-0"}
    b200 = {"name": "NVIDIA B200", "uuid": "GPU-1"}
    for night in ("20260101T000000Z", "20260102T000000Z"):
        for host, gpu, rate in (("alpha", h100, 100.0), ("beta", b200, 200.0)):
            launches = [{"rate": rate, "device": gpu["name"]}, {"rate": rate + 1, "device": gpu["name"]}]
            write_run(tmp_path / "r", launches, run=night, folder=host, host={"name": host, "gpus": [gpu], "cores": [0]})
    made = publish(tmp_path / "r", tmp_path / "site")
    index = made.index.read_text()
    assert 'id="relative"' in index and "H100 SXM5 80GB" in index and "B200" in index
    for host in ("alpha", "beta"):
        assert f"{host}: 1 cell" in index
    assert 'href="runs/20260102T000000Z/index.html"' in index and "resnet50" in index
    assert 'href="changes.xml"' in index and 'href="history.html"' in index
    for name in ("relative", "relative_means", "not_compared", "machine_scaling", "machines", "machine_gpus", "machine_cells"):
        table = json.loads((tmp_path / f"site/tables/{name}.json").read_text())
        assert len(table) == len((tmp_path / f"site/tables/{name}.csv").read_text().splitlines()) - 1, name
        assert f'href="tables/{name}.json"' in index
    cells = json.loads((tmp_path / "site/tables/machine_cells.json").read_text())
    assert {(row["machine"], row["items_per_second"]) for row in cells} == {("alpha", 100.5), ("beta", 200.5)}
    shutil.rmtree(tmp_path / "r/beta")
    publish(tmp_path / "r", tmp_path / "site")
    assert not list((tmp_path / "site/tables").iterdir())


@pytest.mark.parametrize("seed", range(8))
def test_machines_stay_apart_in_what_is_published_whatever_their_runs_know_of_them(tmp_path: Path, seed: int) -> None:
    """A run without an identity belongs to the machine of its folder, if there is one: other runs of the folder say so."""
    drawn = random.Random(seed)
    identities = [{}, {"machine": "a" * 16}, {"machine": "b" * 16}]
    for night in range(1, 8):
        folder, identity = (drawn.choice("cd"), drawn.choice(identities)) if night < 7 else ("e", {"machine": "e" * 16})
        launches = [{"rate": 100.0 + night}, {"rate": 101.0 + night}]
        write_run(tmp_path / "r", launches, run=f"2026010{night}T000000Z", folder=folder, **identity)
    results = Results(tmp_path / "r")
    chosen = machines.newest_complete(results.runs())
    for redact in (False, True):
        publish(tmp_path / "r", tmp_path / f"site-{redact}", redact)
        cells = json.loads((tmp_path / f"site-{redact}/tables/machine_cells.json").read_text())
        assert sorted(row["items_per_second"] for row in cells) == sorted(float(each.run.id[7]) + 100.5 for each in chosen)
        assert len({row["machine"] for row in cells}) == len(chosen) > 1
    with redaction.redacting(results, print) as cleaner:
        copies = redaction.staged_choice(chosen, cleaner, tmp_path / "copies")
    assert [copy.run.id for copy in copies] == [choice.run.id for choice in chosen]
    assert [copy.machine.verified for copy in copies] == [choice.machine.verified for choice in chosen]
    assert not {copy.machine.id for copy in copies} & {choice.machine.id for choice in chosen}


def test_the_tables_of_the_front_page_and_of_the_history_are_there_as_json(tmp_path: Path) -> None:
    add_run(tmp_path / "r"), add_run(tmp_path / "r", "20260102T000000Z")
    index = publish(tmp_path / "r", tmp_path / "site").index
    front = json.loads((tmp_path / "site/front.json").read_text())
    assert [row["run"] for row in front["rows"]] == ["20260102T000000Z", "20260101T000000Z"] and len(front["nights"]) == 2
    assert front["models"][0]["model"] == "resnet50" and front["hosts"][0]["runs"] == 2
    (cell,) = json.loads((tmp_path / "site/history.json").read_text())
    assert len(cell["runs"]) == 2 and cell["changes"] == []
    assert 'href="front.json"' in index.read_text() and 'href="history.json"' in (tmp_path / "site/history.html").read_text()


def test_a_cell_without_a_figure_names_no_device_that_it_was_not_on(tmp_path: Path) -> None:
    write_run(tmp_path / "r", [{"outcome": "oom"}, {"stack": "b"}, {"vendor": "cpu", "model": "resnet18", "device": None}])
    publish(tmp_path / "r", tmp_path / "site")
    models = json.loads((tmp_path / "site/front.json").read_text())["models"]
    assert {row["model"]: row["devices"] for row in models} == {"resnet18": ["CPU"], "resnet50": ["NVIDIA H200"]}


def newest(target: Path) -> dict[str, dict[str, Any]]:
    return {row["cell"]: row for row in json.loads((target / "newest.json").read_text())}


def badge(target: Path, cell: str) -> str:
    """Return all text of a cell's badge, which must be XML that loads nothing."""
    text = (target / unquote(newest(target)[cell]["badge"])).read_text()
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "") and "<script" not in text
    return " | ".join(ElementTree.fromstring(text).itertext())


def test_a_badge_shows_the_newest_figure_and_none_of_a_failed_launch(tmp_path: Path) -> None:
    good, bad, gone = {"workload": "w-good"}, {"workload": "w-bad"}, {"workload": "w-gone"}
    first = [launch | {"rate": rate} for rate in (100.0, 102.0, 101.0) for launch in (good, bad, gone)]
    write_run(tmp_path / "r", first)
    write_run(tmp_path / "r", [good | {"rate": 200.0}, bad | {"rate": 200.0}, bad | {"outcome": "oom"}], run="20260201T000000Z")
    publish(tmp_path / "r", tmp_path / "site")
    held = newest(tmp_path / "site")
    states = {cell: (row["state"], row["throughput"], row["run"]) for cell, row in held.items()}
    assert states == {
        "stack-a/w-good/gpu0": ("ok", 200.0, "20260201T000000Z"),
        "stack-a/w-bad/gpu0": ("failed", None, "20260201T000000Z"),
        "stack-a/w-gone/gpu0": ("stale", 101.0, "20260101T000000Z"),
    }
    assert badge(tmp_path / "site", "stack-a/w-good/gpu0").endswith("w-good · gpu0 · stack-a | 200.0 images/s · 2026-02-01")
    failed = badge(tmp_path / "site", "stack-a/w-bad/gpu0")
    assert failed.endswith("failed: oom · 2026-02-01") and "/s" not in failed
    assert badge(tmp_path / "site", "stack-a/w-gone/gpu0").endswith("101.0 ± 2.2 images/s · stale, 2026-01-01")


def test_badges_of_all_names_have_addresses_of_their_own_inside_the_site(tmp_path: Path) -> None:
    names = ["../../../evil", "a b", "a-b", "<script>alert(1)</script>", "ünï", "con?x=1&y", "%2e%2e"]
    assert len({badge_address("host", name) for name in names} | {badge_address(n, "cell") for n in names}) == 14
    for name in names:
        assert re.fullmatch(r"badges(/[A-Za-z0-9_+][A-Za-z0-9._+-]*)+\.svg", badge_address(name, f"stack/{name}/gpu0"))
    made = write_run(tmp_path / "r", [{"workload": '<b>&\x07 "quoted"', "devices": (0, 1, 2, 3)}])
    publish(tmp_path / "r", tmp_path / "site")
    (cell,) = newest(tmp_path / "site")
    assert '<b>& "quoted" · gpu0–3 · stack-a' in " ".join(badge(tmp_path / "site", cell).split()) and made.record.exists()


def test_badges_that_others_show_stay_but_none_with_a_real_name_on_a_redacted_site(tmp_path: Path) -> None:
    write_run(tmp_path / "r", [{}], folder="realname")
    publish(tmp_path / "r", tmp_path / "site")
    old = tmp_path / "site/badges/realname/stack-a/resnet50-train-fp32-b4/gpu0.svg"
    assert old.exists()
    write_run(tmp_path / "r", [{"stack": "stack-b"}], folder="realname", run="20260102T000000Z")
    shutil.rmtree(tmp_path / "r/realname/20260101T000000Z")
    publish(tmp_path / "r", tmp_path / "site")
    assert old.exists()
    shutil.rmtree(tmp_path / "site/runs/20260101T000000Z")
    publish(tmp_path / "r", tmp_path / "site", redact=True)
    assert not [path for path in (tmp_path / "site").rglob("*.svg") if "realname" in path.as_posix()]
    assert (tmp_path / "site/badges/host-1/stack-b/resnet50-train-fp32-b4/gpu0.svg").exists()


ATOM = "{http://www.w3.org/2005/Atom}"


def checked(content: bytes) -> ElementTree.Element:
    """Check that the feed has what RFC 4287 requires of a feed and of each entry; return it parsed."""
    root = ElementTree.fromstring(content)
    assert root.tag == f"{ATOM}feed" and root.findtext(f"{ATOM}author/{ATOM}name")
    for element in (root, *root.findall(f"{ATOM}entry")):
        for tag in ("id", "title", "updated"):
            assert len(element.findall(ATOM + tag)) == 1 and element.findtext(ATOM + tag)
        assert re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", element.findtext(f"{ATOM}id", ""))
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", element.findtext(f"{ATOM}updated", ""))
        assert element.findall(f"{ATOM}link")
    return root


def feed_of(results: Results, count: int, secret: str = "s") -> ElementTree.Element:
    """Return the feed of the oldest `count` runs."""
    trends = history.trends(history.series(facts_cache.read(results, results.runs()[:count])))
    return checked(atom_feed(trends, {("testhost", "20260113T000000Z"): "runs/x/index.html"}, "history.html", 1.0, secret))


def test_changes_of_level_are_a_feed_whose_ids_stay(tmp_path: Path) -> None:
    for number, night in enumerate(nights(20)):
        rate = (100.0 if number < 12 else 90.0) + 0.1 * (number % 3)
        write_run(tmp_path, [{"rate": rate}, {"rate": rate + 0.05}], run=night)
    results = Results(tmp_path)
    assert feed_of(results, 11).findall(f"{ATOM}entry") == []
    (entry,) = feed_of(results, 18).findall(f"{ATOM}entry")
    assert "became 10 % slower" in entry.findtext(f"{ATOM}title", "") and "2026-01-13" in entry.findtext(f"{ATOM}title", "")
    assert entry.find(f"{ATOM}link").attrib["href"] == "runs/x/index.html"  # type: ignore[union-attr]
    (again,) = feed_of(results, 20).findall(f"{ATOM}entry")
    assert again.findtext(f"{ATOM}id") == entry.findtext(f"{ATOM}id") != feed_of(results, 20).findtext(f"{ATOM}id")
    assert again.findtext(f"{ATOM}id") != feed_of(results, 20, "another site's").findtext(f"{ATOM}entry/{ATOM}id")


def test_a_site_has_a_feed_from_its_first_run_on(tmp_path: Path) -> None:
    add_run(tmp_path / "r")
    publish(tmp_path / "r", tmp_path / "site")
    feed = checked((tmp_path / "site/changes.xml").read_bytes())
    assert feed.findtext(f"{ATOM}updated") == "2026-01-01T00:00:00Z"
    assert all((tmp_path / "site" / link.attrib["href"]).exists() for link in feed.iter(f"{ATOM}link"))


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


@pytest.mark.parametrize("damage", ["gone", "empty", "cut"])
def test_publishing_again_mends_files_that_are_gone_or_cut(tmp_path: Path, damage: str) -> None:
    for night in nights(2):
        add_run(tmp_path / "r", night)
    publish(tmp_path / "r", tmp_path / "site")
    before = contents(tmp_path / "site")
    chosen = [name for name in before if name != ".lock" and (name.count("/") < 3 or name.endswith("cells.csv"))]
    for name in chosen:
        path = tmp_path / "site" / name
        if name == "site.json" and damage == "gone":
            continue  # nobody can tell then whose folder it is
        path.unlink() if damage == "gone" else os.truncate(path, len(before[name]) // 2 if damage == "cut" else 0)
        publish(tmp_path / "r", tmp_path / "site")
        now = contents(tmp_path / "site")
        assert now == before, (name, [other for other in before if now.get(other) != before[other]])


def test_publishing_again_mends_a_list_that_lacks_runs_and_leaves_a_later_format_alone(tmp_path: Path) -> None:
    for night in nights(2):
        add_run(tmp_path / "r", night)
    publish(tmp_path / "r", tmp_path / "site")
    state = tmp_path / "site/site.json"
    whole = json.loads(state.read_text())
    state.write_text(json.dumps(whole | {"runs": whole["runs"][:1]}))
    publish(tmp_path / "r", tmp_path / "site")
    assert json.loads(state.read_text()) == whole
    state.write_text(json.dumps(whole | {"format": 2}))
    with pytest.raises(BadInput, match="published in the format 2, not 1"):
        publish(tmp_path / "r", tmp_path / "site")
    assert json.loads(state.read_text())["format"] == 2


def test_many_runs_at_once_make_the_same_pages_as_one_after_the_other(tmp_path: Path) -> None:
    results = Results(tmp_path / "r")
    for night in nights(4):
        add_run(tmp_path / "r", night)
        site.publish(results, results.runs(), tmp_path / "slowly", redact=False)
    messages: list[str] = []
    made = site.publish(results, results.runs(), tmp_path / "at-once", redact=False, tell=messages.append)
    assert list(made.written) == nights(4) and messages[-1] == "4 of 4: 20260104T000000Z"
    assert contents(tmp_path / "at-once") == contents(tmp_path / "slowly")


def test_no_symbolic_link_is_followed(tmp_path: Path) -> None:
    add_run(tmp_path / "r")
    elsewhere = add_run(tmp_path / "other", "20260102T000000Z", host="secretbox")
    (tmp_path / "r/testhost/20260102T000000Z").symlink_to(elsewhere.path)
    another = add_run(tmp_path / "more", "20260103T000000Z", host="secretbox")
    (tmp_path / "r/secretbox").symlink_to(another.path.parent)
    messages: list[str] = []
    site.publish(Results(tmp_path / "r"), Results(tmp_path / "r").runs(), tmp_path / "site", redact=False, tell=messages.append)
    assert len([line for line in messages if "left out" in line]) == 2
    assert not [name for name, content in contents(tmp_path / "site").items() if b"secretbox" in content or "secretbox" in name]


@pytest.mark.parametrize("name", ["runs", "badges", "runs/20260101T000000Z", "index.html"])
def test_nothing_is_written_through_a_link_inside_the_site(tmp_path: Path, name: str) -> None:
    add_run(tmp_path / "r")
    (tmp_path / "outside").mkdir()
    (tmp_path / "site" / name).parent.mkdir(parents=True)
    (tmp_path / "site" / name).symlink_to(tmp_path / "outside" / ("page" if name.endswith("html") else ""))
    with pytest.raises(BadInput, match="symbolic link"):
        publish(tmp_path / "r", tmp_path / "site")
    assert list((tmp_path / "outside").iterdir()) == []


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
    other = RunFolder(shutil.copytree(run.path, run.path.with_name("20260102T000000Z-gpubox7")))
    head, *rest = other.lines().events
    other.record.write_bytes(lines.packed([head | {"key": "another"}, *rest]))
    publish(tmp_path / "gpubox7-results", tmp_path / "site", redact=True)
    count = 0
    for name, content in contents(tmp_path / "site").items():
        assert not leaks(name.encode()) and not leaks(content), name
        if name.endswith(".tar.gz"):
            with tarfile.open(fileobj=io.BytesIO(content)) as tar:
                for member in tar:
                    held = tar.extractfile(member)
                    assert held is not None and not leaks(held.read()) and not leaks(member.name.encode())
                    count += 1
    assert count == 10  # of each run run.jsonl, three launches, a lock
    assert "user-" in (tmp_path / "site" / "history.html").read_text()
    index = (tmp_path / "site" / "index.html").read_text()
    assert "host-1" in index and "NVIDIA H200" in index and "Pseudonyms" in index


def test_without_redact_no_credential_and_no_absolute_path_is_published(tmp_path: Path) -> None:
    planted_run(tmp_path / "r")
    publish(tmp_path / "r", tmp_path / "site")
    words = {name: PLANTED[name] for name in ("token", "mount")}
    assert not [name for name, content in contents(tmp_path / "site").items() if leaks(content, words) or b"/home/" in content]


def test_what_a_price_list_says_freely_is_redacted(tmp_path: Path) -> None:
    add_run(tmp_path / "r", "20260101T000000Z", host="zetabox")
    path, results = tmp_path / "prices.csv", Results(tmp_path / "r")
    source = "offer of zetabox at 10.1.2.3, /home/alice/offer password=Sup3rS3cret"
    path.write_text(f'gpu,price_per_hour,currency,source,date\nH200 SXM,3.6,EUR,"{source}",2026-01-31\n')
    held = prices.price_list_for(path, results.runs())
    for redact in (False, True):
        target = tmp_path / f"site-{redact}"
        site.publish(results, results.runs(), target, redact=redact, held=held)
        found = [content.decode() for name, content in contents(target).items() if name.endswith("tables/prices.json")]
        assert found and all("offer of" in text and "Sup3rS3cret" not in text and "/home" not in text for text in found)
        assert not redact or not any("zetabox" in text or "10.1.2.3" in text for text in found)


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


def test_deeply_nested_files_of_the_site_are_damaged_and_no_crash(tmp_path: Path) -> None:
    deep = "[" * 100_000
    (tmp_path / ".pseudonyms.json").write_text(deep)
    with pytest.raises(BadInput, match=re.escape(".pseudonyms.json is damaged")):
        identities.load(tmp_path)
    (tmp_path / ABOUT).write_text(deep)
    assert read_page(tmp_path) == {}
    (tmp_path / exports.MARKER).write_text(deep)
    with pytest.raises(BadInput):
        exports.written_before(tmp_path, force=False)


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


def test_two_publications_at_once_leave_a_site_that_is_redacted_or_not(tmp_path: Path) -> None:
    for number, host in enumerate(("gpubox7", "sisterbox8"), start=1):
        add_run(tmp_path / "r", f"2026010{number}T000000Z", host)
    results, target, waits = Results(tmp_path / "r"), tmp_path / "site", Event()

    def redacted() -> None:
        site.publish(results, results.runs(), target, redact=True, tell=lambda line: waits.set() if "waiting" in line else None)

    with ThreadPoolExecutor(1) as pool:
        second: list[Future[None]] = []

        def begin_the_other(line: str) -> None:
            if not second:
                second.append(pool.submit(redacted))
                assert waits.wait(PATIENCE_SECONDS)

        site.publish(results, results.runs(), target, redact=False, tell=begin_the_other)
        second[0].result()
    published = contents(target)
    assert json.loads(published["site.json"])["redacted"]
    assert not [name for name, content in published.items() if re.search(rb"(?i)gpubox7|sisterbox8", content + name.encode())]
    with pytest.raises(BadInput, match="is a redacted site"):
        publish(tmp_path / "r", target)


def test_files_of_a_killed_publication_are_never_in_a_redacted_site(tmp_path: Path) -> None:
    for number in (1, 2):
        add_run(tmp_path / "r", f"2026010{number}T000000Z", "gpubox7")
    target, results = tmp_path / "site", Results(tmp_path / "r")
    publish(tmp_path / "r", target)
    first = target / "runs" / "20260101T000000Z"
    (first / "run.json").unlink()  # as killed before the last file, once all others were there
    (target / "site.json").unlink()
    (target / "index.html").unlink()
    (first / "tables" / "gone.csv").write_text("of gpubox7")
    (target / "badges" / "gpubox7" / "old.svg").write_text("gpubox7")
    with pytest.raises(BadInput, match="without --redact"):
        site.publish(results, results.runs()[1:], target, redact=True)
    site.publish(results, results.runs(), target, redact=True)
    published = contents(target)
    assert json.loads(published["site.json"])["redacted"]
    assert not [name for name, content in published.items() if b"gpubox7" in content + name.encode()]


@pytest.mark.thorough
@pytest.mark.parametrize("seconds", [0.9, 1.3, 1.8])
def test_a_publication_that_is_interrupted_twice_ends(tmp_path: Path, seconds: float) -> None:
    """Its helpers, which ignore interruptions, are ended with it."""
    for night in nights(6):
        write_run(tmp_path / "results", [{}, {"stack": "b", "rate": 90.0}], run=night)
    words = [sys.executable, "-m", "torchmatrix", "report", "--publish", "site"]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        time.sleep(seconds)
        for _ in range(2):
            process.send_signal(signal.SIGINT)
            time.sleep(0.15)
        try:
            assert process.wait(60) in (0, 130, -signal.SIGINT)
        finally:
            process.kill()


@pytest.mark.parametrize("redact", [False, True])
def test_charts_of_an_earlier_publication_go_with_it(tmp_path: Path, redact: bool) -> None:
    names = ("alpha-secret", "beta-secret")
    for name in names:
        machine = replace(invented.machines()[2], name=name, identity=name.ljust(16, "0").encode().hex()[:32])
        invented.write(tmp_path / "r", machine)
    path, results = tmp_path / "prices.csv", Results(tmp_path / "r")
    path.write_text("gpu,price_per_hour,currency,source,date\nRTX 4090,3.6,EUR,offer,2026-01-31\n")
    held = prices.price_list_for(path, results.runs())
    site.publish(results, results.runs(), tmp_path / "site", redact=False, held=held)
    before = {name for name in contents(tmp_path / "site") if name.startswith("charts/")}
    (tmp_path / "site/charts/mine.txt").write_text("not ours")
    runs = results.runs() if redact else results.runs()[:1]
    site.publish(results, runs, tmp_path / "site", redact=redact)
    after = contents(tmp_path / "site")
    assert "charts/fastest-cost.html" in before - after.keys() and ("charts/mine.txt" in after) is not redact
    assert not redact or not [name for name, content in after.items() if any(word.encode() in content for word in names)]


@pytest.mark.parametrize("file", ["site.json", f"runs/20260101T000000Z/{ABOUT}"])
@pytest.mark.parametrize("value", [5, "x", [5], {"a": [1]}, -1e30, True, None], ids=str)
def test_a_field_of_another_type_in_a_sites_file_is_as_none(tmp_path: Path, file: str, value: Any) -> None:
    for host in ("alpha", "beta"):
        add_run(tmp_path / "r", host=host)
    runs = Results(tmp_path / "r").runs()
    publish(tmp_path / "r", tmp_path / "site")
    shutil.copytree(tmp_path / "site/runs/20260101T000000Z", tmp_path / "site/runs/older")
    path = tmp_path / "site" / file
    held = json.loads(path.read_text())
    for name in held.keys() - {"format", "redacted"}:
        path.write_text(json.dumps({**held, "fingerprint": "x", name: value}))
        site.publish(Results(tmp_path / "r"), runs, tmp_path / "site", redact=False)
