"""What a matrix sets although it changes nothing: it is told, so that nobody takes a figure for one under that setting."""

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any

from torchmatrix.ground.toml_keys import Place, Problems, Table
from torchmatrix.matrix.factors import BY_NAME, FACTORS, Factor
from torchmatrix.matrix.method import Method
from torchmatrix.matrix.stacks import Stack
from torchmatrix.matrix.workloads import Workload


def of_workload(table: Table, made: Sequence[Workload]) -> Iterator[tuple[str, str]]:
    """The keys of a [[workload]] table that change nothing in any of the workloads `made` of it, and why."""
    for factor in FACTORS:
        if factor.name in table and (why := _why_idle(factor, table[factor.name], made)):
            yield factor.name, f"has no effect: {why}"
    if made[0].batch_for and made[0].device == "cpu":
        yield "batch", "only its default has an effect: this workload runs on CPUs"
    pairs = [one.name for one in FACTORS if one.axis and isinstance(table.get(one.name), list) and len(table[one.name]) == 2]
    if table.get("fraction") == "1/2" and len(pairs) < 2:
        yield "fraction", f"leaves only the first value of {pairs[0]}" if pairs else "has no effect: no list has two values"
    if table.get("explain") and not any(one.mode == "train" and one.parallel == "ddp" for one in made):
        yield "explain", "has no effect: only training by ddp is explained"
    if table.get("requests") == 1 and "infer" in {one.mode for one in made}:
        yield "requests", "a single request has no median: its latency is neither compared nor judged"


def _why_idle(factor: Factor, given: Any, made: Sequence[Workload]) -> str:
    """Empty if it may change something. A list of several values asks whether they differ: a negative control."""
    models, modes = ({getattr(one, name) for one in made} for name in ("model", "mode"))
    if all(one.factors[factor.name] is None for one in made):
        for name, allowed, there in (("device", factor.devices, {made[0].device}), ("mode", factor.modes, modes)):
            if allowed and not there & set(allowed):
                return f"it is for {name} = {' or '.join(allowed)}"
        return f"it means nothing to {', '.join(sorted(models))}"
    if factor.needs and all(one.factors[factor.needs[0]] != factor.needs[1] for one in made):
        return f"it needs {factor.needs[0]} = {str(factor.needs[1]).lower()}"
    if factor.acts_in and not modes & set(factor.acts_in):
        return f"it is for mode = {' or '.join(factor.acts_in)}"
    is_one = not isinstance(given, list) or len(given) == 1
    if is_one and all(any(fnmatchcase(model, glob) for glob in factor.idle_for) for model in models):
        return f"it can't change the speed of {', '.join(sorted(models))}"
    return ""


def of_matrix(data: Table, stacks: Sequence[Stack], made: Sequence[Sequence[Workload]], problems: Problems) -> None:
    """Note the tables of a matrix of which nothing can ever run. `made`: the workloads of each [[workload]] table."""
    for number, some in enumerate(made):
        for key, why in of_workload(data["workload"][number], some):
            problems.note(Place(header="[[workload]]", number=number), key, why)
        if not any(_may_meet(stack, one) for stack in stacks for one in some):
            why = f"no [[stack]] of this matrix runs it: its device is {some[0].device}"
            problems.note(Place(header="[[workload]]", number=number), None, why)
    for number, stack in enumerate(stacks):
        if not any(_may_meet(stack, one) for some in made for one in some):
            problems.note(
                Place(header="[[stack]]", number=number), None, f"no [[workload]] of this matrix runs on {stack.name}"
            )
    devices = {one.device for some in made for one in some}
    for device in ("gpu", "cpu"):
        if data.get(f"{device}s") and device not in devices:
            problems.note(Place(header=f"[{device}s]"), None, f"has no effect: no [[workload]] has device = {device}")


def _may_meet(stack: Stack, workload: Workload) -> bool:
    """On some machine; see plan.make_plan for this one."""
    fits = stack.accelerator == "any" or (stack.accelerator == "cpu") == (workload.device == "cpu")
    return fits and any(fnmatchcase(stack.name, glob) for glob in workload.stacks)


def of_method(chosen: Method, workloads: Sequence[Workload]) -> Iterator[str]:
    """What is set although the method that is `chosen` takes no notice of it."""
    own = [
        *(("steps", "windows", "seconds") if chosen.steps else ()),
        *(("windows", "seconds", "warmup_seconds") if chosen.warm_seconds is not None else ()),
        *(() if chosen.warms_up else ("warmup_cap_seconds",)),
    ]
    if given := [name for name in own if any(one.factors[name] != BY_NAME[name].default for one in workloads)]:
        yield f"no effect of {', '.join(given)} in [[workload]]: the method {chosen.name} has its own"
    if chosen.cold_compiles and not any(one.compile for one in workloads):
        yield "no effect of cold_compiles: no workload compiles"
    if chosen.cool_down_seconds != Method().cool_down_seconds and chosen.start_below_celsius is None:
        yield f"no effect of cool_down_minutes: the method {chosen.name} waits for no temperature"
