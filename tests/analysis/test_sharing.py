"""Whether other programs disturbed a launch, by what its kernel counted in the timed windows."""

import math
from pathlib import Path
from typing import Any

import pytest

from support.records import launch_lines, nights, write_run
from torchmatrix.analysis import run_index
from torchmatrix.analysis.cells import Cell, CellIndex
from torchmatrix.analysis.history import series, trends
from torchmatrix.analysis.metrics import THROUGHPUT
from torchmatrix.analysis.run_summary import cells_table, launch_rows
from torchmatrix.analysis.sharing import TOO_MANY_THREADS, WAITED, shared_by
from torchmatrix.analysis.speedups import since
from torchmatrix.analysis.verdicts import judged, may_be_best
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.reading import launch_of
from torchmatrix.facts.store import Results
from torchmatrix.reporting import report, terminal
from torchmatrix.reporting.overview.answers import unchanged
from torchmatrix_plugins.advise import advice, words

QUIET = {"run_seconds": 0.4, "wait_seconds": 0.0, "cpus": "0-1", "busy_seconds": 0.4, "stolen_seconds": 0.0, "switches": 3}


def beside(wait: float) -> dict[str, Any]:
    """Return how a rank of one thread shares a CPU with a program for which it waits in this share of the time."""
    return QUIET | {"run_seconds": 1 - wait, "wait_seconds": wait, "busy_seconds": 1.0}


def launch(sharing: list[dict[str, Any]], **more: Any) -> Launch:
    found = launch_of(Path("round1-try1.jsonl"), launch_lines(sharing=sharing, **more))
    assert isinstance(found, Launch) and found.is_ok, found
    return found


@pytest.mark.parametrize("vendor", ["cpu", "nvidia"])
@pytest.mark.parametrize(("wait", "disturbed"), [(0.0, False), (0.9 * WAITED, False), (1.1 * WAITED, True), (0.6, True)])
def test_a_launch_whose_threads_waited_for_others_was_disturbed(vendor: str, wait: float, disturbed: bool) -> None:
    shared = shared_by(launch([beside(wait)], vendor=vendor))
    assert shared.waited == pytest.approx(wait) and shared.disturbed is disturbed
    assert ("waited 60 % of the time for CPUs that others used" in shared.in_words) is (wait == 0.6)


@pytest.mark.parametrize("busy", [0.7, 0.705, 0.72])
def test_threads_that_wait_for_each_other_are_not_disturbed(busy: float) -> None:
    """Two threads of one rank on one CPU: each waits while the other one runs."""
    shared = shared_by(launch([QUIET | {"run_seconds": 0.7, "wait_seconds": 0.6, "cpus": "0", "busy_seconds": busy}]))
    assert shared.waited == pytest.approx((busy - 0.7) / 1.3) and shared.disturbed is False


@pytest.mark.parametrize(("wait", "is_told"), [(0.0, False), (0.05, False), (0.6, True)])
def test_a_lone_process_with_more_threads_than_cpus_is_told(tmp_path: Path, wait: float, is_told: bool) -> None:
    own = QUIET | {"run_seconds": 0.7, "wait_seconds": wait, "cpus": "0", "busy_seconds": 0.7}
    assert shared_by(launch([own])).remarks == ((TOO_MANY_THREADS,) if is_told else ())
    assert shared_by(launch([own, own], devices=(0, 1))).remarks == (), "collectives wait, too"
    assert shared_by(launch([beside(wait)])).remarks == (), "it waits for others"
    (row,) = launch_rows(write_run(tmp_path, [{"sharing": [own], "vendor": "cpu"}]).launches())
    assert (row.remarks == TOO_MANY_THREADS) is is_told


def test_programs_that_leave_a_launch_its_cpus_do_not_disturb_it() -> None:
    shared = shared_by(launch([QUIET | {"cpus": "0-63", "busy_seconds": 20.0}]))
    assert shared.others == pytest.approx(19.6 / launch([QUIET]).windows[0].slowest) and shared.waited == 0.0
    assert shared.disturbed is False and not shared.in_words


