"""The page: self-contained, escaped, honest about what is unknown."""

import base64
import gzip
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from support.records import write_run
from torchmatrix.facts.store import RunFolder
from torchmatrix.reporting import report
from torchmatrix.reporting.page import figure


def page_of(tmp_path: Path, *launches: dict, **more: object) -> str:
    return report.render(report.view_of(write_run(tmp_path, list(launches), **more)))


class Scripts(HTMLParser):
    """The scripts of a page: those that run, and the data that explorers are drawn from."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.running: list[str] = []
        self.data: list[str] = []
        self._into: list[str] | None = None
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "script":
            self._into = self.data if dict(attrs).get("type") == "application/json" else self.running
            self._into.append("")

    def handle_data(self, data: str) -> None:
        if self._into is not None:
            self._into[-1] += data

    def handle_endtag(self, tag: str) -> None:
        self._into = None


def runs_only_hashed_scripts(page: str) -> bool:
    """Tell whether the page runs nothing but the scripts that its policy names by their hashes."""
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    scripts = Scripts(page)
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts.running]
    return bool(policy) and all(f"'sha256-{digest}'" in policy[1] for digest in hashes) and "unsafe-eval" not in policy[1]


def test_the_page_needs_no_network_and_is_whole_without_a_script(tmp_path: Path) -> None:
    page = page_of(tmp_path, {}, {"devices": (0, 1), "rate": 180.0}, {"stack": "stack-b", "rate": 120.0})
    without = re.sub(r"<script.*?</script>", "", page, flags=re.S)
    assert not re.search(r"(?:src|href)=[\"'](?!#|data:)", without) and "@import" not in without
    assert without.count("<svg class=t") >= 5
    assert all(isinstance(json.loads(data), dict) for data in Scripts(page).data)
    assert len(Scripts(page).running) == 2 and runs_only_hashed_scripts(page)


def test_a_page_without_figures_carries_no_explorers(tmp_path: Path) -> None:
    page = page_of(tmp_path, {"outcome": "crashed"})
    assert len(Scripts(page).running) == 2 and runs_only_hashed_scripts(page) and not Scripts(page).data and len(page) < 130_000


def test_hostile_strings_are_inert(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script><!--"
    page = page_of(
        tmp_path,
        {"stack": evil},
        {"stack": "b" + evil, "rate": 120.0},
        {"stack": "c", "workload": evil, "outcome": "crashed", "error": evil + "\nmore", "command": evil},
        {"devices": (0, 1), "stack": evil, "rate": 150.0},
        skips=[(evil + "/w/gpu0", evil)],
        matrix=evil,
        command=evil,
    )
    assert runs_only_hashed_scripts(page) and len(Scripts(page).running) == 2 and "&lt;script&gt;alert(1)" in page
    for data in Scripts(page).data:
        json.loads(data)


def test_what_controls_a_terminal_or_turns_text_round_is_a_blank_in_a_page(tmp_path: Path) -> None:
    controls = "\x1b[2J\x9b31m\x07\r\u202eabc\u2066\u200f\x7f"
    failed = {"outcome": "crashed", "error": f"first{controls}\n\tsecond", "command": f"x{controls}"}
    page = page_of(tmp_path, {"stack": f"s{controls}"}, {"stack": "b", **failed}, matrix=f"m{controls}")
    assert "first [2J 31m" in page and not {*controls} & {*page} - {*"[2J31mabc"} and "\n" in page
    for data in Scripts(page).data:
        json.loads(data)


def test_credentials_and_homes_do_not_travel_with_a_page(tmp_path: Path) -> None:
    token, home = "ghp_" + "a1B2" * 6, str(Path.home() / "project")
    error = f"pip failed: git+https://alice:hunter22@host.example/x.git, Authorization: Bearer {token}, in {home}"
    failed = {"stack": "b", "outcome": "crashed", "error": error, "command": f"curl --token {token}"}
    write_run(tmp_path, [{"device": f"GPU {token}"}, failed])
    page = report.page_of(RunFolder(tmp_path / "testhost" / "20260101T000000Z")).text
    packed = re.search(r'facts.tar.gz" href="data:application/gzip;base64,([^"]*)"', page)
    assert packed and "pip failed: git+https://host.example/x.git" in page
    facts = gzip.decompress(base64.b64decode(packed[1])).decode()
    assert "pip failed" in facts and home not in facts
    for secret in (token, "hunter22"):
        assert secret not in page and secret not in facts


def test_every_failure_is_explained_with_its_first_error_line_and_the_commands_to_repeat_it(tmp_path: Path) -> None:
    page = page_of(tmp_path, {"outcome": "oom", "error": "CUDA out of memory. Tried\nsecond line"})
    assert '<p class="error">CUDA out of memory. Tried</p>' in page and "second line" not in page
    assert "torchmatrix run 'stack-a/resnet50-train-fp32-b4/gpu0'" in page
    assert "python bench.py --model resnet50" in page


def test_skips_are_shown_with_their_reason(tmp_path: Path) -> None:
    page = page_of(tmp_path, {}, skips=[("rocm/w/gpu0", "needs an AMD GPU"), ("rocm/v/gpu0", "needs an AMD GPU")])
    assert "needs an AMD GPU" in page and "2 cells skipped (needs an AMD GPU)" in page


def test_unknown_is_a_dash_and_one_launch_has_no_interval(tmp_path: Path) -> None:
    page = page_of(tmp_path, {})
    row = page.split("<th>Workload, stack, devices</th>")[1].split("<tbody>")[1].split("</tbody>")[0]
    assert (
        "100.0</b> images/s" in row
        and row.count("<td class=n>–<") == 2
        and "one launch</td>" in row
        and "nan" not in re.sub(r'<script.*?</script>|"data:[^"]*"', "", page, flags=re.S).lower().split("<main")[1]
    )


def test_an_empty_run_and_an_all_failed_run_still_render(tmp_path: Path) -> None:
    assert "0 of 0 cells measured." in page_of(tmp_path / "a", complete=False)
    page = page_of(tmp_path / "b", {"outcome": "crashed"}, {"outcome": "build-failed", "stack": "x"})
    assert "No cell was measured" in page and not re.search(r"\d.?images/s", page)


def test_a_run_is_shown_whichever_of_its_cells_were_measured_before_it_stopped(tmp_path: Path) -> None:
    """One stack has its baseline, the other hasn't: their scale factors stand in one table."""
    two = {"devices": (0, 1), "rate": 190.0}
    launches = [{"stack": "b", **two}, two, {}, {"stack": "b"}]
    for number in range(1, len(launches)):
        page = page_of(tmp_path / str(number), *launches[:number], complete=False)
        assert "This run is not finished" in page and ">nan<" not in page and ">None<" not in page
        assert page.count("190.0</b> images/s") == min(number, 2)


