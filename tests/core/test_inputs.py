"""Input files from a user, whatever is in them: each is read within bounds or refused with place, reason and hint."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from torchmatrix.analysis import prices
from torchmatrix.analysis.published import figure_files
from torchmatrix.core import inputs, settings
from torchmatrix.core.errors import BadInput
from torchmatrix.engines import lockfile
from torchmatrix.matrix import matrix_file


@pytest.fixture
def read_settings(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], object]:
    def read(path: Path) -> object:
        monkeypatch.setenv("TORCHMATRIX_SETTINGS", str(path))
        settings.load.cache_clear()
        return settings.load()

    return read


@pytest.fixture(params=["matrix", "lock", "settings", "prices.toml", "prices.csv", "table"])
def read(request: pytest.FixtureRequest, read_settings: Callable[[Path], object]) -> Callable[[Path], object]:
    """Return a function that reads a file, one for each kind of input."""
    readers: dict[str, Callable[[Path], object]] = {
        "matrix": matrix_file.load,
        "lock": lockfile.read,
        "settings": read_settings,
        "prices.toml": prices.load,
        "prices.csv": prices.load,
        "table": figure_files.take,
    }
    return readers[request.param]


def refused(read: Callable[[Path], object], path: Path) -> str:
    with pytest.raises(BadInput) as caught:
        read(path)
    assert caught.value.exit_code == 2 and caught.value.hint and len(str(caught.value)) < 20_000
    return str(caught.value)


def test_a_file_of_three_gigabytes_is_refused_by_its_size(read: Callable[[Path], object], tmp_path: Path) -> None:
    path = tmp_path / "large.toml"
    with path.open("wb") as file:
        file.truncate(3 << 30)
    assert "larger than" in refused(read, path)


def test_what_is_no_file_is_refused_and_never_waited_for(read: Callable[[Path], object], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    assert "is a pipe, not a file" in refused(read, tmp_path / "pipe.toml")
    assert "is a device, not a file" in refused(read, Path("/dev/zero"))
    (tmp_path / "folder.toml").mkdir()
    assert "is a folder, not a file" in refused(read, tmp_path / "folder.toml")
    assert "File name too long" in refused(read, tmp_path / f"{'n' * 300}.toml")


def test_bytes_that_are_no_text_are_named_with_their_line(read: Callable[[Path], object], tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_bytes(b"# a\n# \xff\n")
    assert "line 2: byte 0xff is not UTF-8" in refused(read, path)
    path.write_bytes(b"gpu,throughput\na\0b,1\n")
    assert "line 2: a NUL byte" in refused(read, path)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a = 1" + "0" * 5_000, "line 1: a number of more than 4,000 digits"),
        ("a = 0x" + "f" * 5_000, "a whole number of more than 64 bits"),
        ("a = 9223372036854775808", "a whole number of more than 64 bits"),
        ("\na = " + "[" * 1_000 + "]" * 1_000, "more than 16 lists or tables within each other"),
        ("\na = " + "[" * 20 + "]" * 20, "more than 16 lists or tables within each other"),
        ("a = " + "{b=" * 1_000, "more than 16 lists or tables within each other"),
        ("\n\n" + "a." * 900 + "a = 1", "more than 16 lists or tables within each other"),
        ("\n\n" + "a." * 100_000 + "a = 1", "line 3: more than 1,000 dots"),
    ],
)
def test_toml_that_a_parser_chokes_on_is_refused(text: str, reason: str) -> None:
    with pytest.raises(BadInput) as caught:
        inputs.toml_of(text, "x.toml", hint="mend it")
    assert reason in str(caught.value) and len(str(caught.value)) < 200


def test_brackets_in_texts_and_comments_are_not_nesting() -> None:
    deep = "[" * 100
    text = f'a = "{deep}"\nb = \'{deep}\'\n# {deep}\nc = """\n{deep}\\""""""\n'
    text += f"d = '''{deep}'''\n'{deep}.a.a.a.a.a.a.a.a.a' = 1\n"
    table = inputs.toml_of(text, "x.toml", hint="mend it")
    assert (table["a"], table["d"], table["c"]) == (deep, deep, f'{deep}"""')


@pytest.mark.parametrize("text", ["[" * 5_000, "1" * 5_000, '{"a": NaN}', '{"a": 1e', "\0", '{"a": 18446744073709551616}'])
def test_json_that_a_parser_chokes_on_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"x\.json"):
        inputs.json_of(text, "x.json", hint="mend it")


def test_a_byte_order_mark_is_no_part_of_a_text(tmp_path: Path) -> None:
    """As editors on Windows write it: matrices, settings, locks and price lists are read with it as without it."""
    path = tmp_path / "x.toml"
    path.write_bytes(
        b"\xef\xbb\xbf[[price]]\r\ngpu = 'L40S'\r\nprice_per_hour = 1\r\ncurrency = 'EUR'\r\nsource = 'x'\r\n"
        b"date = 2026-01-31\r\n"
    )
    assert list(prices.load(path).prices) == ["L40S"]
    path.write_bytes(
        b'\xef\xbb\xbf[[stack]]\ntorch = "2.5.1"\ncpu = true\n[[workload]]\nmodel = "resnet50"\nbatch = 1\ndevice = "cpu"\n'
    )
    assert matrix_file.load(path).stacks


def test_a_table_with_semicolons_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("gpu;price_per_hour;currency\nL40S;1;EUR\n")
    for read in (figure_files.take, prices.load):
        with pytest.raises(BadInput, match="separated by semicolons") as caught:
            read(path)
        assert "separate them by commas" in caught.value.hint


def test_a_table_has_bounds(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a," * 2_000 + "\n1\n")
    assert "more than 1,000 columns" in refused(figure_files.take, path)
    path.write_text("a\n" + "1\n" * 100_001)
    assert "more than 100,000 rows" in refused(figure_files.take, path)
    path.write_text('a\n"' + "x" * 200_000 + '"\n')
    assert "line 2: field larger than field limit" in refused(figure_files.take, path)


def test_a_lone_surrogate_is_refused_with_its_line() -> None:
    with pytest.raises(BadInput, match="a file, line 2: half a character"):
        inputs.toml_of("a = 1\n# \ud800\n", "a file", hint="h")
