"""Traces of profiled steps -> parts that add up to a step, and bars that add up to a difference."""

import json
import math
from contextlib import suppress
from typing import Any

import pytest

from support.profiled_steps import allocation, span, trace
from torchmatrix.core.inputs import Malformed
from torchmatrix_plugins.profile.explanation import Measured, Side, Why, largest, why
from torchmatrix_plugins.profile.profiles import MOST_POINTS, NO_OPERATOR, STEP, WINDOW, Shares, memory_of, parse, shares


def parts(profile: Shares) -> dict[str, float]:
    """Return the milliseconds of a step, by name."""
    return {part.name: round(1e3 * part.seconds, 9) for part in profile.parts}


def test_of_operators_inside_each_other_the_innermost_has_the_time() -> None:
    profile = shares(parse(trace(20, [span("linear", 0, 8), span("addmm", 2, 4), span("copy", 3, 1), span("relu", 10, 6)])))
    assert parts(profile) == {"relu": 3.0, "linear": 2.0, "addmm": 1.5, "copy": 0.5}
    assert profile.seconds == pytest.approx(0.010) and profile.gap == pytest.approx(0.003)
    assert profile.gap_name == "(in no operator)" and not profile.on_device
    assert {part.name: part.calls for part in profile.parts} == {"relu": 0.5, "linear": 0.5, "addmm": 0.5, "copy": 0.5}


def test_threads_that_work_at_once_share_the_time() -> None:
    profile = shares(parse(trace(20, [span("a", 0, 10, lane=1), span("b", 5, 10, lane=2), span("c", 8, 2, lane=3)])))
    assert parts(profile) == {"b": round((1.5 + 2 / 3 + 5) / 2, 9), "a": round((5 + 1.5 + 2 / 3) / 2, 9), "c": round(1 / 3, 9)}
    assert sum(part.seconds for part in profile.parts) + profile.gap == pytest.approx(profile.seconds)


def test_what_lies_outside_the_steps_does_not_count() -> None:
    profile = shares(parse(trace(20, [span("before", -5, 5), span("across", -2, 4), span("after", 19, 4)])))
    assert parts(profile) == {"across": 1.0, "after": 0.5}


def test_on_a_device_kernels_count_by_their_names_or_by_what_launched_them() -> None:
    operators = [span("aten::mm", 0, 1, **{"External id": 5}), span("aten::add", 1, 1, **{"External id": 6})]
    kernels = [
        span("void gemm<float>", 2, 8, "kernel", 7, **{"External id": 5}),
        span("void add<float>", 6, 4, "kernel", 8, **{"External id": 6}),
        span("Memcpy HtoD", 12, 2, "gpu_memcpy", 7, **{"External id": 99}),
    ]
    traced = parse(trace(20, [*operators, *kernels, span(WINDOW, 0, 20, "gpu_user_annotation", 7)]))
    profile = shares(traced)
    assert parts(profile) == {"void gemm<float>": 3.0, "void add<float>": 1.0, "Memcpy HtoD": 1.0}
    assert (profile.gap_name, round(1e3 * profile.gap, 9)) == ("(device idle)", 5.0)
    assert {part.name: part.by for part in profile.parts}["void gemm<float>"] == "aten::mm"
    assert parts(shares(traced, kernels=False)) == {"aten::mm": 3.0, "aten::add": 1.0, NO_OPERATOR: 1.0}


def test_names_of_compiled_graphs_are_the_same_in_each_trace() -> None:
    name = "## Call CompiledFxGraph {} ##"
    made = [shares(parse(trace(2, [span(name.format(key), 0, 1)]))) for key in ("fabc1" * 10, "c9d" * 12)]
    assert made[0].parts[0].name == made[1].parts[0].name == name.format("…")


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"[]", b'{"traceEvents": 3}', trace(0, []), trace(5, [span(WINDOW, 1, 2)]),
        trace(5, []).replace(STEP.encode() + b'"', b'other"'), b'{"traceEvents": [' + b"[" * 200_000,
    ],
)  # fmt: skip
def test_what_is_no_trace_of_the_steps_is_refused(data: bytes) -> None:
    with pytest.raises(Malformed):
        parse(data)


def test_odd_events_are_no_obstacle() -> None:
    odd = [{"ph": "X", "name": 3}, {"ph": "X", "name": "x", "ts": "1", "dur": None, "cat": "cpu_op"}, {"name": "[memory]"}]
    data = trace(20, [span("good", 0, 4), *odd, span("args", 5, 1) | {"args": None}])  # type: ignore[list-item]
    assert parts(shares(parse(data.replace(b"good", b"go\tod\xff")))) == {"go\tod�": 2.0, "args": 0.5}


def test_memory_is_a_line_with_its_peak_however_many_points_there_are() -> None:
    memory = memory_of(parse(trace(20, [allocation(1, 500), allocation(2, 900), allocation(3, 400), allocation(4, 9, 1)])))
    assert memory and memory.peak == 500 and memory.points == ((0.001, 100.0), (0.002, 500.0), (0.003, 0.0))
    many = [allocation(20 * at / 5000, 10**6 if at == 3333 else at % 7) for at in range(5000)]
    memory = memory_of(parse(trace(20, many)))
    assert memory and len(memory.points) <= MOST_POINTS and max(taken for _, taken in memory.points) == memory.peak == 10**6
    assert memory_of(parse(trace(20, []))) is None


