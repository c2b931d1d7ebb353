"""Precision and settings of a model are read from the model that was timed: no figure has another name."""

import subprocess
from pathlib import Path

import pytest

from support import sabotaged
from support.boxes import WITH_KERNELS, bench, only, own_model, remarks_of
from support.own_models import NET
from torchmatrix.core import assets
from torchmatrix.facts import wire

pytestmark = pytest.mark.xdist_group("own model")  # one process runs all of the files
INFER = ("--mode", "infer")
REFUSED = {
    "its builder casts it": (
        "self.to(torch.bfloat16)",
        "return self.layer(inputs.bfloat16()).float()",
        "products are bfloat16",
    ),
    "an autocast of its own": ("", "with torch.autocast('cpu', torch.bfloat16): return self.layer(inputs).float()", "bfloat16"),
    "float64": ("self.double()", "return self.layer(inputs.double()).float()", "the model's products are float64"),
    "another default": (
        "torch.set_default_dtype(torch.float64); self.layer = nn.Linear(6, 3)",
        "inputs = inputs.double()",
        "are float64",
    ),
    "no product at all": ("self.layer = nn.PReLU(6).bfloat16()", "inputs = inputs.bfloat16()", "model's weights are bfloat16"),
}
"""What calls itself fp32 and is none."""
CHANGED = {
    "threads in its builder": ("torch.set_num_threads(3)", "pass", "changes threads from 1 to 3"),
    "CPUs in a step": (
        "import os; self.cpus = os.sched_getaffinity(0)",
        "import os; os.sched_setaffinity(0, [min(self.cpus)])",
        "changes cpus from [",
    ),
    "threads in a step": ("pass", "torch.set_num_threads(2)", "changes threads from 1 to 2"),
    "products for a moment": (
        "pass",
        "torch.set_float32_matmul_precision('medium'); x = self.layer(inputs); torch.set_float32_matmul_precision('highest'); "
        "return x",
        "changes float32_matmul_precision from highest to medium",
    ),
    "an autocast that is left open": (
        "torch.autocast('cpu', torch.bfloat16).__enter__()",
        "pass",
        "changes autocast from {'cpu': None} to {'cpu': 'bfloat16'}, which",
    ),
    "autocast for ever": (
        "torch.set_autocast_enabled('cpu', True)",
        "pass",
        "changes autocast from {'cpu': None} to {'cpu': 'bfloat16'}, which",
    ),
}


def written(folder: Path, init: str, forward: str) -> tuple[str, ...]:
    return own_model(folder, NET.format(init=init or "pass", forward=forward))


@pytest.mark.parametrize("what", REFUSED)
def test_a_model_that_computes_in_another_type_is_not_called_fp32(real_python: str, tmp_path: Path, what: str) -> None:
    init, forward, message = REFUSED[what]
    code, events, _ = bench(real_python, *written(tmp_path, init, forward), *INFER)
    assert code and only(events, "failure")["kind"] == "numerics" and message in only(events, "failure")["message"]
    assert not any(event["event"] in ("reference", "done") for event in events), "and is never proven"


@pytest.mark.parametrize("mode", ["train", "infer"])
def test_a_process_that_keeps_more_cpus_busy_than_its_threads_gives_no_figure(real_python: str, mode: str) -> None:
    """Its clock of the CPU runs at fifty times its speed here, as if many threads computed all the time."""
    words = ("--model", "bert-tiny", "--mode", mode, "--batch", "4", "--seconds", "1")
    for times, is_told in ((50, True), (1, False)):
        clock = f"from proofs import windows; real = windows.process_time; windows.process_time = lambda: {times} * real()"
        code, events, stderr = bench(real_python, *words, before=clock)
        assert (code != 0) == is_told, stderr
        assert not is_told or "CPUs busy, and was given 1: the model starts threads" in only(events, "failure")["message"]


ORPHAN = """
import os, time
from proofs import windows
windows.keep_orphans()
before = windows.cpu_seconds() - time.process_time()
read, write = os.pipe()
child = os.fork()
if not child:
    if os.fork():
        os._exit(0)
    while time.process_time() < 0.3:
        pass
    os.write(write, b"x")
    time.sleep(60)
os.waitpid(child, 0)
os.read(read, 1)
print(windows.cpu_seconds() - time.process_time() - before)
os.killpg(0, 9)
"""


def test_the_cpu_time_of_processes_that_have_left_their_parents_counts(real_python: str) -> None:
    done = subprocess.run(
        [real_python, "-uc", ORPHAN], cwd=assets.WORKLOAD, capture_output=True, text=True, start_new_session=True, check=False
    )
    assert float(done.stdout) > 0.25, done.stderr


