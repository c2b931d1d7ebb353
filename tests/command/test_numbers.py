"""Numbers on the command line that no verb can use: each is refused by name, with a hint and exit code 2, in short."""

import pytest

from support import Command

HUGE = "9" * 5_000
LIMITED = (
    ("run", "--launches"),
    ("run", "--budget"),
    ("doctor", "--deep", "--seconds"),
    ("export", "out", "--scale"),
    ("gate", "--tolerance"),
    ("nightly", "unit", "--keep"),
    ("nightly", "unit", "--disk-gb"),
    ("nightly", "unit", "--free-gb"),
)


@pytest.mark.parametrize("number", ["1000000000", "-1", "nan", "inf", HUGE])
@pytest.mark.parametrize("words", LIMITED, ids=lambda words: f"{words[0]} {words[-1]}")
def test_a_number_out_of_range_is_refused(torchmatrix: Command, words: tuple[str, ...], number: str) -> None:
    done = torchmatrix(*words, number)
    assert done.returncode == 2 and done.stdout == "", done.stdout
    assert done.stderr.startswith(f"error: Invalid value for '{words[-1]}': ") and "\nhint: " in done.stderr
    assert len(done.stderr) < 400 and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("report", f"last~{HUGE}"),
        ("report", f"last-{HUGE}d"),
        ("compare", f"last~{HUGE}", "last"),
        ("history", "--since", f"last-{HUGE}"),
        ("history", "--since", HUGE),
        ("nightly", "unit", "--at", HUGE),
        ("run", "--until", f"{HUGE}%"),
        ("run", "--until", "nan%"),
        ("run", "--until", "-1%"),
    ],
    ids=lambda words: " ".join(words)[:24],
)
def test_a_number_within_a_word_is_refused_in_a_short_message(torchmatrix: Command, words: tuple[str, ...]) -> None:
    done = torchmatrix(*words)
    assert done.returncode in (2, 3) and "\nhint: " in done.stderr and done.stderr.startswith("error: ")
    assert len(done.stderr) < 500 and "Traceback" not in done.stderr


@pytest.mark.parametrize("words", [("audit",), ("gather",), ("reproduce",), ("report",), ("export",), ("plan", "--matrix")])
def test_a_name_that_no_file_can_have_is_refused_in_a_short_message(torchmatrix: Command, words: tuple[str, ...]) -> None:
    done = torchmatrix(*words, "n" * 3000)
    assert done.returncode == 2 and done.stderr.startswith("error: ") and "Errno" not in done.stderr
    assert "\nhint: " in done.stderr and len(done.stderr) < 700
