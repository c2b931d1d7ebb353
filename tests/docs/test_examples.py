"""The committed example pages are what this version renders."""

import example


def test_the_example_pages_are_not_stale() -> None:
    """Run `make docs` if this fails."""
    for name, text in example.pages().items():
        assert (example.TARGET / name).read_text(encoding="utf-8") == text, f"{name} is stale: run make docs"


def test_the_stacks_of_the_real_example_are_what_their_names_say() -> None:
    text = (example.TARGET / "index.html").read_text(encoding="utf-8")
    assert ">other build<" not in text and all(f"torch-{release}" in text for release in ("1.12.1", "2.5.1", "2.7.1", "2.15.0"))
    assert "1.12.1+cu102" in text and "2.15.0+cu132" in text, "the builds that were installed"
