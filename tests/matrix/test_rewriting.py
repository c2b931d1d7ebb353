"""Rewriting a matrix: its text keeps some tables, others are replaced, and each workload can be written down."""

from pathlib import Path

import pytest

from torchmatrix.core import assets
from torchmatrix.matrix import matrix_file, variants
from torchmatrix.matrix.matrix_file import Matrix
from torchmatrix.matrix.variants import rewritten, workload_keys
from torchmatrix.matrix.workloads import changed

TEXT = """# of mine
[run]  # settings
launches = 7
[gpus]
lists = [
[0, 1],
[2, 3]
]
[preset]
title = "t"
question = "q"
[[stack]]
torch = "2.5.1"
cpu = true
[[workload]]
model = "resnet50"
[workload.batch]
default = 4
"80GB" = 64
[cpus]
counts = [3]
"""


def test_settings_and_devices_stay_and_workloads_and_stacks_are_replaced() -> None:
    workload = {"model": "bert-tiny", "batch": 2, "device": "cpu"}
    kept = matrix_file.parse(rewritten(TEXT, workload))
    assert [stack.name for stack in kept.stacks] == ["torch2.5.1-cpu"] and kept.preset is None
    matrix = matrix_file.parse(rewritten(TEXT, workload, [{"torch": "2.6.0", "cpu": True}, {"torch": "2.7.1", "cuda": "12.6"}]))
    assert [stack.name for stack in matrix.stacks] == ["torch2.6.0-cpu", "torch2.7.1-cu126"]
    assert [entry.model for entry in matrix.workloads] == ["bert-tiny"] and matrix.text.startswith("# of mine\n")
    assert (matrix.method.launches, matrix.gpus.lists, matrix.cpus.counts) == (7, ((0, 1), (2, 3)), (3,))


def test_a_users_own_model_is_named_by_its_file(tmp_path: Path) -> None:
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets" / "tiny.py").write_text("def Tiny(): ...\ndef Tiny2(): ...\ndef batch(size, generator): ...\n")
    text = TEXT.replace('"resnet50"', '["resnet18", "nets/tiny.py:Tiny", "nets/tiny.py:Tiny2"]')
    for workload in matrix_file.parse(text, folder=tmp_path).workloads:
        (again,) = matrix_file.parse(rewritten(text, workload_keys(changed(workload, batch_for=()))), folder=tmp_path).workloads
        assert again.id == workload.id and again.own == workload.own


def matrices() -> list[Matrix]:
    return [*(variants.load_preset(name) for name in variants.preset_names()), matrix_file.load(assets.DEFAULT_MATRIX)]


@pytest.mark.parametrize("matrix", matrices(), ids=lambda matrix: matrix.preset.title if matrix.preset else "default")
def test_every_workload_can_be_written_down(matrix: Matrix) -> None:
    """The presets' workloads, too, which hold each factor; the batch is one number, as on a machine."""
    for planned in matrix.workloads[::7]:
        workload = changed(planned, batch_for=())
        (reread,) = matrix_file.parse(rewritten(matrix.text, workload_keys(workload))).workloads
        assert reread.id == workload.id and reread.factors == workload.factors and reread.device == workload.device