def test_memory_of_a_device_is_its_own_and_absolute() -> None:
    events = [span("gemm", 0, 1, "kernel"), allocation(1, 700), allocation(2, 2000, 1), allocation(3, 1500, 1)]
    memory = memory_of(parse(trace(20, events)))
    assert memory and memory.of_device and [taken for _, taken in memory.points] == [2000, 1500]


def side(cell: str, milliseconds: float, plain: float, measured: Measured | None = None, **operators: float) -> Side:
    """Return a side of two steps, each of `milliseconds` and with these operators."""
    now, events = 0.0, []
    for name, length in operators.items():
        events.append(span(name, now, 2 * length))
        now += 2 * length
    profile = shares(parse(trace(2 * milliseconds, events)))
    return Side(cell=cell, shares=profile, plain=1e-3 * plain, **({"measured": measured} if measured else {}))


def explained() -> Why:
    measured = [Measured(seconds=seconds, launches=3, run="r") for seconds in (0.008, 0.011)]
    a = side("a", 10, 9, measured[0], conv=5, norm=2, relu=1)
    return why(a, side("b", 14, 12, measured[1], conv=8, fused=3.5, relu=0.5))


def test_bars_add_up_to_the_difference_and_the_rest_is_reported() -> None:
    difference = explained()
    assert [bar.name for bar in difference.bars] == ["fused", "conv", "norm", "relu"]
    differences = [round(1e3 * bar.difference, 9) for bar in (*difference.bars, difference.gap)]
    assert differences == [3.5, 3.0, -2.0, -0.5, 0.0] and difference.profiled == pytest.approx(0.004)
    assert difference.told == pytest.approx(0.003) and difference.not_attributed == pytest.approx(-0.001)
    assert [round(difference.share(bar), 9) for bar in difference.bars] == [0.875, 0.75, -0.5, -0.125]
    assert not difference.is_scatter and not difference.is_doubtful


@pytest.mark.parametrize("most", [0, 1, 2, 10])
def test_however_few_bars_are_shown_they_add_up(most: int) -> None:
    difference = explained()
    shown = largest(difference, most)
    assert math.fsum(bar.difference for bar in shown) == pytest.approx(difference.profiled)
    assert shown[-1] is difference.gap and len(shown) == min(most, 4) + (most < 4) + 1


def test_without_a_run_that_measured_both_the_plain_steps_count() -> None:
    difference = why(side("a", 10, 9, Measured(seconds=1.0, launches=3, run="r"), conv=5), side("b", 14, 12, conv=9))
    assert not difference.is_measured and difference.told == pytest.approx(0.003)


def test_steps_that_hardly_differ_have_no_shares() -> None:
    difference = why(side("a", 100, 90, conv=50), side("b", 101, 91, conv=51))
    assert difference.is_scatter and math.isnan(difference.share(difference.bars[0]))


def test_a_difference_that_the_profiler_makes_is_doubtful() -> None:
    assert why(side("a", 10, 9, conv=5), side("b", 14, 8.5, conv=9)).is_doubtful


ODD: tuple[Any, ...] = ([], {}, None, "x", "", -1, 1e300, True, [[]], {"a": []}, "\ud800", 10**30)


@pytest.mark.parametrize("value", ODD, ids=repr)
def test_a_trace_with_an_odd_value_in_any_field_is_read_or_refused(value: Any) -> None:
    whole = json.loads(trace(20, [span("linear", 0, 8), span("k", 1, 2, "kernel", 7, **{"External id": 3}), allocation(3, 5)]))
    for event, number in ((event, number) for number, event in enumerate(whole["traceEvents"])):
        for place, name in [(event, name) for name in event] + [(event["args"], name) for name in event.get("args", ())]:
            kept, place[name] = place[name], value
            with suppress(Malformed):
                assert parse(json.dumps(whole).encode()).seconds >= 0, (number, name)
            place[name] = kept


def window(**changes: Any) -> bytes:
    """Return a trace whose window has other values."""
    whole = json.loads(trace(20, [span("linear", 0, 8)]))
    next(event for event in whole["traceEvents"] if event["name"] == WINDOW).update(changes)
    return json.dumps(whole).encode()


@pytest.mark.parametrize(
    "changes", [{"ts": 1e308}, {"dur": 1e-320}, {"ts": 1e308, "dur": 1.5e308}, {"dur": 1e300}, {"dur": -1}]
)
def test_steps_that_take_no_time_or_all_time_are_refused(changes: dict[str, float]) -> None:
    with pytest.raises(Malformed, match="the traced steps take"):
        parse(window(**changes))


@pytest.mark.parametrize("number", [[], {}, [1], {"a": 1}, 1.5, None, True])
def test_an_id_that_is_none_launches_nothing(number: Any) -> None:
    operators = [span("aten::mm", 0, 8, **{"External id": number}), span("aten::add", 8, 1, **{"External id": 4})]
    kernels = [span("k", 1, 2, "kernel", 7, **{"External id": number}), span("l", 8, 1, "kernel", 7, **{"External id": 4})]
    traced = parse(trace(20, [*operators, *kernels]))
    launched = {piece.name: piece.operator for lane in traced.lanes for piece in lane}
    assert launched["l"] == "aten::add" and launched["k"] == ("aten::mm" if number is True else NO_OPERATOR)


def test_rounding_is_no_gap() -> None:
    busy = [span(f"part{number}", number * 0.1, 0.1) for number in range(200)]
    profile = shares(parse(trace(20, busy)))
    assert profile.gap == 0.0 and sum(part.seconds for part in profile.parts) == pytest.approx(profile.seconds)
