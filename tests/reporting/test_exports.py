"""Exported files: every value as it is, every column described, nothing that a spreadsheet or an issue would run."""

import base64
import csv
import gzip
import io
import json
import math
import os
import signal
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from support.read_back import frames
from support.records import write_run
from torchmatrix.analysis import gpu_specs
from torchmatrix.core.errors import BadInput
from torchmatrix.core.formatting import inert
from torchmatrix.reporting import exports, report
from torchmatrix.reporting.charts import BarRow, Chart, Panel
from torchmatrix.reporting.exports import Tables, formats
from torchmatrix.reporting.exports.columns import TABLES
from torchmatrix.reporting.exports.formats import FORMATS, escaped

FORMULAS = ("=1+1", "+1", "-2", "@SUM(A1)", "\t=1", "\r=1", "\n=1", " =1+1", "＝1+1")
RATES = (99.7, 100.123456789012345, 1 / 3)


def tables_of(tmp_path: Path, *launches: dict, **more: object) -> Tables:
    return exports.of(report.view_of(write_run(tmp_path, list(launches), **more)))


def read_csv(content: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content.decode(), newline="")))


def gpu_run(tmp_path: Path) -> Tables:
    return tables_of(
        tmp_path,
        *({"rate": rate} for rate in RATES),
        {"devices": (0, 1), "rate": 190.0},
        {"stack": "other", "rate": 120.0, "flops": 67e9},
        {"stack": "bad", "outcome": "oom", "error": "CUDA out of memory"},
        skips=[("rocm/w/gpu0", "needs an AMD GPU")],
    )


