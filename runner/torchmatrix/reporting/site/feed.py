"""changes.xml: the changes of level as an Atom feed (RFC 4287), one entry per run that changed any cell's level.

Ids follow from the site's secret, the host and the run, so that a reader meets an entry once, wherever the site is served.
"""

import hashlib
import hmac
import math
import time
import uuid
from collections.abc import Mapping, Sequence
from xml.etree import ElementTree

from torchmatrix import __version__
from torchmatrix.analysis.history import Change, Trend
from torchmatrix.ground.formatting import printable
from torchmatrix.reporting import history_page, terminal

FILE = "changes.xml"
MOST_ENTRIES = 50
"""The newest ones; the page of the history has them all."""
_ATOM = "http://www.w3.org/2005/Atom"


def of(trends: Sequence[Trend], pages: Mapping[tuple[str, str], str], newest: float, secret: str) -> bytes:
    """The feed. `pages`: the address of a run's report by host and run; `newest`: start of the newest run, in unix seconds."""
    runs = history_page.changes_by_run(trends)
    feed = ElementTree.Element("feed", {"xmlns": _ATOM})
    _text(feed, "title", "torchmatrix: changes of level")
    _text(feed, "id", _id(secret, "feed"))
    _text(feed, "updated", _time(newest))
    ElementTree.SubElement(feed, "link", {"rel": "self", "type": "application/atom+xml", "href": FILE})
    ElementTree.SubElement(feed, "link", {"rel": "alternate", "type": "text/html", "href": "history.html"})
    _text(ElementTree.SubElement(feed, "author"), "name", "torchmatrix")
    ElementTree.SubElement(feed, "generator", {"version": __version__}).text = "torchmatrix"
    launched = sum(trend.is_launched for trend in trends)
    for (host, run), pairs in list(runs.items())[:MOST_ENTRIES]:
        _entry(feed, _id(secret, host, run), pages.get((host, run), "history.html"), pairs, launched)
    ElementTree.indent(feed, " ")
    return bytes(ElementTree.tostring(feed, encoding="utf-8", xml_declaration=True)) + b"\n"


def _entry(feed: ElementTree.Element, name: str, page: str, pairs: Sequence[tuple[Trend, Change]], launched: int) -> None:
    entry = ElementTree.SubElement(feed, "entry")
    _text(entry, "title", history_page.headline(pairs, launched))
    _text(entry, "id", name)
    _text(entry, "updated", _time(pairs[0][1].started))
    ElementTree.SubElement(entry, "link", {"rel": "alternate", "type": "text/html", "href": page})
    lines = [f"{trend.cell}: {terminal.change_in_words(change)}" for trend, change in pairs]
    _text(entry, "content", "\n".join(map(printable, lines)))


def _text(parent: ElementTree.Element, tag: str, text: str) -> None:
    """XML can't hold control characters."""
    ElementTree.SubElement(parent, tag).text = "\n".join(map(printable, text.split("\n")))


def _id(secret: str, *names: str) -> str:
    digest = hmac.new(secret.encode(), "\0".join(names).encode(errors="replace"), hashlib.sha256).digest()
    return uuid.UUID(bytes=digest[:16], version=5).urn


def _time(seconds: float) -> str:
    """RFC 3339; what has no known time gets the epoch, since the format requires one."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(0 if math.isnan(seconds) else seconds))
