"""site.json: the list of a site's runs for programs, so that facts and tables can be fetched without reading a page."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from torchmatrix import __version__
from torchmatrix.reporting.site.permalinks import FACTS, RUNS, Page, identity_of

FORMAT = 1
"""Fields may be added; any other change is another format."""


def of(target: Path, known: Mapping[str, Page], redacted: bool) -> dict[str, Any]:
    """All runs in the order of their start. Addresses are relative to site.json and percent-encoded."""
    runs = [_run(target, slug, about) for slug, about in known.items()]
    runs.sort(key=lambda run: (run["started_unix_seconds"] or 0.0, run["page"]))
    return {"format": FORMAT, "tool": __version__, "redacted": redacted, "runs": runs}


def _run(target: Path, slug: str, about: Page) -> dict[str, Any]:
    """One run. `machine`: the folder of its runs, which is one machine's only, unlike `host`.

    `facts`: the archive of its facts and its identity; None if somebody has removed it.
    """
    place, archive = f"{RUNS}/{quote(slug)}", target / RUNS / slug / FACTS
    told = {
        name: about.get(name) for name in ("run", "machine", "host", "started_unix_seconds", "complete", "cells", "cells_ok")
    }
    facts = None
    if archive.is_file():  # an older version's run.json doesn't say
        facts = {"address": f"{place}/{FACTS}"} | (about.get("facts") or identity_of(archive.read_bytes()))
    return told | {"page": f"{place}/index.html", "tables": f"{place}/tables/", "facts": facts}