def test_ranks_on_the_same_cpus_are_no_others_to_each_other() -> None:
    both = [QUIET | {"run_seconds": 0.2, "wait_seconds": 0.2, "busy_seconds": 0.4}] * 2
    shared = shared_by(launch(both, vendor="cpu", devices=(0, 1)))
    assert (shared.others, shared.waited, shared.disturbed) == (0.0, 0.0, False)
    apart = [QUIET | {"cpus": "0"}, QUIET | {"cpus": "1", "busy_seconds": 0.5, "wait_seconds": 0.1}]
    shared = shared_by(launch(apart, vendor="cpu", devices=(0, 1)))
    assert shared.waited == pytest.approx(0.2) and shared.disturbed, "the rank that waited most"


@pytest.mark.parametrize(
    "sharing", [[], [{}], [{"switches": 4, "faults": 0}], [{"cpus": "0", "busy_seconds": 1.0}], [{**QUIET, "cpus": None}]]
)
def test_what_a_kernel_does_not_count_is_unknown(sharing: list[dict[str, Any]]) -> None:
    shared = shared_by(launch(sharing))
    assert math.isnan(shared.waited) and math.isnan(shared.others) and shared.disturbed is None and not shared.in_words
    seen = [(101.0, {"device": "GPU-0", "foreign": ["process 7 (python, user bob)"]})]
    beside = shared_by(launch(sharing, readings=seen))
    assert beside.disturbed is True and beside.in_words == "process 7 (python, user bob)"


@pytest.mark.parametrize(
    "wrong",
    [
        [QUIET, QUIET], [{**QUIET, "cpus": "0-"}], [{**QUIET, "cpus": "0-999999999"}], [{**QUIET, "run_seconds": -1.0}], [7],
        [{**QUIET, "wait_seconds": "1"}], {"run_seconds": 1.0},
    ],
)  # fmt: skip
def test_a_wrong_record_is_refused(wrong: Any) -> None:
    found = launch_of(Path("round1-try1.jsonl"), [*launch_lines()])
    assert isinstance(found, Launch) and found.is_ok
    lines = launch_lines()
    next(line for line in lines if line.get("phase") == "measure")["sharing"] = wrong
    refused = launch_of(Path("round1-try1.jsonl"), lines)
    assert isinstance(refused, Launch) and refused.outcome == "crashed" and "sharing" in str(refused.malformed)


RATES = {"a": [100.0, 100.5, 99.5], "b": [110.0, 110.5, 109.5]}


def cells(tmp_path: Path, disturbed: dict[str, int]) -> list[Cell]:
    """Return the cells of two stacks, of each of which so many launches were disturbed."""
    lines = [
        {
            "stack": stack,
            "rate": rate,
            "round": number + 1,
            "sharing": [beside(0.25) if number < disturbed.get(stack, 0) else QUIET],
        }
        for stack, rates in RATES.items()
        for number, rate in enumerate(rates)
    ]
    return CellIndex(launch_rows(write_run(tmp_path, lines).launches())).every


@pytest.mark.parametrize(
    ("disturbed", "verdict", "best"),
    [({}, "FASTER", [1]), ({"a": 1}, "DISTURBED", [0, 1]), ({"b": 3}, "DISTURBED", [0, 1]), ({"a": 1, "b": 2}, "FASTER", [1])],
)
def test_a_pair_of_which_one_side_was_disturbed_has_no_verdict(
    tmp_path: Path, disturbed: dict[str, int], verdict: str, best: list[int]
) -> None:
    a, b = cells(tmp_path, disturbed)
    (result,) = judged([b.over(a)])
    assert result.verdict == verdict and math.isnan(result.adjusted_p_value) is (verdict == "DISTURBED")
    assert may_be_best([a.moments(), b.moments()]) == best
    assert [row.disturbed for row in cells_table([a, b])] == [disturbed.get(name, 0) for name in "ab"]


def test_the_page_and_the_terminal_say_what_was_disturbed(tmp_path: Path) -> None:
    lines = [{"stack": "a", "rate": 100.0 + n, "round": n + 1, "sharing": [beside(0.25) if n else QUIET]} for n in range(3)]
    view = report.view_of(write_run(tmp_path, lines))
    page = report.render(view)
    assert "2 of 3 launches, beside other programs: their threads waited in up to 25" in page
    assert "disturbed" in report.overview_of(view).answers.in_words(80).splitlines()[-1]