def test_a_model_of_several_types_is_measured_and_called_mixed(real_python: str, tmp_path: Path) -> None:
    init, half = "self.b = nn.Linear(6, 6)", "with torch.autocast('cpu', torch.bfloat16): inputs = self.b(inputs)"
    words = written(tmp_path, init, f"{half}\n        inputs = inputs.float()")
    code, events, stderr = bench(real_python, *words, *INFER, "--peak-flops", "1")
    assert code == 0, f"{stderr}: no one peak is that of several types"
    (effective,) = only(events, "precision")["effective"]
    assert effective["mixed"] == "mixed: bfloat16 59 %, float32 41 %" and effective["matmul"] == "fp32"
    assert effective["types"]["parameters"] == {"float32": 63} and effective["types"]["outputs"] == ["float32"]
    # of four items 6 × 6 in bfloat16 and 6 × 3 in float32, two FLOPs each
    assert effective["types"]["flops"] == {"bfloat16": 4 * 2 * 36, "float32": 4 * 2 * 18}
    wire.check(only(events, "precision"))


def test_a_loss_that_switches_autocast_off_is_mixed_and_no_fault_of_the_step(real_python: str, tmp_path: Path) -> None:
    text = NET.format(init="self.b = nn.Linear(6, 6)", forward="inputs = self.b(inputs)").replace(
        "    return nn.functional.cross_entropy(",
        "    with torch.autocast('cpu', enabled=False): outputs = outputs.float() @ torch.eye(3)\n"
        "    return nn.functional.cross_entropy(",
    )
    code, events, stderr = bench(real_python, *own_model(tmp_path, text), "--precision", "amp-bf16")
    assert code == 0, stderr
    (effective,) = only(events, "precision")["effective"]
    assert effective["mixed"].startswith("mixed: bfloat16 ") and effective["types"]["outputs"] == ["bfloat16"]
    assert set(effective["types"]["products"]) == set(effective["types"]["alone"]) == {"bfloat16", "float32"}


def test_a_backward_pass_in_another_type_than_the_forward_pass_is_told(real_python: str, tmp_path: Path) -> None:
    rounded = """\
class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs, weight):
        ctx.save_for_backward(inputs, weight)
        return inputs @ weight
    @staticmethod
    def backward(ctx, gradient):
        inputs, weight = (one.bfloat16() for one in ctx.saved_tensors)
        gradient = gradient.bfloat16()
        return (gradient @ weight.t()).float(), (inputs.t() @ gradient).float()

class Net("""
    text = NET.format(init="self.w = nn.Parameter(torch.eye(6))", forward="inputs = Rounded.apply(inputs, self.w)")
    words = own_model(tmp_path, text.replace("class Net(", rounded))
    code, events, stderr = bench(real_python, *words)
    assert code == 0, stderr
    (rank,) = only(events, "precision")["effective"]
    assert rank["mixed"].startswith("mixed: backward products bfloat16 ") and set(rank["types"]["products"]) == {"float32"}


def test_a_model_that_its_builder_casts_is_what_it_is_where_that_is_asked_for(real_python: str, tmp_path: Path) -> None:
    code, events, stderr = bench(
        real_python, *written(tmp_path, "self.to(torch.bfloat16)", "pass"), "--precision", "bf16-weights", *INFER
    )
    assert code == 0 and only(events, "reference")["agrees"] is True, stderr
    (effective,) = only(events, "precision")["effective"]
    assert effective["types"]["products"] == {"bfloat16": 42} and effective["mixed"] is None


@pytest.mark.parametrize(
    ("precision", "products", "autocast"), [("fp32", "float32", None), ("amp-bf16", "bfloat16", "bfloat16")]
)
def test_a_plain_model_computes_in_what_was_asked_for(
    real_python: str, tmp_path: Path, precision: str, products: str, autocast: str | None
) -> None:
    code, events, stderr = bench(real_python, *written(tmp_path, "", "pass"), *INFER, "--precision", precision)
    assert code == 0, stderr
    (rank,) = only(events, "precision")["effective"]
    assert set(rank["types"]["products"]) == {products} and rank["types"]["autocast"] == autocast and rank["mixed"] is None
    assert only(events, "precision")["changed"] == []


