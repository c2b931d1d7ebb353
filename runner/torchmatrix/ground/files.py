"""Files that are read or written the same way in several rooms."""

from pathlib import Path


def text_of(path: Path) -> str | None:
    """The text of a small file, such as one of /sys, without surrounding white space; None if it can't be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return None


def write_whole(path: Path, content: bytes) -> None:
    """Write a file atomically: readers never see half of it, and a failure leaves the old one in place. Raises OSError."""
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_bytes(content)
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