def test_a_credential_in_a_list_takes_nothing_else_with_it(tmp_path: Path) -> None:
    packages = ["a @ https://h/a.whl?token=abcdefgh12345", "b==1", "Authorization: Bearer abcdefgh12345", 'API_KEY="abcdefgh1']
    packages.append("c==2")
    run = write_run(tmp_path, [{}])
    (path,) = run.path.rglob("round1*.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    changed = [line | ({"packages": packages} if line["event"] == "environment" else {}) for line in lines]
    path.write_text("".join(json.dumps(line) + "\n" for line in changed))
    (written,) = exports.of(report.view_of(run)).values["stacks"]["packages"]
    shown = json.loads(written)
    assert len(shown) == 5 and shown[1] == "b==1" and shown[4] == "c==2" and "abcdefgh1" not in written


def test_every_table_is_there_with_exactly_the_described_columns(tmp_path: Path) -> None:
    for written in (gpu_run(tmp_path / "a"), tables_of(tmp_path / "b")):
        assert list(frames(written)) == list(TABLES)
        for name, frame in frames(written).items():
            assert list(frame.columns) == [column.name for column in TABLES[name]]
    described = exports.described(TABLES)
    assert len(described["column"]) == sum(map(len, TABLES.values())) and min(map(len, described["meaning"])) > 8


@pytest.mark.parametrize(
    ("launch", "reason"),
    [
        ({"device": "Invented GPU"}, 'gpus.csv lists no GPU that surely is "Invented GPU"'),
        ({"job": {"image_size": None}}, "the image size isn't given"),
        ({}, None),
    ],
)
def test_figures_without_a_peak_are_among_the_findings(tmp_path: Path, launch: dict[str, Any], reason: str | None) -> None:
    findings = frames(tables_of(tmp_path, {"rate": 100.0, **launch}))["findings"].to_dict("records")
    unchecked = [(row["cell"], row["field"], row["reason"]) for row in findings if row["level"] == "unchecked"]
    assert unchecked == ([("stack-a/resnet50-train-fp32-b4/gpu0", "throughput", reason)] if reason else [])


def test_names_of_columns_differ_in_more_than_upper_and_lower_case() -> None:
    for columns in TABLES.values():
        names = [column.name.casefold() for column in columns]
        assert len(set(names)) == len(names)


def test_no_column_of_the_analysis_is_left_out_silently(tmp_path: Path) -> None:
    view = report.view_of(write_run(tmp_path, [{}, {"devices": (0, 1)}]))
    ours = {name: {column.source for column in TABLES[name]} for name in TABLES}
    made = {
        "scaling": view.scaling, "decomposition": view.decomposition, "devices": view.devices, "nodes": view.nodes,
        "collectives": view.collectives, "gpus": gpu_specs.gpu_table(view.every_cell),
    }  # fmt: skip
    assert all(set(row) <= ours[name] for name, rows in made.items() for row in rows)
    assert set(view.ratios.speedups[0].columns()) <= ours["speedups"]


def test_csv_keeps_every_digit_and_leaves_the_unknown_empty(tmp_path: Path) -> None:
    tables = gpu_run(tmp_path)
    launches = read_csv(FORMATS["csv"]("launches", tables.values["launches"]))
    exact = frames(tables)["launches"]["items_per_second"].tolist()
    assert [float(row["items_per_second"] or "nan") for row in launches[:5]] == exact[:5]
    assert launches[1]["items_per_second"] == repr(exact[1])
    failed = launches[5]
    assert (failed["outcome"], failed["items_per_second"], failed["error"]) == ("oom", "", "CUDA out of memory")
    assert launches[3]["device_list"] == '["gpu0", "gpu1"]' and launches[3]["device_count"] == "2"
    assert launches[0]["file"].endswith("stack-a/resnet50-train-fp32-b4/gpu0/round1-try1.jsonl")
    assert not any("nan" in value.lower() for row in launches for value in row.values() if value)


def test_csv_is_rfc_4180(tmp_path: Path) -> None:
    content = FORMATS["csv"](
        "failures", tables_of(tmp_path, {"outcome": "crashed", "command": 'a "b", c\nd'}).values["failures"]
    )
    assert content.endswith(b"\r\n") and b'"a ""b"", c\nd"' in content
    assert read_csv(content)[0]["command"] == 'a "b", c\nd'


def test_nothing_in_a_table_controls_a_terminal_or_turns_text_round(tmp_path: Path) -> None:
    hostile = "".join(
        map(chr, (*range(9), *range(11, 13), *range(14, 32), *range(0x7F, 0xA0), 0x61C, 0x200E, 0x2028, 0x202E, 0x2066))
    )
    frame = tables_of(tmp_path, {"outcome": "crashed", "command": f"a\x1b[2J{hostile}b\nc"}).values["failures"]
    for name in ("csv", "json", "parquet"):
        content = FORMATS[name]("failures", frame)
        text = str(pd.read_parquet(io.BytesIO(content))["command"][0]) if name == "parquet" else content.decode()
        assert not set(hostile) & set(text) and "[2J" in text
    assert not set(hostile) & set(escaped(f"a{hostile}b"))
    assert read_csv(FORMATS["csv"]("failures", frame))[0]["command"].endswith("b\nc")
    assert json.loads(FORMATS["json"]("failures", frame))[0]["command"] == f"a\x1b[2J{hostile}b\nc"


@pytest.mark.parametrize("text", FORMULAS)
def test_no_text_is_a_formula_in_csv_and_is_untouched_elsewhere(tmp_path: Path, text: str) -> None:
    frame = tables_of(tmp_path, {"outcome": "crashed", "command": text}).values["failures"]
    assert read_csv(FORMATS["csv"]("failures", frame))[0]["command"] == f"'{text}"
    assert json.loads(FORMATS["json"]("failures", frame))[0]["command"] == text
    assert pq.read_table(io.BytesIO(FORMATS["parquet"]("failures", frame)))["command"][0].as_py() == text


def test_numbers_stay_numbers_where_they_are_negative() -> None:
    assert FORMATS["csv"]("x", {"x": [-1.5e-300]}) == b"x\r\n-1.5e-300\r\n" and inert("a-b") == "a-b"


def test_json_has_null_for_the_unknown_and_lists_as_lists(tmp_path: Path) -> None:
    tables = gpu_run(tmp_path)
    cells = json.loads(FORMATS["json"]("cells", tables.values["cells"]))
    assert cells[0]["device_list"] == ["gpu0"] and cells[0]["compile"] is False and cells[0]["device_count"] == 1
    assert cells[0]["joules_per_item"] is None and cells[1]["items_per_second_low"] is None
    assert json.loads(FORMATS["json"]("claims", tables.values["claims"])) == []


def test_parquet_has_the_same_types_with_rows_and_without(tmp_path: Path) -> None:
    full, empty = gpu_run(tmp_path / "a"), tables_of(tmp_path / "b")
    for name in TABLES:
        schemas = [pq.read_schema(io.BytesIO(FORMATS["parquet"](name, t.values[name]))) for t in (full, empty)]
        assert [(f.name, f.type) for f in schemas[0]] == [(f.name, f.type) for f in schemas[1]]
        assert all(field.metadata[b"meaning"] for field in schemas[0])
    back = pq.read_table(io.BytesIO(FORMATS["parquet"]("cells", full.values["cells"]))).to_pylist()
    assert back[0]["items_per_second"] == frames(full)["cells"]["items_per_second"][0] and back[0]["joules_per_item"] is None


def test_facts_of_the_wrong_type_are_left_out_and_break_nothing(tmp_path: Path) -> None:
    tables = tables_of(
        tmp_path, {"outcome": "crashed", "job": {"image_size": "x"}}, {"outcome": "crashed", "error": "\ud800 half"}
    )
    for name, table in tables.values.items():
        for write in FORMATS.values():
            assert write(name, table)
    assert len(frames(tables)["launches"]) == 1 and "half" in frames(tables)["failures"]["error"][0]
    unfound = tables_of(tmp_path / "b", {"outcome": "crashed", "job": {"batch": "auto"}, "batch_used": None})
    assert frames(unfound)["cells"]["batch_per_device"].isna()[0]


def test_markdown_has_few_columns_rounded_with_intervals(tmp_path: Path) -> None:
    runs = [{"rate": rate} for rate in (99.0, 100.0, 101.0)]
    text = FORMATS["md"]("cells", tables_of(tmp_path, *runs).values["cells"]).decode()
    head, rule, row = text.splitlines()
    assert head.startswith("| Workload | Stack |") and set(rule) <= set("|- ")
    assert "| 100.0 images/s | 97.45 – 102.5 | 3 |" in row


@pytest.mark.parametrize(
    "text", ["a|b", "a\nb", "`x`", "<script>alert(1)</script>", "![x](y)", "@alice", "see #12", "https://x.y/z"]
)
def test_markdown_holds_hostile_texts_as_texts(text: str) -> None:
    shown = escaped(text)
    assert "\n" not in shown and "<" not in shown and ">" not in shown
    assert not any(sign in shown.replace("\\" + sign, "") for sign in "|`[]!*_")
    assert "@alice" not in shown and "#12" not in shown and "https://" not in shown


def test_the_archive_of_the_facts_is_the_same_each_time_and_holds_every_fact(tmp_path: Path) -> None:
    run = write_run(tmp_path, [{}, {"devices": (0, 1)}])
    (run.path / "stack-a" / "resnet50-train-fp32-b4" / "gpu0" / "round1-try1.log").write_text("printed")
    archive, other = exports.facts_archive(run), exports.facts_archive(run)
    assert archive.data is not None and archive.data == other.data
    with tarfile.open(fileobj=io.BytesIO(archive.data)) as tar:
        members = tar.getmembers()
        names = [member.name for member in members]
        assert names == sorted(names) and f"{run.id}/run.jsonl" in names and not any(name.endswith(".log") for name in names)
        assert {(m.uid, m.gid, m.uname, m.gname, m.mtime) for m in members} == {(0, 0, "", "", 0)}
        held = tar.extractfile(f"{run.id}/run.jsonl")
        assert held is not None and held.read() == run.record.read_bytes()
    with_logs = exports.facts_archive(run, logs=True).data
    assert with_logs is not None and b"printed" in gzip.decompress(with_logs)
    launch = frames(exports.of(report.view_of(run)))["launches"]["file"][0]
    assert launch in names


def test_an_archive_beyond_the_limit_is_none_with_its_size(tmp_path: Path) -> None:
    run = write_run(tmp_path, [{}])
    whole = exports.facts_archive(run)
    assert whole.data is not None
    assert exports.facts_archive(run, limit_bytes=len(whole.data)).data == whole.data
    small = exports.facts_archive(run, limit_bytes=len(whole.data) - 1)
    assert small.data is None and small.facts_bytes == whole.facts_bytes > 0


def test_tables_embedded_in_a_page_are_the_exported_files(tmp_path: Path) -> None:
    tables = gpu_run(tmp_path)
    plain, packed = exports.embedded(tables)["cells"], exports.embedded(tables, plain_up_to_bytes=10)["cells"]
    expected = FORMATS["csv"]("cells", tables.values["cells"])
    assert plain.href.startswith("data:text/csv;base64,") and plain.file_name.endswith("-cells.csv")
    assert base64.b64decode(plain.href.partition(",")[2]) == expected
    assert packed.file_name.endswith(".csv.gz") and gzip.decompress(base64.b64decode(packed.href.partition(",")[2])) == expected
    assert packed.content_bytes < plain.content_bytes == len(expected)


def chart(title: str = "A title") -> Chart:
    panel = Panel(title="", rows=(BarRow(label="x", value=1.0, figures=("1",)),), high=1.0)
    return Chart(id="one", title=title, sub="What it is.", panels=((panel,),))


def test_an_export_is_a_folder_with_tables_charts_and_their_meaning(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "out"
    names = exports.write(gpu_run(tmp_path), [chart("a | <b>")], target, ["csv", "json"], 1.0, force=False)
    assert set(names) == {p.relative_to(target).as_posix() for p in target.rglob("*") if p.is_file()}
    assert (target / "charts/one.png").read_bytes().startswith(b"\x89PNG") and "<svg" in (target / "charts/one.svg").read_text()
    readme = (target / "README.md").read_text()
    assert "a \\| &lt;b&gt;" in readme and "| cells | 4 |" in readme and "`columns.csv`" in readme
    assert "items_per_second" in (target / "columns.csv").read_text()
    assert list(target.parent.iterdir()) == [target]


def test_an_export_replaces_its_own_files_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "out"
    exports.write(gpu_run(tmp_path / "a"), [], target, ["csv", "md"], 2.0, force=False)
    (target / "notes.txt").write_text("mine")
    exports.write(tables_of(tmp_path / "b"), [], target, ["csv"], 2.0, force=False)
    assert (target / "notes.txt").read_text() == "mine" and not (target / "cells.md").exists()
    assert len(read_csv((target / "cells.csv").read_bytes())) == 0


def test_another_folder_is_refused_unless_forced_and_then_keeps_its_files(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.mkdir()
    exports.write(tables_of(tmp_path / "a"), [], target, ["csv"], 2.0, force=False)  # an empty one is no other
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.tex").write_text("years of work")
    with pytest.raises(BadInput, match="something other"):
        exports.write(tables_of(tmp_path / "b"), [], foreign, ["csv"], 2.0, force=False)
    assert [path.name for path in foreign.iterdir()] == ["thesis.tex"]
    exports.write(tables_of(tmp_path / "c"), [], foreign, ["csv"], 2.0, force=True)
    assert (foreign / "thesis.tex").read_text() == "years of work" and (foreign / "cells.csv").exists()


def test_an_export_that_fails_leaves_nothing(tmp_path: Path) -> None:
    bad: Any = replace(chart(), panels=((None,),))
    with pytest.raises(AttributeError):
        exports.write(gpu_run(tmp_path / "a"), [chart(), bad], tmp_path / "out", ["csv"], 2.0, force=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]


def test_the_gpus_measured_have_their_data_sheet_and_the_best_mfu(tmp_path: Path) -> None:
    job = {"precision": "amp"}
    runs = [
        {"rate": 100.0, "flops": 67e9},
        {"rate": 50.0, "flops": 67e9, "stack": "slow"},
        {"rate": 900.0, "flops": 67e9, "workload": "amp", "job": job},
        {"rate": 1.0, "devices": (1,), "device": "NVIDIA Unheard-of"},
        {"rate": 5.0, "vendor": "cpu", "workload": "cpu", "device": "cpu", "memory_bytes": None},
    ]
    view = report.view_of(write_run(tmp_path, runs))
    listed, unlisted = gpu_specs.gpu_table(view.every_cell)
    assert (listed["device_name"], unlisted["device_name"]) == ("NVIDIA H200", "NVIDIA Unheard-of")
    facts = gpu_specs.find("NVIDIA H200", 141 * 2**30)
    assert facts is not None and (listed["gpu"], listed["memory_gb"], listed["launch_date"]) == (
        facts.name,
        141,
        facts.launch_date,
    )
    assert listed["mfu_fp32"] == pytest.approx(0.1) and listed["mfu_amp"] == pytest.approx(900 * 67e9 / 989e12)
    assert listed["peak_amp_tflops"] == 989 and math.isnan(listed["mfu_tf32"])
    assert unlisted["gpu"] is None and math.isnan(unlisted["mfu_fp32"]) and math.isnan(unlisted["peak_fp32_tflops"])
    assert gpu_specs.gpu_table([]) == []


def test_an_export_never_waits_for_a_pipe_in_the_place_of_its_mark(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    os.mkfifo(tmp_path / "out" / exports.MARKER)
    signal.alarm(30)  # ends the test where it waits
    with pytest.raises(BadInput, match="holds something other than an export"):
        exports.written_before(tmp_path / "out", force=False)
    signal.alarm(0)


def test_parquet_without_pyarrow_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "find_spec", lambda name: None)
    assert exports.usable() == ["csv", "json", "md"]
    with pytest.raises(BadInput, match="needs pyarrow") as caught:
        exports.names_of(["csv", "parquet"])
    assert "torchmatrix[parquet]" in caught.value.hint


@pytest.mark.parametrize("name", ["a\0b", "\ud800", ".", "..", "../x", "/etc/hostname", "", "charts/../../x", 5, None, ["x"]])
def test_a_damaged_mark_names_no_file_that_would_be_removed(tmp_path: Path, name: Any) -> None:
    (tmp_path / exports.MARKER).write_text(json.dumps({"files": [name, "cells.csv", "charts/throughput.svg"]}))
    assert exports.written_before(tmp_path, force=False) == ["cells.csv", "charts/throughput.svg"]
