"""The site's settings: which address stands for which, from file and environment, and that no secret gets in."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from torchmatrix.core import settings
from torchmatrix.core.errors import BadInput
from torchmatrix.core.settings import Settings
from torchmatrix_plugins.nights import night

Site = Callable[..., Settings]


@pytest.mark.parametrize(
    ("reference", "here"),
    [
        ("python:3.11-slim", "mirror.example:5000/hub/library/python:3.11-slim"),
        ("pytorch/pytorch:2.5.1", "mirror.example:5000/hub/pytorch/pytorch:2.5.1"),
        ("docker.io/pytorch/pytorch:2.5.1", "mirror.example:5000/hub/pytorch/pytorch:2.5.1"),
        ("nvcr.io/nvidia/pytorch:25.02-py3", "ngc.example/nvidia/pytorch:25.02-py3"),
        ("nvcr.io/nvidia-other/x:1", "nvcr.io/nvidia-other/x:1"),
        ("localhost/mine:1", "localhost/mine:1"),
        ("registry.local:5000/mine", "registry.local:5000/mine"),
    ],
)
def test_the_longest_mirror_that_fits_whole_parts_stands_for_an_image(reference: str, here: str) -> None:
    mirrors = {"docker.io": "mirror.example:5000/hub", "nvcr.io/nvidia": "ngc.example/nvidia/"}
    assert Settings(mirrors=mirrors).image(reference) == here


def test_a_mirror_stands_for_an_index_and_what_lies_under_it() -> None:
    mirrors = {
        "https://download.pytorch.org/whl/": "https://m.example/pytorch",
        "https://pypi.org/simple": "http://p.example/s",
    }
    site = Settings(mirrors=mirrors)
    assert site.index("https://download.pytorch.org/whl/cu124") == "https://m.example/pytorch/cu124"
    assert site.index("https://pypi.org/simple") == "http://p.example/s"
    assert site.index("https://pypi.org/simpler") == "https://pypi.org/simpler"


def test_the_environment_wins_over_the_file(site: Site, tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    (tmp_path / "settings.toml").write_text(
        f'wheelhouse = "{tmp_path}/wheels"\nparallel_builds = 3\n[mirrors]\n"docker.io" = "a.example/hub"\n'
    )
    settings = site()
    assert settings == Settings(
        mirrors={"docker.io": "a.example/hub"}, wheelhouse=tmp_path / "wheels", parallel_builds=3, quiet_wait_minutes=0
    )
    settings = site(
        TORCHMATRIX_MIRRORS="docker.io=b.example, https://pypi.org/simple=http://p:80/s", TORCHMATRIX_PARALLEL_BUILDS=1
    )
    assert settings.mirrors == {"docker.io": "b.example", "https://pypi.org/simple": "http://p:80/s"}
    assert settings.parallel_builds == 1 and settings.wheelhouse == tmp_path / "wheels"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("wheelhous = 1", 'unknown key "wheelhous"; did you mean "wheelhouse"?'),
        ("parallel_builds = 0", "must be at least 1"),
        ("memory_share = 1.5", "must be at most 1, not 1.5"),
        ("processes = 10", "must be at least 64"),
        ('ca_bundle = "/nowhere/ca.pem"', "ca_bundle: there is no /nowhere/ca.pem"),
        ('wheelhouse = "/nowhere"', "wheelhouse: there is no /nowhere"),
        ("[mirrors]\n'docker.io' = 5", "must be text in quotes"),
        ("[mirrors]\n'https://pypi.org/simple' = 'https://me:secret@p.example'", "contains credentials"),
        ("[mirrors]\n'docker.io' = 'me:secret@registry.example'", "contains credentials"),
        ("[mirrors]\n'https://pypi.org/simple' = 'https://p.example/s?token=secret'", "contains credentials or a query"),
        ("wheelhouse =", "can't read"),
    ],
)
def test_a_mistake_in_the_file_is_named_with_a_way_out_and_without_the_secret(
    site: Site, tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "settings.toml").write_text(text)
    with pytest.raises(BadInput) as caught:
        site()
    assert message in str(caught.value) and caught.value.hint
    assert "secret" not in f"{caught.value}{caught.value.hint}"


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("TORCHMATRIX_MIRRORS", "docker.io", "is not a list of A=B"),
        ("TORCHMATRIX_MIRRORS", "docker.io=me:secret@registry.example", "credentials"),
        ("TORCHMATRIX_MIRRORS", "https://pypi.org/simple=https://me:secret@p.example/s", "credentials"),
        ("TORCHMATRIX_MIRRORS", "https://pypi.org/simple=https://p.example/s?token=secret", "credentials"),
        ("TORCHMATRIX_PARALLEL_BUILDS", "many", "is not a number of builds"),
        ("TORCHMATRIX_MEMORY_SHARE", "90%", "is not a share of the memory"),
        ("TORCHMATRIX_MEMORY_SHARE", "nan", "is not a share of the memory"),
        ("TORCHMATRIX_PROCESSES", "10", "is not a number of processes"),
        ("TORCHMATRIX_SETTINGS", "/nowhere/settings.toml", "TORCHMATRIX_SETTINGS: there is no /nowhere/settings.toml"),
        ("TORCHMATRIX_CA_BUNDLE", "/nowhere/ca.pem", "there is no /nowhere/ca.pem"),
        ("TORCHMATRIX_CA_BUNDLE", "/etc/" + 300 * "x", "there is no /etc/xxx"),
        ("TORCHMATRIX_CA_BUNDLE", "~nobody-is-called-so/ca.pem", "there is no ~nobody-is-called-so/ca.pem"),
    ],
)
def test_a_mistake_in_the_environment_too(site: Site, variable: str, value: str, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        site(**{variable: value})
    assert message in str(caught.value) and caught.value.hint
    assert "secret" not in f"{caught.value}{caught.value.hint}"


def test_the_hint_names_a_section_that_the_docs_have(site: Site, tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text("wheelhous = 1")
    with pytest.raises(BadInput) as caught:
        site()
    page, _, section = caught.value.hint.partition(" explains its keys, under ")
    assert f"\n## {section}\n" in (Path(settings.__file__).parents[3] / page).read_text()


@pytest.mark.parametrize(("text", "minutes"), [("", "60"), ("quiet_wait_minutes = 0", "0"), ("quiet_wait_minutes = 7", "7")])
def test_a_night_waits_longer_unless_the_site_says_how_long(site: Site, tmp_path: Path, text: str, minutes: str) -> None:
    (tmp_path / "settings.toml").write_text(text)
    site(TORCHMATRIX_QUIET_WAIT_MINUTES=None)
    log, seen = night.Log(tmp_path / "log", lambda data: None), "import os; print(os.environ['TORCHMATRIX_QUIET_WAIT_MINUTES'])"
    assert night.carry_out([sys.executable, "-c", seen], log) == 0
    log.close()
    assert (tmp_path / "log").read_text().split()[-1] == minutes
