"""The commands that make files for others, run as a user does."""

import json
import os
import resource
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from support import Command, full_device, invented
from support.records import write_run
from torchmatrix.core.errors import EngineUnusable
from torchmatrix.reporting import page

PRICES = "gpu,price_per_hour,purchase_price,currency,source,date\nH200 SXM,3.6,30000,EUR,us,2026-01-31\n"


def test_export_writes_tables_charts_and_says_where(tmp_path: Path, torchmatrix: Command) -> None:
    cube = [
        {"stack": "c", "workload": f"w-{precision}-{compiled}-{layout}", "rate": 100.0 + compiled + 9 * layout,
         "job": {"precision": precision, "compile": compiled, "channels_last": layout}}
        for precision in ("fp32", "amp") for compiled in (False, True) for layout in (False, True)
    ]  # fmt: skip
    write_run(tmp_path / "results", [{"rate": 99.0}, {"rate": 101.0}, {"stack": "b", "rate": 120.0}, *cube])
    (tmp_path / "prices.csv").write_text(PRICES)
    done = torchmatrix("export", "out", "--prices", "prices.csv", "--scale", "1")
    assert done.returncode == 0 and done.stdout == "out\n" and "20260101T000000Z" in done.stderr
    out = tmp_path / "out"
    assert {"cells.csv", "cells.json", "cells.parquet", "cells.md", "columns.csv", "README.md"} <= {
        p.name for p in out.iterdir()
    }
    assert list((out / "charts").glob("*.svg")) and list((out / "charts").glob("*.png"))
    assert json.loads((out / "cells.json").read_text())[0]["items_per_currency"] == pytest.approx(100.0 * 3600 / 3.6, rel=1e-3)
    assert pq.read_table(out / "launches.parquet").num_rows == 3 + len(cube)
    again = torchmatrix("export", "last", "out", "--format", "csv", "--no-charts", "--redact")
    assert again.returncode == 0 and not list(out.rglob("*.svg"))
    assert not (out / "cells.json").exists() and "testhost" not in (out / "launches.csv").read_text()


def test_an_impossible_export_is_an_error_and_nothing_is_written(tmp_path: Path, torchmatrix: Command) -> None:
    write_run(tmp_path / "results", [{}])
    (tmp_path / "prices.csv").write_text(PRICES.replace("H200", "H2000"))
    for words, message in (
        (("export", "a", "b", "c"), "too many words"),
        (("export", "last~5", "out"), "no run last~5"),
        (("export", "out", "--format", "xlsx"), 'no format "xlsx"'),
        (("export", "out", "--prices", "prices.csv"), "did you mean"),
        (("export", "out", "--results", "nowhere"), "no runs"),
    ):
        done = torchmatrix(*words)
        assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["prices.csv", "results"]


def test_report_publishes_a_site_and_renders_a_redacted_page(tmp_path: Path, torchmatrix: Command) -> None:
    write_run(tmp_path / "results", [{}], host={"name": "gpubox7", "cpu": "Test CPU", "kernel": "6.1", "gpus": []})
    done = torchmatrix("report", "--publish", "site", "--redact")
    assert done.returncode == 0 and done.stdout == "site/index.html\n" and "1 run written, 0 unchanged" in done.stderr
    assert "gpubox7" not in (tmp_path / "site/runs/20260101T000000Z/index.html").read_text()
    assert torchmatrix("report", "--publish", "site").returncode == 2
    assert torchmatrix("report", "--publish", "site", "--redact", "--baseline", "stack-a").returncode == 2
    assert torchmatrix("report", "--publish", "site", "--redact", "--since", "2030-01-01").returncode == 2
    page = torchmatrix("report", "last", "--redact", "--output", "page.html")
    assert page.returncode == 0 and "gpubox7" not in (tmp_path / "page.html").read_text()
    assert torchmatrix("report", "--output", "page.html").returncode == 0 and "gpubox7" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("words", [("gate", "--markdown"), ("init", "--force", "--output")])
