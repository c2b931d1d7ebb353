"""The address of each run of a site, and what earlier publications left there."""

import hashlib
import hmac
import json
import re
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from torchmatrix.facts.store import RunFolder
from torchmatrix.ground.errors import BadInput
from torchmatrix.ground.files import content_of
from torchmatrix.reporting.redaction import Redaction
from torchmatrix.reporting.redaction.names import Pseudonyms

RUNS, ABOUT, FACTS, STATE = "runs", "run.json", "facts.tar.gz", "site.json"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST = 100

Page = dict[str, Any]
"""The content of run.json."""


def of(target: Path, runs: Sequence[RunFolder], names: Pseudonyms, cleaner: Redaction, redact: bool) -> dict[RunFolder, str]:
    """The permalink of every run, in the order of `runs`: the one that it already has, else its id, else its id with a number.

    Raises BadInput if the folder isn't a site, or if it would then hold both redacted and other pages.
    """
    earlier = known(target)
    for run in runs:
        cleaner.learn(next(iter(run.events()), {}))
    held = {str(page.get("key")): slug for slug, page in earlier.items() if page.get("redacted") or cleaner.text(slug) == slug}
    found: dict[RunFolder, str] = {}
    for run in runs:
        plain = _UNSAFE.sub("-", cleaner.text(run.id)).strip(".-")[:_LONGEST] or "run"
        numbered = (plain if number == 1 else f"{plain}-{number}" for number in count(1))
        free = (slug for slug in numbered if slug not in earlier and slug not in found.values())
        found[run] = held.get(key_of(run, names)) or next(free)
    if state_of(target).get("redacted") and not redact:
        raise BadInput(f"{target} is a redacted site", hint="add --redact, or publish into another folder")
    if redact:
        refuse_bare(target, earlier, now=list(found.values()))
    return found


def known(target: Path) -> dict[str, Page]:
    """What earlier publications wrote, by permalink. Raises BadInput if the folder's index isn't ours."""
    if (target / "index.html").exists() and not (target / STATE).exists():
        raise BadInput(f"{target} has an index.html that isn't ours", hint="name another folder; nothing was changed")
    return {path.parent.name: read(path.parent) for path in sorted(target.glob(f"{RUNS}/*/{ABOUT}"))}


def read(folder: Path) -> Page:
    """The run.json of a run's folder; empty if there is none."""
    return _object_in(folder / ABOUT)


def _object_in(path: Path) -> Page:
    try:
        return dict(json.loads(content_of(path)))
    except (FileNotFoundError, ValueError, TypeError, RecursionError):
        return {}


def state_of(target: Path) -> Page:
    """The site.json of a site; empty if there is none."""
    return _object_in(target / STATE)


def identity_of(content: bytes) -> dict[str, Any]:
    """What tells a reader of site.json whether it already has a file."""
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def key_of(run: RunFolder, names: Pseudonyms) -> str:
    """Identifies a run of a results folder, but reveals nothing to a reader."""
    text = f"{run.path.parent.name}/{run.id}"
    return hmac.new(names.secret.encode(), text.encode(), hashlib.sha256).hexdigest()[:32]


def refuse_bare(target: Path, known: Mapping[str, Page], now: Sequence[str] = ()) -> None:
    """Raise BadInput if the site holds folders of runs that aren't redacted, nor published `now`: it is redacted as a whole or
    not at all. One that a killed command left tells nothing of itself; in a site that was redacted before, it is.
    """
    was_redacted = bool(state_of(target).get("redacted"))
    folders = {
        path.name for path in target.glob(f"{RUNS}/*") if path.is_dir() and not (was_redacted and path.name not in known)
    }
    bare = [f"{RUNS}/{slug}" for slug in sorted(folders - set(now)) if not known.get(slug, {}).get("redacted")]
    if bare:
        raise BadInput(
            f"{target} holds {len(bare)} pages that were published without --redact and are not published now",
            hint=f"publish into another folder, or remove them first: {', '.join(bare[:3])}",
        )