def test_products_that_are_added_up_in_bfloat16_are_bfloat16_and_told(real_python: str, tmp_path: Path) -> None:
    """Add up as torch 1.12 does on a CPU, six times as far from float64 as others."""
    words = (*written(tmp_path, "", "pass"), *INFER, "--precision", "amp-bf16")
    before = WITH_KERNELS + sabotaged.BEFORE.format("products_summed_in_bfloat16")
    code, events, stderr = bench(real_python, *words, before=before)
    assert code == 0, stderr
    (rank,) = only(events, "precision")["effective"]
    assert rank["matmul"] == "bf16" and rank["bf16_sums"] == ["matmul"] and rank["relative_errors"]["matmul"] > 0.015
    assert remarks_of(events) == ["this torch adds up products in bfloat16, too (matmul): less precise than others"]


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("gloo_without_bfloat16", "unsupported", "can't add up numbers of type bfloat16 over ranks: Invalid scalar type"),
        ("gloo_that_loses_a_rank", "crashed", "RuntimeError: Connection closed by peer"),
    ],
)
def test_only_a_type_that_ranks_cannot_add_up_is_unsupported(real_python: str, name: str, kind: str, message: str) -> None:
    words, before = (*sabotaged.RESNET, *sabotaged.IN_HALF), sabotaged.BEFORE.format(name)
    code, events, _ = bench(real_python, *words, processes=2, before=before)
    failures = [event for event in events if event["event"] == "failure"]
    assert code and {event["kind"] for event in failures} == {kind}
    assert message in failures[0]["message"]


@pytest.mark.parametrize("what", CHANGED)
def test_a_setting_that_the_matrix_decides_is_not_changed_by_a_models_file(real_python: str, tmp_path: Path, what: str) -> None:
    init, forward, message = CHANGED[what]
    code, events, _ = bench(real_python, *written(tmp_path, init, forward), *INFER)
    assert code and only(events, "failure")["kind"] == "unsupported" and message in only(events, "failure")["message"]
    assert not any(event["event"] == "done" for event in events)


def test_any_other_setting_that_a_file_changes_is_told_and_what_ran_is_recorded(real_python: str, tmp_path: Path) -> None:
    words = written(tmp_path, "torch.use_deterministic_algorithms(True)", "pass")
    code, events, stderr = bench(real_python, *words, *INFER)
    assert code == 0, stderr
    assert only(events, "precision")["changed"] == ["deterministic_algorithms: False, then True"]
    setup = only(events, "setup")
    assert setup["precision"]["deterministic_algorithms"] is True and setup["precision"]["threads"] == 1
    assert setup["devices"][0]["threads"] == 1 and setup["precision"]["matmul_allow_tf32"] is False


@pytest.mark.parametrize(("where", "changed", "value"), [("cuda.matmul", "cuda.matmul", "bfx9"), ("mkldnn", "all", "tf32")])
def test_another_precision_of_float32_that_a_models_file_sets_is_refused_by_name(
    newest_python: str, tmp_path: Path, where: str, changed: str, value: str
) -> None:
    """By the CPU's name all backends' is set: findings/mkldnn-precision-is-everyones.sh."""
    init = f"torch.backends.{where}.fp32_precision = '{value}'"
    code, events, _ = bench(newest_python, *written(tmp_path, init, "pass"), *INFER)
    message = f"changes fp32_precision from {{'{changed}': 'ieee'}} to {{'{changed}': '{value}'}}, which the matrix decides"
    assert code and message in only(events, "failure")["message"]


def test_a_variable_that_would_make_convolutions_bfloat16_is_removed_and_told(newest_python: str) -> None:
    code, events, stderr = bench(newest_python, *sabotaged.RESNET, *INFER, ONEDNN_DEFAULT_FPMATH_MODE="BF16")
    assert code == 0, stderr
    assert only(events, "hello")["removed"] == {"ONEDNN_DEFAULT_FPMATH_MODE": "BF16"}
    assert "ONEDNN_DEFAULT_FPMATH_MODE" not in only(events, "environment")["variables"]


def test_native_kernels_are_told_and_left_out_where_the_matrix_says_so(real_python: str, newest_python: str) -> None:
    words = (*sabotaged.RESNET, *INFER)
    code, events, stderr = bench(newest_python, *words)
    assert code == 0 and "compiled in for sm_" in only(events, "environment")["native_kernels"], stderr
    code, events, stderr = bench(newest_python, *words, "--no-native-kernels", fresh=True)
    assert code == 0 and only(events, "environment")["native_kernels"] == "none", stderr
    code, events, _ = bench(real_python, *words, "--no-native-kernels", fresh=True)
    assert code and only(events, "failure")["kind"] == "unsupported"
