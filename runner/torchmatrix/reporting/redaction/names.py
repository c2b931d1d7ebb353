"""Pseudonyms: the same for one name on every page of a results folder, stored beside the facts and never published."""

import fcntl
import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping
from pathlib import Path

from torchmatrix.ground.errors import BadInput, EngineUnusable
from torchmatrix.ground.files import plain_bytes, plain_open, write_whole

FILE, LOCK = ".pseudonyms.json", ".pseudonyms.lock"
VERSION = 1


class Pseudonyms:
    """Numbers for names, in the order in which they are first requested. `secret`: known to this results folder only."""

    def __init__(self, numbers: Mapping[str, Mapping[str, int]] | None = None, secret: str = "") -> None:
        self._numbers = {kind: dict(names) for kind, names in (numbers or {}).items()}
        self.secret = secret or secrets.token_hex(16)

    def of(self, kind: str, name: str) -> str:
        """A pseudonym such as host-1; upper and lower case count as the same.

        That of a machine is another identity: where facts of several sites come together, machine-1 would be many machines.
        """
        if kind == "machine":
            return hmac.new(self.secret.encode(), name.casefold().encode(), hashlib.sha256).hexdigest()[:16]
        numbers = self._numbers.setdefault(kind, {})
        return f"{kind}-{numbers.setdefault(name.casefold(), len(numbers) + 1)}"

    def save(self, root: Path) -> None:
        """Store them in a results folder, readable only by its owner. Raises EngineUnusable."""
        path = root / FILE
        held = {"version": VERSION, "secret": self.secret, "numbers": self._numbers}
        try:
            with plain_open(root / LOCK, "a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                self._refuse_others(load(root) if path.exists() else self)
                write_whole(path, json.dumps(held, indent=1).encode(), mode=0o600)
        except OSError as error:
            raise EngineUnusable(
                f"can't write {path}: {error.strerror}",
                hint="pseudonyms must stay the same from one publication to the next: make the results folder writable",
            ) from None

    def _refuse_others(self, stored: "Pseudonyms") -> None:
        """Raise EngineUnusable if those that are stored by now would become other ones."""
        lost = any(self._numbers.get(kind, {}).get(name) != n for kind, of in stored._numbers.items() for name, n in of.items())
        if lost or stored.secret != self.secret:
            raise EngineUnusable(
                "another command has given pseudonyms meanwhile", hint="nothing was shown under others: the same command again"
            )


_MOST_BYTES = 64 << 20


def load(root: Path) -> Pseudonyms:
    """Those stored in a results folder, if any. Raises BadInput if the file is damaged."""
    path = root / FILE
    try:
        held = json.loads(plain_bytes(path, _MOST_BYTES))
        return Pseudonyms({str(kind): dict(names) for kind, names in held["numbers"].items()}, str(held["secret"]))
    except FileNotFoundError:
        return Pseudonyms()
    except OSError as error:
        raise EngineUnusable(f"can't read {path}: {error.strerror}", hint="fix its permissions") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise BadInput(
            f"{path} is damaged", hint="remove it: names then get new pseudonyms, so publish into a new folder"
        ) from None
