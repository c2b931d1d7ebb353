"""What a user may write as a container image: the grammar of registries and engines, so that a slip shows before the pull."""

import re

from torchmatrix.ground.toml_keys import shown

_DOMAIN = r"(?:localhost|(?=[^/]*[.:])[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?)(?::[0-9]+)?"
_PATH = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_NAMED = re.compile(rf"(?:{_DOMAIN}/)?{_PATH}(?:/{_PATH})*(?::\w[\w.-]{{0,127}})?", re.ASCII)
_LONGEST = 255
"""Letters of a name, without tag and digest."""
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")
"""https://github.com/distribution/reference/blob/main/reference.go"""


def why_not(text: str) -> str | None:
    """Why a text can't be an image reference, in words that follow its key; None if it can."""
    scheme, found, _ = text.partition("://")
    if found:
        return f'is an address, not an image reference: write it without "{shown(scheme)}://"'
    named, at, digest = text.partition("@")
    if at and not _DIGEST.fullmatch(digest):
        return f'has a malformed digest, "{shown(digest)}": a digest is sha256: and 64 of the digits 0-9 and a-f'
    if not _NAMED.fullmatch(named) or len(re.sub(r":[^/:]*\Z", "", named)) > _LONGEST:
        return f'is not an image reference such as nvcr.io/nvidia/pytorch:25.02-py3: "{shown(text)}"'
    return None


def without_igpu(image: str) -> str | None:
    """The tag of NVIDIA's beside an image for integrated GPUs, as Jetson and IGX Orin have them; None for other images.

    https://docs.nvidia.com/igx-orin/user-guide/latest/igpu-dgpu.html
    """
    named = image.partition("@")[0]
    return named.removesuffix("-igpu") if named.startswith("nvcr.io/nvidia/") and named.endswith("-igpu") else None
