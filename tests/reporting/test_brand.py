"""Whose page it is: title, logo and colour by options or by the matrix, and what can't be used."""

import re
from pathlib import Path

import pytest

from support import invoke
from support.records import write_run

LOGO = '<svg xmlns="http://www.w3.org/2000/svg" width="8" height="8"><script>alert(1)</script></svg>'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_run(tmp_path / "results", [{}])
    (tmp_path / "logo.svg").write_text(LOGO)
    return tmp_path


def page(folder: Path, *words: str) -> str:
    done = invoke(folder, "report", *words)
    assert done.returncode == 0, done.stderr
    return (folder / "reports/index.html").read_text()


def heading(text: str) -> str:
    found = re.search(r"<h1>(.*?)</h1>", text)
    assert found
    return found[1]


def test_a_page_bears_the_name_the_logo_and_the_colour_that_are_asked_for(folder: Path) -> None:
    text = page(folder, "--title", "Lab <b>", "--logo", "logo.svg", "--accent", "#a03060")
    assert heading(text) == "Lab &lt;b&gt;" and "<title>Lab &lt;b&gt; · " in text and "light-dark(#a03060" in text
    assert 'class="logo" src="data:image/svg+xml;base64,' in text and "alert(1)" not in text
    assert "Measured with torchmatrix" in text, "whose figures they are stays"
    ours = page(folder)
    assert heading(ours).startswith("PyTorch on ") and 'class="logo"' not in ours and "· torchmatrix</title>" in ours


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--accent", "red"), "red is no colour"), (("--accent", "#12345"), "#12345 is no colour"),
        (("--accent", "#0a5aa8;}body{display:none"), "is no colour"),
        (("--logo", "none.png"), "can't read the logo"), (("--logo", "matrix.txt"), "no image that a page can hold"),
        (("--logo", "large.png"), "has 200,001 bytes"),
    ],
)  # fmt: skip
def test_what_cant_be_used_is_said_before_anything_is_written(folder: Path, words: tuple[str, ...], why: str) -> None:
    (folder / "large.png").write_bytes(b"x" * 200_001)
    done = invoke(folder, "report", *words)
    assert done.returncode == 2 and why in done.stderr and not (folder / "reports").exists()


def test_the_matrix_of_the_folder_says_it_where_no_option_does(folder: Path) -> None:
    matrix = folder / "matrix.toml"
    matrix.write_text('[report]\ntitle = "Ours"\naccent = "#a03060"\nlogo = "logo.svg"\n')
    text = page(folder)
    assert heading(text) == "Ours" and "light-dark(#a03060" in text and 'class="logo"' in text
    assert heading(page(folder, "--title", "Other")) == "Other"
    for wrong in ('[report]\naccent = "red"\n', '[report]\nlogo = "gone.png"\n', "[report\n"):
        matrix.write_text(wrong)
        done = invoke(folder, "report")
        assert done.returncode == 0 and "note: [report] of the matrix is left out: " in done.stderr
    matrix.write_text("report = 3\n")
    assert heading(page(folder)).startswith("PyTorch on ")


def test_the_matrix_of_the_recorded_run_chooses_no_file_of_this_machine(tmp_path: Path) -> None:
    write_run(tmp_path / "results", [{}], matrix='[report]\nlogo = "secret.svg"\ntitle = "Theirs"\n')
    (tmp_path / "secret.svg").write_text(LOGO)
    assert 'class="logo"' not in page(tmp_path)
