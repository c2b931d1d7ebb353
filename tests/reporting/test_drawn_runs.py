"""Every page and table is made of whatever was measured: failures alone, one launch, one device, nothing in common."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from support import invented, invoke

VERBS = (
    ("report",), ("report", "all"), ("report", "--machines"), ("report", "--own-batch"), ("report", "--publish", "site"),
    ("export", "one"), ("export", "--machines", "all"), ("advise", "resnet50"),
    ("advise", "bert-base-cased", "--aim", "energy"), ("history",), ("gate",), ("audit", "last"),
    ("compare", "torch2.5.1-cu124", "torch2.7.1-cu128"),
)  # fmt: skip


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.representative
def test_every_verb_reads_runs_drawn_at_random(tmp_path: Path, seed: int) -> None:
    invented.draw(tmp_path / "results", Random(seed))
    for words in VERBS:
        done = invoke(tmp_path, *words)
        assert done.returncode in (0, 1, 2, 3, 5), (words, done.stderr)
        assert "--help" not in done.stderr, "the words of this test are wrong"


def test_a_model_that_failed_wherever_it_ran_leaves_the_comparison_of_the_others(tmp_path: Path) -> None:
    fails = {f"bert-base-cased/{precision}": "oom" for precision in ("fp32", "amp")}
    for machine in (invented.machines()[0], invented.machines()[3]):
        invented.write(tmp_path / "results", replace(machine, fails=fails))
    done = invoke(tmp_path, "report", "--machines")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "reports/index.html").read_text()
    assert "8 × MI300X" in page and "out of memory" in page