def test_an_output_that_is_a_pipe_or_a_device_is_never_replaced_by_a_file(
    tmp_path: Path, torchmatrix: Command, words: tuple[str, ...]
) -> None:
    write_run(tmp_path / "results", [{"rate": 99.0}], run="20260101T000000Z")
    write_run(tmp_path / "results", [{"rate": 99.0}], run="20260102T000000Z")
    (tmp_path / "precious").write_text("mine")
    for name in ("page", "pipe", "link"):
        (tmp_path / f".{name}.part").symlink_to("precious")
    (tmp_path / "link").symlink_to("elsewhere")
    os.mkfifo(tmp_path / "pipe")
    full = full_device(tmp_path)
    done = [torchmatrix(*words, name) for name in ("pipe", str(full), "page", "link")]
    assert ["can't write" in process.stderr for process in done] == [True, True, False, False], [
        process.stderr for process in done
    ]
    assert all("hint: " in process.stderr and process.returncode == 4 for process in done[:2])
    assert (tmp_path / "pipe").is_fifo() and full.is_char_device()
    assert (tmp_path / "page").read_text() and (tmp_path / "elsewhere").read_text() and (tmp_path / "link").is_symlink()
    assert (tmp_path / "precious").read_text() == "mine"


@pytest.mark.parametrize(
    "words",
    ["export out", "report --output out", "report --publish out --redact", "history --output out", "init --force --output out",
     "init --preset llm-cpu --force --output out", "gate --junit out", "gate --markdown out", "advise resnet50 --write out",
     "compare last last~1 --json", "gather other --results out"],
)  # fmt: skip
def test_every_file_that_a_full_disk_has_no_room_for_ends_with_4(tmp_path: Path, torchmatrix: Command, words: str) -> None:
    job = {"rate": 99.0, "job": {"device": "gpu", "compile": False}}
    for number in (1, 2):
        write_run(tmp_path / "results", [job, job], run=f"2026010{number}T000000Z", matrix=invented.MATRIX)
    write_run(tmp_path / "other", [job])
    limit, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, most))
    try:
        done = torchmatrix(*words.split())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, most))
    if words.startswith("compare"):  # which writes no file
        assert done.returncode == 0, done.stderr
    else:
        assert (done.returncode, "can't write" in done.stderr, "\nhint: " in done.stderr) == (4, True, True), done.stderr
    assert not [path for path in tmp_path.rglob("out*") if path.is_file() and path.stat().st_size]


def test_a_page_is_written_where_a_link_leads_and_never_over_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "index.html").symlink_to("place.html")
    assert page.save("<p>", tmp_path / "index.html") == tmp_path / "index.html"
    assert (tmp_path / "index.html").is_symlink() and (tmp_path / "place.html").read_text() == "<p>"
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(EngineUnusable, match="can't write"):
        page.save("<p>", tmp_path / "pipe")
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.parametrize(
    "words",
    [
        ("report", "--output"),
        ("run", "--output"),
        ("history", "--json", "--output"),
        ("init", "--force", "--output"),
        ("gate", "--junit"),
        ("gate", "--markdown"),
        ("advise", "resnet50", "--write"),
        ("bisect", "a", "b", "--write"),
        ("bundle", "export"),
        ("doctor", "--deep", "--output"),
    ],
)
def test_a_dash_is_refused_before_anything_is_done(tmp_path: Path, torchmatrix: Command, words: tuple[str, ...]) -> None:
    write_run(tmp_path / "results", [{"rate": 99.0}])
    before = sorted(tmp_path.rglob("*"))
    done = torchmatrix(*words, "-", engine=None)
    assert done.returncode == 2 and done.stdout == "" and sorted(tmp_path.rglob("*")) == before
    assert done.stderr == 'error: "-" is not the name of a file\n\nhint: name the file to write, such as out.txt\n'
