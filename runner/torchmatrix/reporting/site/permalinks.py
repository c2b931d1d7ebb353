"""Which run of a site has which address, and what earlier publications left there."""

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
from torchmatrix.reporting.redaction import Redaction
from torchmatrix.reporting.redaction.names import Pseudonyms

RUNS, ABOUT, STATE = "runs", "run.json", "site.json"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST = 100

Page = dict[str, Any]
"""What run.json says."""


def of(target: Path, runs: Sequence[RunFolder], names: Pseudonyms, cleaner: Redaction, redact: bool) -> dict[RunFolder, str]:
    """The permalink of every run, in the order of `runs`: that which it has already, else its id, else that with a number.

    Raises BadInput where the folder is no site, or where redacted and other pages would stand side by side.
    """
    earlier = known(target)
    for run in runs:
        cleaner.learn(next(iter(run.events()), {}))
    held = {str(page.get("key")): slug for slug, page in earlier.items()}
    found: dict[RunFolder, str] = {}
    for run in runs:
        plain = _UNSAFE.sub("-", cleaner.text(run.id)).strip(".-")[:_LONGEST] or "run"
        numbered = (plain if number == 1 else f"{plain}-{number}" for number in count(1))
        free = (slug for slug in numbered if slug not in earlier and slug not in found.values())
        found[run] = held.get(key_of(run, names)) or next(free)
    _refuse_mixture(target, earlier, list(found.values()), redact)
    return found


def known(target: Path) -> dict[str, Page]:
    """What earlier publications wrote, by permalink. Raises BadInput where the folder's index isn't ours."""
    if (target / "index.html").exists() and not (target / STATE).exists():
        raise BadInput(f"{target} has an index.html that isn't ours", hint="name another folder; nothing was changed")
    return {path.parent.name: read(path.parent) for path in sorted(target.glob(f"{RUNS}/*/{ABOUT}"))}


def read(folder: Path) -> Page:
    """What a run's folder says of itself; nothing if it doesn't."""
    try:
        return dict(json.loads((folder / ABOUT).read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError, TypeError):
        return {}


def key_of(run: RunFolder, names: Pseudonyms) -> str:
    """Tells a run of a results folder from all others, and tells a reader nothing."""
    text = f"{run.path.parent.name}/{run.id}"
    return hmac.new(names.secret.encode(), text.encode(), hashlib.sha256).hexdigest()[:32]


def _refuse_mixture(target: Path, earlier: Mapping[str, Page], now: Sequence[str], redact: bool) -> None:
    """A redacted site gets no page that isn't, and none that isn't may stay in one that is redacted from now on."""
    try:
        was_redacted = bool(json.loads((target / STATE).read_text(encoding="utf-8"))["redacted"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        was_redacted = False
    if was_redacted and not redact:
        raise BadInput(f"{target} is a redacted site", hint="add --redact, or publish into another folder")
    bare = [f"{RUNS}/{slug}" for slug, page in earlier.items() if not page.get("redacted") and slug not in now]
    if redact and bare:
        raise BadInput(
            f"{target} holds {len(bare)} pages that were published without --redact and are not published now",
            hint=f"publish into another folder, or remove them first: {', '.join(bare[:3])}",
        )
