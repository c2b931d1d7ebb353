"""The committed example pages are what this version renders."""

import example


def test_the_example_pages_are_not_stale() -> None:
    """Else: make docs."""
    for name, text in example.pages().items():
        assert (example.TARGET / name).read_text(encoding="utf-8") == text, f"{name} is stale: run make docs"


def test_the_real_example_names_the_builds_that_were_installed() -> None:
    text = (example.TARGET / "index.html").read_text(encoding="utf-8")
    first = text[text.index("<header>") : text.index("</header>")]
    assert "other build" in first and "+cu" in first
