"""Compiled means compiled: a step of which torch.compile runs nothing gives no figure of torch.compile."""

from pathlib import Path
from typing import Any

import pytest

from support.boxes import bench, only, own_model, remarks_of
from support.own_models import NET

pytestmark = pytest.mark.xdist_group("own model")  # one process runs all of the files
BY = "import torch; real = torch.compile; torch.compile = lambda net, backend, **words: real(net, backend={}, **words)"
QUICK = BY.format("'aot_eager'") + "\nimport compiling; compiling._count_generated_calls = lambda step: (step(), 99)"
"""Inductor takes a minute where a test needs none."""
BROKEN = f"def broken(graph, inputs): raise RuntimeError('no')\n{BY.format('broken')}"
NOTHING = {
    "switched off for the model": (
        "import torch._dynamo; self.forward = torch._dynamo.disable(self.forward)",
        "pass",
        "torch.compile runs no graph of this model, since its code switches the compiler off or holds nothing to compile",
    ),
    "switched off by the file": (
        "import torch._dynamo; torch._dynamo.config.disable = True",
        "pass",
        "nothing was compiled: torch._dynamo.config.disable is set",
    ),
    "another code in each step": (
        "self.n = 0.0",
        "self.n += 0.5; inputs = inputs * self.n",
        "nothing of what runs was compiled: forward runs in eager mode: torch's ",
    ),
    "errors of the compiler are suppressed": (
        "import torch._dynamo; torch._dynamo.config.suppress_errors = True",
        "pass",
        "nothing was compiled: forward runs in eager mode: an error of the compiler",
    ),
}
PART = "inputs = inputs * 2; torch._dynamo.graph_break(); self.n += 0.5; inputs = inputs * (self.n / self.n)"


def launched(python: str, folder: Path, init: str = "pass", forward: str = "pass", before: str = QUICK) -> Any:
    words = own_model(folder, NET.format(init=init, forward=forward))
    return bench(python, *words, "--mode", "infer", "--compile", "--warmup-steps", "12", "--warmup-cap", "12", before=before)


@pytest.mark.parametrize("what", NOTHING)
@pytest.mark.representative
def test_a_launch_of_which_nothing_is_compiled_is_unsupported_and_says_why(real_python: str, tmp_path: Path, what: str) -> None:
    init, forward, message = NOTHING[what]
    code, events, stderr = launched(real_python, tmp_path, init, forward, BROKEN if "errors" in what else QUICK)
    assert code and only(events, "failure")["kind"] == "unsupported", stderr
    assert message in only(events, "failure")["message"] and only(events, "compile")["run"] == 0
    assert not any(event["event"] == "done" for event in events)


@pytest.mark.parametrize("name", ["TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE"])
@pytest.mark.thorough
def test_a_variable_that_switches_the_compiler_off_is_named(real_python: str, tmp_path: Path, name: str) -> None:
    code, events, _ = bench(real_python, *own_model(tmp_path), "--mode", "infer", "--compile", **{name: "1"})
    failure = only(events, "failure")
    assert code and failure["kind"] == "unsupported" and failure["message"].endswith(f"nothing was compiled: {name} is set")
    assert only(events, "environment")["variables"][name] == "1"


def test_the_graphs_that_a_step_runs_are_counted_whatever_the_proofs_compile(real_python: str, tmp_path: Path) -> None:
    code, events, stderr = launched(real_python, tmp_path, forward="inputs = inputs + 1; torch._dynamo.graph_break()")
    assert code == 0 and only(events, "reference")["agrees"] is True, stderr
    compiled = only(events, "compile")
    assert (compiled["graphs"], compiled["run"], compiled["fallbacks"]) == (2, 2, []) and compiled["graph_breaks"] >= 1
    assert compiled["operations"] == 2 and remarks_of(events) == []
    assert len(compiled["options"]["hash"]) == 12 and compiled["options"]["changed"] == []


def test_what_a_models_file_changes_in_the_compilers_options_is_recorded(real_python: str, tmp_path: Path) -> None:
    init = "import torch._inductor.config as options; options.epilogue_fusion = False; options.cpp.threads = 1"
    code, events, stderr = launched(real_python, tmp_path, init)
    assert code == 0, stderr
    assert only(events, "compile")["options"]["changed"] == ["cpp.threads = 1", "epilogue_fusion = False"]


def test_what_is_compiled_in_part_is_told(real_python: str, tmp_path: Path) -> None:
    code, events, stderr = launched(real_python, tmp_path, "self.n = 0.0", PART)
    assert code == 0 and only(events, "compile")["run"] == 1, stderr
    (remark,) = remarks_of(events)
    assert remark.startswith("compiled in part: torch_dynamo_resume_in_forward_at_") and remark.endswith("_limit")


def test_an_eager_launch_has_no_graphs(real_python: str, tmp_path: Path) -> None:
    code, events, stderr = bench(real_python, *own_model(tmp_path), "--mode", "infer")
    assert code == 0 and only(events, "compile").get("graphs") is None, stderr


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_graphs_that_another_backend_runs_are_not_compiled(real_python: str, tmp_path: Path, backend: str) -> None:
    code, events, stderr = launched(real_python, tmp_path, before=BY.format(repr(backend)))
    failure, compiled = only(events, "failure"), only(events, "compile")
    assert code and failure["kind"] == "unsupported" and "generated no code" in failure["message"], stderr
    assert (compiled["run"], compiled["generated"]) == (1, 0)


@pytest.mark.thorough
@pytest.mark.parametrize("mode", ["infer", "train"])
def test_code_that_inductor_generated_is_seen_also_from_a_warm_cache(real_python: str, tmp_path: Path, mode: str) -> None:
    words = (*own_model(tmp_path, NET.format(init="pass", forward="pass")), "--mode", mode, "--compile", "--cache")
    for _ in range(2):
        code, events, stderr = bench(real_python, *words, str(tmp_path / "cache"), fresh=True)
        assert code == 0 and only(events, "compile")["generated"] == (1 if mode == "infer" else 2), stderr