def test_history_and_the_table_at_the_end_say_what_was_disturbed(tmp_path: Path) -> None:
    lines = [{"stack": "a", "rate": 100.0 + n, "round": n + 1, "sharing": [beside(0.25) if n else QUIET]} for n in range(3)]
    runs = [write_run(tmp_path, [{**line, "sharing": [QUIET]} for line in lines], run=nights(2)[0])]
    runs.append(write_run(tmp_path, lines, run=nights(2)[1]))
    summaries = list(run_index.summaries(Results(tmp_path), runs))
    (trend,) = trends(series(summaries))
    assert [row.disturbed for row in trend.rows] == [0, 2]
    assert "other programs disturbed 2 of 3 launches" in terminal.trends_in_words([trend])
    summary = terminal.summaries_of(runs[1].launches(), [trend.cell])
    assert summary[0].as_record()["disturbed"] == 2 and "; 2 disturbed" in terminal.summaries_in_words(summary, 100, 5)


def recorded(stack: str, rates: list[float], disturbed: bool) -> list[dict[str, Any]]:
    sharing = [beside(0.25) if disturbed else QUIET]
    return [{"stack": stack, "rate": rate, "round": number + 1, "sharing": sharing} for number, rate in enumerate(rates)]


@pytest.mark.parametrize("disturbed", ["a", "b"])
def test_the_lead_and_the_titles_call_no_disturbed_pair_alike(tmp_path: Path, disturbed: str) -> None:
    lines = [line for stack, rates in RATES.items() for line in recorded(stack, rates, stack == disturbed)]
    overview = report.overview_of(report.view_of(write_run(tmp_path, lines)))
    said = [overview.answers.lead, *(f"{each.figure} {each.text}" for each in overview.answers.each)]
    said += [chart.title for chart in overview.charts]
    assert not [text for text in said if "no difference" in text]
    assert "not tested against" in overview.answers.lead and any("disturbed by other programs" in text for text in said)


@pytest.mark.parametrize("disturbed", ["a", "b"])
def test_advice_calls_no_disturbed_combination_alike(tmp_path: Path, disturbed: str) -> None:
    lines = [line for stack, rates in RATES.items() for line in recorded(stack, rates, stack == disturbed)]
    rows = launch_rows(write_run(tmp_path, lines).launches())
    found = advice.advise(rows, "resnet50", "train", THROUGHPUT, {})
    text = words.advice_text(found, "run", "command")
    assert not found.as_good and [point.row.stack for point in found.untested] == ["a"] and "no difference" not in text
    assert "not tested against it, by launches that other programs disturbed" in text and ("disturbed 3 of them" in text) is (
        disturbed == "b"
    )
    assert words.advice_record(found, "run")["take"]["disturbed"] == (3 if disturbed == "b" else 0)


def test_since_the_last_run_what_was_disturbed_or_measured_once_is_not_called_unchanged(tmp_path: Path) -> None:
    then, now = (
        launch_rows(write_run(tmp_path, lines, run=run).launches())
        for run, lines in zip(
            nights(2),
            (
                [*recorded("a", RATES["a"], False), *recorded("b", RATES["b"], False), *recorded("c", [90.0], False)],
                [*recorded("a", RATES["a"], True), *recorded("b", RATES["b"], False), *recorded("c", [90.0], False)],
            ),
            strict=True,
        )
    )
    changes = since(now, then, nights(2)[0], 0.0)
    assert unchanged(changes) == ["1 with no difference shown", "1 disturbed", "1 not tested"]


@pytest.mark.parametrize(("name", "value"), [("busy_seconds", 1e9), ("stolen_seconds", 1e6), ("run_seconds", 1e5)])
def test_what_no_cpu_can_do_is_not_believed(name: str, value: float) -> None:
    shared = shared_by(launch([{**beside(0.25), name: value}]))
    assert math.isnan(shared.waited) and math.isnan(shared.others) and math.isnan(shared.stolen) and shared.disturbed is None
