"""Every environment variable that torch reads is sorted in variables.json: acting on figures, or not."""

from pathlib import Path

import pytest

import variables


def packages_of(python: str) -> Path:
    return next(Path(python).parent.parent.glob("lib/python3*/site-packages"))


@pytest.mark.thorough
def test_every_variable_that_torch_reads_is_known(real_python: str, newest_python: str) -> None:
    for python in (real_python, newest_python):
        assert len(variables.read_by(packages_of(python))) > 150
        assert not variables.unknown(packages_of(python))


def test_a_variable_that_a_new_release_reads_is_found(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "config.py").write_text(
        'import os\nfrom os import environ\nA = os.environ.get("NEW_SWITCH", "0")\nB = "OTHER_SWITCH" in os.environ\n'
        'C = os.getenv("TORCHINDUCTOR_NEW")\nD = Config(default=1, env_name_force="THIRD_SWITCH")\n'
        'E = environ["FOURTH_SWITCH"]\n'
        'F = get_tristate_env("FIFTH_SWITCH")\nG = os.environ.get("lower_case"), os.environ.get(A)\n'
    )
    (tmp_path / "torch" / "testing").mkdir()
    (tmp_path / "torch" / "testing" / "t.py").write_text('import os\nos.getenv("ONLY_IN_TESTS")\n')
    assert set(variables.unknown(tmp_path)) == {f"{word}_SWITCH" for word in ("NEW", "OTHER", "THIRD", "FOURTH", "FIFTH")}
