"""`accept` through the command on an invented server: what NVML says of a slow GPU is named as the cause."""

import json

import pytest
from invented_servers import uuid
from stand_ins import Running

from support import FAKE_PYTHON

FAULTS = {
    "link": ({"lanes": 8, "max_lanes": 16}, "GPU 5 runs at x8 of x16"),
    "power": ({"power_limit": 500}, "its power limit is 500 W, that of others 700 W"),
    "memory": ({"remapped": 12, "remap_pending": 1}, "its memory was repaired: 12 rows remapped; more wait for a reset"),
    "heat": ({"temperature": 91}, "it is hotter: 91 °C, the others 34 °C"),
    "slow-down": ({"reasons": 0x40}, "it was slowed down: hw thermal slowdown in 100 % of the readings"),
}
"""Facts of GPU 5 and the cause that they are."""


@pytest.mark.representative
@pytest.mark.parametrize("fault", FAULTS)
def test_a_slow_gpu_of_eight_fails_and_what_the_driver_says_of_it_is_named(eight_h100: Running, fault: str) -> None:
    facts, cause = FAULTS[fault]
    eight_h100.change(5, **facts)
    item = 0.2 if fault in ("heat", "slow-down") else 0.001  # readings come once a second
    slow = f"ITEM_SECONDS = {item} * (1.25 if os.environ.get('CUDA_VISIBLE_DEVICES', '').startswith('{uuid(5)}') else 1.0)"
    python = eight_h100.folder / "bin" / "python"
    python.parent.mkdir()
    python.write_text(FAKE_PYTHON.read_text(encoding="utf-8").replace("ITEM_SECONDS = 0.0001", slow), encoding="utf-8")
    python.chmod(0o755)
    eight_h100.matrix("counts = [1]\neach = true", launches=2)
    matrix = eight_h100.folder / "matrix.toml"
    text = matrix.read_text(encoding="utf-8").replace(str(FAKE_PYTHON), str(python))
    text = text.replace('model = "resnet50"\nbatch = 4\n', 'model = "host-copy"\nbytes = 1048576\n')
    matrix.write_text(text, encoding="utf-8")
    done = eight_h100.run("accept", "--matrix", "matrix.toml", "--engine", "local", "--json")
    record = json.loads(done.stdout)
    failed = [check for check in record["checks"] if check["verdict"] == "FAIL"]
    assert [check["device"] for check in failed] == ["gpu5"] and cause in "; ".join(failed[0]["causes"]), done.stderr
    assert done.returncode == 5 and failed[0]["ratio"] == pytest.approx(0.8, rel=0.01)
    assert {check["verdict"] for check in record["checks"] if check["device"] != "gpu5"} == {"PASS"}


def test_the_pairs_of_eight_gpus_are_planned(eight_h100: Running) -> None:
    program = """
from torchmatrix.engines.choose import choose
from torchmatrix.machine.host import detect
from torchmatrix.planning.plan import make_plan
from torchmatrix.running.session import prerequisites_unseen
from torchmatrix_plugins.accept.verbs import _of_pairs

plan = make_plan(_of_pairs(), detect(), prerequisites_unseen(choose("local", "me").builder))
print(*(cell.gpus.label for cell in plan.cells))
"""
    assert eight_h100.python(program).split() == [f"gpu{a}+{b}" for a in range(8) for b in range(a + 1, 8)]