def test_an_unfinished_run_says_so(tmp_path: Path) -> None:
    assert "This run is not finished" in page_of(tmp_path / "a", {}, complete=False)
    assert "This run is not finished" not in page_of(tmp_path / "b", {})


def test_the_html_is_balanced(tmp_path: Path) -> None:
    class Balance(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.open: list[str] = []

        def handle_starttag(self, tag: str, attrs: object) -> None:
            if tag not in ("meta", "br", "path", "line", "rect", "circle", "input"):
                self.open.append(tag)

        def handle_endtag(self, tag: str) -> None:
            if tag not in ("path", "line", "rect", "circle"):
                assert self.open.pop() == tag

    balance = Balance()
    balance.feed(page_of(tmp_path, {}, {"devices": (0, 1), "rate": 180.0}, {"outcome": "oom", "stack": "b"}))
    assert not balance.open


def test_figures_have_four_digits_and_no_silent_zero() -> None:
    assert [figure(v) for v in (1012.4, 2.4134, 37.0, 16621.0, 123456.7, 0.00012345, float("nan"), None)] == [
        "1012", "2.413", "37.00", "16621", "123457", "0.0001234", "–", "–",
    ]  # fmt: skip


def first_screen(page: str) -> str:
    """Return the texts of the header."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page.split("<header>")[1].split("</header>")[0])).replace("\u202f", " ")


def test_the_first_screen_answers_with_intervals_what_is_fastest_and_how_well_it_scales(tmp_path: Path) -> None:
    rates = [{"rate": r} for r in (99.0, 100.0, 101.0)]
    faster = [{"stack": "b", "rate": 1.3 * r["rate"]} for r in rates]
    both = [{"stack": "b", "rate": 2.5 * r["rate"], "devices": (0, 1)} for r in rates]
    page = page_of(tmp_path, *rates, *faster, *both, {"stack": "c", "outcome": "oom"}, skips=[("rocm/w/gpu0", "no AMD GPU")])
    screen = first_screen(page)
    assert "250 images/s ± 2.2 %" in screen and "ResNet-50, fp32, eager, 2 × H200 SXM" in screen
    assert "2 GPUs bring" in screen and "1.92× ± 0.04" in screen and "96 % efficiency" in screen
    assert "3 of 4 cells measured, 1 launch failed (1 × out of memory), 1 cell skipped (no AMD GPU)." in page
    assert "the model that most stacks measured, on its most devices, whether or not it is the fastest" in screen


def test_the_first_screen_claims_only_what_the_data_support(tmp_path: Path) -> None:
    def screen(folder: str, *launches: dict) -> str:
        return first_screen(page_of(tmp_path / folder, *launches))

    two = screen("a", {"rate": 100.0}, {"stack": "b", "rate": 300.0})
    assert "Not tested against stack-a" in two and "One launch: no interval" in two and "aster than" not in two
    double = ({"rate": 100.0}, {"rate": 400.0, "devices": (0, 1)})
    assert "Impossible: look for a wrong baseline" in screen("b", *double) and "impossible?" in page_of(
        tmp_path / "table", *double
    )
    rates = [{"rate": r} for r in (99.0, 100.0, 101.0)]
    clear = screen("c", *rates, *({"stack": "b", **{"rate": 1.3 * r["rate"]}} for r in rates))
    assert "Faster than all others; the next is stack-a (1.30×" in clear
    same = screen("d", *rates, *({"stack": "b", **r} for r in reversed(rates)))
    assert "No difference shown from" in same and "aster than" not in same


def test_a_run_that_was_interrupted_does_not_claim_that_every_cell_was_measured(tmp_path: Path) -> None:
    run = write_run(tmp_path, [{}], complete=False)
    name = {"stack": "b", "workload": "w", "ddp_workload": "w", "parallel": "ddp", "devices": "gpu0"}
    run.append("planned", cell="b/w/gpu0", **name)
    page = report.render(report.view_of(run))
    assert "1 planned cell was not launched" in page
    assert "<code>torchmatrix run</code> continues it. A launch that has no end yet is running, or was lost." in page
    again = write_run(tmp_path / "again", [{}], complete=False, command="torchmatrix reproduce llm-cpu")
    assert "<code>torchmatrix reproduce llm-cpu</code> continues it." in report.render(report.view_of(again))
    assert "1 of 2 cells measured, 1 cell still to be launched." in page
    assert "1 of 1 cell measured." in page_of(tmp_path / "whole", {})


def test_a_launch_that_was_measured_again_is_no_failure(tmp_path: Path) -> None:
    run = write_run(tmp_path, [{}])
    (launch,) = run.launches()
    first = launch.path.read_text().splitlines(keepends=True)
    launch.path.with_name("round1-try2.jsonl").write_text("".join(first).replace('"try": 1', '"try": 2'))
    launch.path.write_text("".join(first[:3]))
    page = report.render(report.view_of(run))
    assert "1 launch was measured again because it ended before its time" in page
    assert "failed" not in page.split('id="not-measured"')[1].split("</summary>")[0]


def test_watched_readings_are_shown_with_the_figure_and_its_marks(tmp_path: Path) -> None:
    times = range(90, 130)
    reading = {"device": "GPU-0", "temperature_celsius": 61, "power_watts": 512.0, "sm_clock_mhz": 1980}
    readings = [(float(t), {**reading, "energy_joules": 512.0 * t, "reasons": ["hw_slowdown"]}) for t in times]
    page = report.render(report.view_of(write_run(tmp_path, [{"readings": readings, "flops": 3350e9}] * 2)))
    assert "61 °C" in page and "512 W" in page and "throttled</abbr>" in page
    assert "256.0 J" in page  # 512 W over 20 s and 40 items
    assert "10.0\u202f%" in page  # 2 items/s x 3350 GFLOP of the 67 TFLOP/s of an H200 in fp32
    assert "Not available in this run" not in page


def test_readings_that_are_missing_are_named_once_and_have_no_column(tmp_path: Path) -> None:
    page = report.render(report.view_of(write_run(tmp_path, [{"device": "NVIDIA Unheard-of"}])))
    assert "temperature (this machine does not report it)" in page and "energy (no energy counter can be read)" in page
    assert "MFU (the peak of this device is unknown)" in page and '<th class="n">MFU</th>' not in page


def test_flops_that_counters_count_unlike_are_told_where_mfu_is_shown(tmp_path: Path) -> None:
    def page(*counted: tuple[str, float]) -> str:
        launches = [{"stack": f"s{n}", "rate": 100.0, "flops": f, "counter": by} for n, (by, f) in enumerate(counted)]
        return report.render(report.view_of(write_run(tmp_path / str(hash(counted)), launches)))

    told = "MFU can't be compared across stacks here"
    assert told not in page(("torchmatrix 1", 50e9), ("torchmatrix 1", 50e9))
    assert told not in page(("torchmatrix 1", 50e9), ("torchmatrix 0", 50e9)), "to the same result"
    whole = page(("torchmatrix 1", 50e9), ("torchmatrix 0", 70e9), ("torchmatrix 1", 50e9))
    assert f"{told}, since their FLOPs were counted differently: by torchmatrix 0: s1; by torchmatrix 1: s0, s2." in whole


def test_a_stack_that_got_another_build_than_it_asks_for_is_marked_and_found(tmp_path: Path) -> None:
    def rendered(accelerator: str, build: str) -> str:
        stack = {"name": "torch2.7.1-cpu", "torch": "2.7.1", "accelerator": accelerator}
        return page_of(tmp_path / f"{accelerator}-{build}", {"torch": build, "stack": stack})

    wrong = rendered("cpu", "2.7.1+cu128")
    assert "other build</abbr>" in wrong and "asks for cpu, but all its figures are of PyTorch 2.7.1+cu128" in wrong
    for right in (
        rendered("cpu", "2.7.1+cpu"),
        rendered("cuda", "2.7.1+cu128"),
        rendered("cpu", "2.7.1"),
        rendered("any", "2.7.1+cu128"),
    ):
        assert "other build</abbr>" not in right


def test_a_run_that_records_little_has_a_whole_page_and_nothing_is_guessed(tmp_path: Path) -> None:
    """Each fact of the record's first line, of its machine and its method missing, as in earlier versions."""
    host = {"name": "h", "cpu": "x", "gpus": [{"index": 0, "uuid": "GPU-1", "name": "X"}], "memory_bytes": 5, "driver": "1"}
    method = {"name": "steady", "statistic": "median", "launches": 3}
    whole: dict[str, Any] = {"host": host, "method": method, "seed": 1}
    lacking = [
        {**whole, part: {k: v for k, v in whole[part].items() if k != key}}
        for part in ("host", "method")
        for key in whole[part]
    ]
    lacking += [{**whole, "host": {}}, {**whole, "method": {}}, {"host": {}, "method": {}, "command": None}]
    for number, header in enumerate(lacking):
        page = report.render(report.view_of(write_run(tmp_path / str(number), [{}], **header)))
        seen = page.partition("<script")[0]
        assert page.endswith("</html>\n") or page.endswith("</html>"), header
        assert "ECC off" not in page and not re.search(r"(>|: |<b>)None\b(?! of)", seen), header


@pytest.mark.parametrize("odd", [0, 2])
@pytest.mark.parametrize("parallel", ["independent", "no-sync", "x"])
def test_launches_of_one_cell_that_disagree_on_whether_it_makes_figures_break_no_page(
    tmp_path: Path, odd: int, parallel: str
) -> None:
    launches = [{"rate": 100.0 + place, "job": {"parallel": parallel} if place == odd else {}} for place in range(3)]
    run = write_run(tmp_path, [*launches, {"rate": 50.0, "workload": "other"}])
    view = report.view_of(run)
    assert "50" in report.render(view) and {cell.row.cell for cell in view.index.figures} == {row.cell for row in view.cells}


def test_what_two_stacks_of_one_pytorch_differ_in_is_told(tmp_path: Path) -> None:
    run = write_run(tmp_path, [{"stack": "old"}, {"stack": "new"}])
    for path in run.path.rglob("round1*.jsonl"):
        version = "4.57.6" if "old" in str(path.relative_to(run.path)) else "5.24.0"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        more = {"packages": ["torchvision==0.20.1", f"transformers=={version}"]}
        changed = [line | (more if line["event"] == "environment" else {}) for line in lines]
        path.write_text("".join(json.dumps(line) + "\n" for line in changed))
    method = report.render(report.view_of(run)).partition('<section id="method">')[2].partition("</section>")[0]
    assert "<th>transformers</th>" in method and "<th>torchvision</th>" not in method
    assert "4.57.6</td>" in method and "5.24.0</td>" in method
