"""The committed example pages are what this version renders."""

import base64
import re

import example

_TABLE = re.compile(r'href="data:text/csv;base64,([^"]*)"')
_NUMBER = re.compile(r"-?\d+\.\d{10,}(?:e-?\d+)?")


def rounded(page: str) -> str:
    """Return a page with its tables as text, long numbers to 12 digits: processors differ in how they add up many numbers."""
    text = _TABLE.sub(lambda match: base64.b64decode(match[1]).decode(), page)
    return _NUMBER.sub(lambda match: f"{float(match[0]):.12g}", text)


def test_the_example_pages_are_not_stale() -> None:
    """Run `make docs` if this fails."""
    for name, text in example.pages().items():
        committed = (example.TARGET / name).read_text(encoding="utf-8")
        assert rounded(committed) == rounded(text), f"{name} is stale: run make docs"


def test_the_stacks_of_the_real_example_are_what_their_names_say() -> None:
    text = (example.TARGET / "index.html").read_text(encoding="utf-8")
    assert ">other build<" not in text and all(f"torch-{release}" in text for release in ("1.12.1", "2.5.1", "2.7.1", "2.15.0"))
    assert "1.12.1+cu102" in text and "2.15.0+cu132" in text, "the builds that were installed"
