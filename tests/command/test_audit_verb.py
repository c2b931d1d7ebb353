"""`torchmatrix audit` on a file of figures and on a run."""

import json
from pathlib import Path

from support import Command
from support.records import CLEAN, table, write_run


def test_the_command_says_what_it_found_by_its_exit_code(torchmatrix: Command, tmp_path: Path) -> None:
    path = table(tmp_path, CLEAN, {**CLEAN, "gpus": 8, "throughput": 26080})
    done = torchmatrix("audit", str(path))
    assert done.returncode == 1 and "2 figures, 1 finding" in done.stderr
    header, line = done.stdout.splitlines()
    assert header.split() == ["row", "level", "field", "value", "limit", "reason"]
    assert line.split()[:6] == ["3", "impossible", "throughput", "26080", "images/s", "efficiency"]
    assert "1 figure of several devices: 1 held against one device" in done.stderr
    (finding,) = json.loads(torchmatrix("audit", str(path), "--json").stdout)["findings"]
    assert finding["row"] == 3 and finding["limit"] == "efficiency 1.10"
    clean = torchmatrix("audit", str(table(tmp_path, CLEAN)))
    assert clean.returncode == 0 and not clean.stdout
    bad = torchmatrix("audit", str(tmp_path / "none.csv"))
    assert bad.returncode == 2 and "can't read" in bad.stderr and "hint:" in bad.stderr


def test_the_command_reads_a_run(torchmatrix: Command, tmp_path: Path) -> None:
    cells = [{"rate": 100.0}, {"rate": 210.0, "devices": (0, 1)}]
    write_run(tmp_path / "results", [{**cell, "rate": cell["rate"] * share} for cell in cells for share in (0.999, 1.0, 1.001)])
    done = torchmatrix("audit", "last")
    assert done.returncode == 1 and "stack-a/resnet50-train-fp32-b4/gpu0+1" in done.stdout
    assert "1.050 over" in done.stdout and "impossible" in done.stdout, "within one run nothing else differs"
    assert torchmatrix("audit", "nowhere").returncode == 2


def test_the_files_of_a_run_that_cant_be_read_are_named(torchmatrix: Command, tmp_path: Path) -> None:
    run = write_run(tmp_path / "results", [{"rate": 100.0}, {"rate": 101.0}])
    broken = run.launches()[1].path
    broken.write_text("{}\n")
    done = torchmatrix("audit", "last")
    assert done.returncode == 1 and f"{broken.relative_to(tmp_path)} can't be read and is left out: " in done.stderr
    assert json.loads(torchmatrix("audit", "last", "--json").stdout)["unreadable"][0]["reason"] == "it has no header"
    for launch in run.launches():
        launch.path.write_text("{}\n")
    done = torchmatrix("audit", str(run.path))
    assert done.returncode == 2 and "2 files can't, the first: " in done.stderr and "it has no header" in done.stderr


def test_what_cant_be_read_is_listed_and_alike_findings_share_a_line(torchmatrix: Command, tmp_path: Path) -> None:
    rows = [{**CLEAN, "memory_format": ""}] * 3 + [{**CLEAN, "throughput": "fast"}] * 2
    path = table(tmp_path, *rows, {**CLEAN, "gpus": 4, "throughput": 9000.5, "model": "resnet18"})
    done = torchmatrix("audit", str(path))
    assert done.returncode == 1 and "4 figures, 3 findings (3 unclear), 2 not read" in done.stderr
    assert "1 figure of several devices: 0 held against one device; 1 against nothing: no baseline" in done.stderr
    _, line, unread = done.stdout.splitlines()
    assert line.startswith("2 and 2 more  unclear  memory_format  unknown")
    assert unread == 'not read: row 5 and 1 more, throughput: "fast" is not a number above 0'
    data = json.loads(torchmatrix("audit", str(path), "--json").stdout)
    assert data["figures"] == 4 and len(data["findings"]) == 3 and [figure["row"] for figure in data["unparsed"]] == [5, 6]
    assert data["scaling"] == {
        "on_several_gpus": 1, "with_baseline": 0, "checked_against_siblings": 0, "without_either": 1,
    }  # fmt: skip


def test_what_has_no_figures_is_an_error_and_not_clean(torchmatrix: Command, tmp_path: Path) -> None:
    (tmp_path / "figures.json").write_text('[{"gpu": "A100", "throughput": 5}]')
    (tmp_path / "empty").mkdir()
    write_run(tmp_path / "failed", [{"outcome": "oom"}])
    for target, words in (
        ("figures.json", "is neither a CSV file nor a launch file"),
        ("empty", "has no launches"),
        ("failed", "all of its launches failed"),
    ):
        done = torchmatrix("audit", target)
        assert done.returncode == 2 and words in done.stderr and "\nhint: " in done.stderr and not done.stdout, done.stderr


def test_each_audit_ends_with_how_many_figures_were_held_against_something(torchmatrix: Command, tmp_path: Path) -> None:
    path = table(tmp_path, CLEAN, {**CLEAN, "gpus": 8, "throughput": 18000.5}, {**CLEAN, "gpu": "Gaudi 2"})
    done = torchmatrix("audit", str(path))
    assert done.returncode == 0 and done.stderr.splitlines()[-1] == "2 of 3 figures were held against a peak, 1 against scaling"
    assert 'not checked: row 4, because gpus.csv lists no GPU that surely is "Gaudi 2"' in done.stderr
    checked = json.loads(torchmatrix("audit", str(path), "--json").stdout)["checked"]
    assert {key: checked[key] for key in ("figures", "against_peak", "against_scaling")} == {
        "figures": 3, "against_peak": 2, "against_scaling": 1,
    }  # fmt: skip
    assert [figure["row"] for figure in checked["unchecked"]] == [4]


def test_nothing_checked_is_not_nothing_found(torchmatrix: Command, tmp_path: Path) -> None:
    row = {name: value for name, value in CLEAN.items() if name != "image_size"}
    done = torchmatrix("audit", str(table(tmp_path, {**row, "throughput": 99_999_999.5}, row)))
    assert done.returncode == 1 and "2 figures, none could be checked" in done.stderr and "0 findings" not in done.stderr
    assert "not checked: row 2 and 1 more, because the image size isn't given" in done.stderr
    assert done.stderr.splitlines()[-1] == "0 of 2 figures were held against a peak, 0 against scaling"


def test_a_cell_of_several_gpu_models_is_counted_as_not_checked(torchmatrix: Command, tmp_path: Path) -> None:
    gpus = [{"uuid": "a", "name": "NVIDIA H200"}, {"uuid": "b", "name": "NVIDIA L4"}]
    both = {"indices": [0, 1], "label": "gpu0+1", "vendor": "nvidia", "threads": 1, "gpus": gpus}
    write_run(tmp_path / "results", [{"rate": 100.0}, {"rate": 150.0, "devices": (0, 1), "gpus": both}])
    done = torchmatrix("audit", "last")
    assert done.returncode == 0 and "2 figures, 0 findings" in done.stderr
    assert "not checked: stack-a/resnet50-train-fp32-b4/gpu0+1, because its GPUs are of several models" in done.stderr
    assert done.stderr.splitlines()[-1] == "1 of 2 figures were held against a peak, 0 against scaling"
