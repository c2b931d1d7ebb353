"""Which Pythons this machine has, and where uv downloads others from."""

import subprocess
import sys

from torchmatrix.engines import packages

UV_PYTHONS = ("https://github.com/astral-sh/python-build-standalone/releases", "https://releases.astral.sh")
"""Where uv's own Pythons come from: all versions of uv use the first address, newer ones also the second."""


def finds_python(request: str) -> bool:
    """Whether uv finds such a Python on this machine. `request`: a version ("3.11"), a range (">=3.9,<3.13") or a path."""
    command = [sys.executable, "-m", "uv", "python", "find", "--no-project", "--no-python-downloads", request]
    return subprocess.run(command, env=packages.environment(), cwd=packages.NEUTRAL_FOLDER, capture_output=True).returncode == 0


def python_sources() -> list[str]:
    """The addresses that uv may download a Python from; none if the user switched that off.

    https://docs.astral.sh/uv/reference/environment/ names the variables.
    """
    variables = packages.environment()
    if variables.get("UV_PYTHON_DOWNLOADS") in ("never", "manual") or variables.get("UV_OFFLINE") in ("1", "true"):
        return []
    mirror = variables.get("UV_PYTHON_INSTALL_MIRROR") or variables.get("UV_ASTRAL_MIRROR_URL")
    return [mirror] if mirror else list(UV_PYTHONS)
