"""A [[stack]] table -> Stack: one software combination, completed from the catalog."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from torchmatrix.core.formatting import clipped, printable
from torchmatrix.core.toml_keys import ADDRESS, ADDRESSES, NAME, Key, Place, Problems, Table, check, shown
from torchmatrix.matrix import catalog

# Python requirements that a user may write: a name with versions (PEP 508), or a name with the address of its file.
#
# Requirements reach uv and pip in files of one requirement a line, where anything else could be an option or a path.

_ADDRESS = re.compile(r"(git\+)?https://[A-Za-z0-9][A-Za-z0-9.-]*(:\d+)?/[^\s\\?&;]*")
LINE = re.compile(
    r"(?:[A-Za-z0-9][\w.-]*==[\w.!+-]+|(?P<named>[A-Za-z0-9][\w.-]* @ \S+))((?: --hash=sha(256|384|512):[0-9a-f]+)*)", re.ASCII
)
"""A locked requirement: one version, or one address, and the hashes of its files."""


def requirement_problem(text: str) -> str | None:
    """Return why a text can't be a requirement, in words that follow it; None if it can."""
    try:
        requirement = Requirement(text)
    except (InvalidRequirement, RecursionError) as error:
        return f"is not a requirement such as numpy<2 (PEP 508): {clipped(printable(str(error).partition(chr(10))[0]))}"
    if requirement.url is not None and not _ADDRESS.fullmatch(requirement.url):
        return "has an address other than https://… or git+https://…"
    return None


def locked_line_problem(line: str) -> str | None:
    """Return why a line of a lock can't be a requirement, in words that follow it; None if it can."""
    match = LINE.fullmatch(line)
    if match is None:
        return "is not a locked requirement such as numpy==1.26.4 --hash=sha256:…"
    return requirement_problem(match["named"]) if match["named"] else None


# Container images that a user may write: the grammar of registries and engines, so that a slip shows before the pull

_DOMAIN = r"(?:localhost|(?=[^/]*[.:])[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?)(?::[0-9]+)?"
_PATH = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_NAMED = re.compile(rf"(?:{_DOMAIN}/)?{_PATH}(?:/{_PATH})*(?::\w[\w.-]{{0,127}})?", re.ASCII)
_LONGEST = 255
"""Characters of a name, without tag and digest."""
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")
"""https://github.com/distribution/reference/blob/main/reference.go"""


def reference_problem(text: str) -> str | None:
    """Return why a text can't be an image reference, in words that follow its key; None if it can."""
    scheme, separator, _ = text.partition("://")
    if separator:
        return f'is an address, not an image reference: write it without "{shown(scheme)}://"'
    named, at, digest = text.partition("@")
    if at and not _DIGEST.fullmatch(digest):
        return f'has a malformed digest, "{shown(digest)}": a digest is sha256: and 64 of the digits 0-9 and a-f'
    if not _NAMED.fullmatch(named) or len(re.sub(r":[^/:]*\Z", "", named)) > _LONGEST:
        return f'is not an image reference such as nvcr.io/nvidia/pytorch:25.02-py3: "{shown(text)}"'
    return None


def without_igpu(image: str) -> str | None:
    """Return the tag for discrete GPUs of an NVIDIA image for integrated ones (Jetson, IGX Orin); None for other images.

    https://docs.nvidia.com/igx-orin/user-guide/latest/igpu-dgpu.html
    """
    named = image.partition("@")[0]
    return named.removesuffix("-igpu") if named.startswith("nvcr.io/nvidia/") and named.endswith("-igpu") else None


# Wheels that a [[stack]] pins by address and hash: the way to builds that are no release, such as a nightly, soon deleted

NEEDED = ("torch", "torchvision")
"""The packages that the self-test trains with."""
_WHEEL_ADDRESS = re.compile(
    r"(?P<folder>https://[A-Za-z0-9][A-Za-z0-9.-]*(?::\d+)?(?:/[^\s\\?&;#]*)?)/(?P<file>[^\s\\?&;#/]+\.whl)", re.ASCII
)
_HASH = re.compile(r"sha256=([0-9a-f]{64})")


@dataclass(frozen=True, kw_only=True, slots=True)
class Pinned:
    """One wheel. `variant`: such as cu126, "" if its version doesn't name one; `python`: such as "3.12", "" for any; `folder`:
    its address without the file's name; `requirement`: as pip and uv read it (PEP 508), with the hash."""

    name: str
    version: str
    variant: str
    python: str
    folder: str
    requirement: str


def read_pinned_wheels(texts: Iterable[str]) -> tuple[dict[str, Pinned], list[str]]:
    """Parse wheels; return them by name, and the problems with them."""
    parsed = [_parse_wheel(text) for text in texts]
    problems = [wheel for wheel in parsed if isinstance(wheel, str)]
    wheels = {wheel.name: wheel for wheel in parsed if isinstance(wheel, Pinned)}
    missing = [name for name in NEEDED if name not in wheels]
    if missing and not problems:
        problems.append(f"lacks {' and '.join(missing)}")
    elif len(wheels) + len(problems) < len(parsed):
        problems.append("names a package twice")
    return wheels, problems


def _parse_wheel(text: str) -> Pinned | str:
    """Parse an address such as https://…/torch-2.8.0.dev20250601%2Bcu126-cp312-cp312-….whl#sha256=…; else return why not."""
    address, _, fragment = text.partition("#")
    match = _WHEEL_ADDRESS.fullmatch(address)
    if match is None:
        return f'"{shown(text)}" is not the address of a wheel, https://….whl#sha256=…'
    if not _HASH.fullmatch(fragment):
        return f'"{shown(match["file"])}" has no hash to tell whether it is the same file: add #sha256= and 64 digits'
    try:
        name, version, _, tags = parse_wheel_filename(unquote(match["file"]))
    except InvalidWheelFilename:
        return f'"{shown(match["file"])}" is not the name of a wheel'
    if not any(tag.platform == "any" or "linux" in tag.platform for tag in tags):
        return f'"{shown(match["file"])}" is not for Linux'
    python = next((f"{tag.interpreter[2]}.{tag.interpreter[3:]}" for tag in tags if tag.interpreter.startswith("cp3")), "")
    return Pinned(
        name=name, version=version.public, variant=version.local or "", python=python, folder=match["folder"],
        requirement=f"{name} @ {text}",
    )  # fmt: skip


def architecture_of(requirement: str) -> str | None:
    """Return the architecture of the wheel at a requirement's address, such as x86_64; None for any, or without address."""
    match = re.search(r"_(x86_64|aarch64)\.whl#", requirement)
    return match[1] if match else None


PYPI = "https://pypi.org/simple"


@dataclass(frozen=True, kw_only=True, slots=True)
class Index:
    """A package index and the exact torch requirements that it serves for one stack."""

    url: str
    requirements: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Stack:
    """One software combination.

    `source`: "wheels" (torch from a package index), "image" (a vendor's image that holds torch) or "interpreter" (a
    Python on this machine that holds torch). `accelerator`: "cuda", "rocm", "xpu", "cpu", or "any" for an interpreter, which
    uses what the machine has. `torch` and `cuda` (such as "12.4") are None where they are not known, as in an image that
    no table lists. `python`: a version such as "3.11", or the interpreter's path; `python_range`: the
    other versions that may be used on this machine if the user named none.
    """

    name: str
    source: str
    accelerator: str
    torch: str | None = None
    variant: str | None = None
    cuda: str | None = None
    python: str | None = None
    python_range: str | None = None
    image: str | None = None
    base: str | None = None
    indexes: tuple[Index, ...] = ()
    packages: tuple[str, ...] = ()
    compile_python: str | None = None


_VERSION = Key(
    kind=str, longest=64, pattern=r"[0-9][0-9A-Za-z.]*", explanation="is not a version: write digits and dots, such as 2.5.1"
)
_WHEEL_VERSION = replace(_VERSION, pattern=rf"{_VERSION.pattern}(\+[0-9a-z.]+)?")
"""A version as pip shows it: with the variant of its wheel, which has a key of its own here."""
_VARIANTS = ("cuda", "rocm", "xpu", "cpu")
"""The keys that choose among the wheels of a release, named for their accelerators."""
_REFERENCE = Key(kind=str, longest=350)
_INDEX = re.compile(r"https?://[A-Za-z0-9][^\s\\]*|file:///[^\s\\]*")
KEYS: dict[str, Key] = {
    "torch": replace(
        _WHEEL_VERSION,
        meaning="A release from 1.12.1 on that `images/catalog.toml` lists; needs `cuda`, `rocm`, `xpu` or `cpu`.",
    ),
    "cuda": replace(_VERSION, meaning='The wheels for this CUDA version, such as `"12.4"`.'),
    "rocm": replace(_VERSION, meaning='The wheels for this ROCm version, such as `"6.2"`.'),
    "xpu": Key(kind=bool, default=False, meaning="The wheels for Intel's GPUs, from 2.6.0 on."),
    "cpu": Key(kind=bool, default=False, meaning="The wheels for CPUs."),
    "image": replace(_REFERENCE, meaning="A container image that contains PyTorch; it is kept as it is."),
    "accelerator": Key(
        kind=str,
        choices=_VARIANTS,
        meaning="What an image is for; derived for NVIDIA's, AMD's and PyTorch's.",
    ),
    "wheels": replace(
        ADDRESSES,
        meaning="Wheels of PyTorch and torchvision that are no release, such as a nightly's: `https://….whl#sha256=…` each.",
    ),
    "python": Key(
        kind=str,
        pattern=r"[0-9]+\.[0-9]+|[^-].*/.*",
        explanation="is neither a version such as 3.11 nor the path of an interpreter",
        meaning='For wheels a version such as `"3.11"`; or the path of an interpreter that has PyTorch.',
    ),
    "name": replace(NAME, meaning="Part of cell ids; derived if left out."),
    "torchvision": replace(_WHEEL_VERSION, meaning="A version other than the catalog's."),
    "transformers": replace(_VERSION, meaning="A version other than the catalog's."),
    "packages": replace(
        ADDRESSES,
        meaning='Further requirements (PEP 508), such as `["numpy<2"]`. With `torch`, each must have a wheel.',
    ),
    "index": replace(ADDRESS, meaning="A package index instead of PyTorch's."),
    "base": replace(_REFERENCE, meaning="A container base instead of `python:X-slim-bookworm`."),
}


def make_stack(table: Table, place: Place, problems: Problems) -> Stack | None:
    """Make the stack that one [[stack]] table describes, or None if there is a problem with it."""
    before = problems.number
    values = check(table, KEYS, place, problems)
    _check_spellings(values, place, problems)
    is_path = "/" in (values["python"] or "")
    sources = [key for key in ("image", "torch", "wheels") if values[key]] + (["python"] if is_path else [])
    if len(sources) != 1 and problems.number == before:
        kinds = 'torch (wheels), image (a vendor\'s image), wheels (by address and hash) or python = "/path/to/python"'
        problems.add(place, None, f"needs exactly one of {kinds}")
    if problems.number > before:
        return None
    makers = {"torch": _wheels_stack, "image": _image_stack, "wheels": _pinned_stack, "python": _interpreter_stack}
    stack = makers[sources[0]](values, place, problems)
    return stack if problems.number == before else None


def _check_spellings(values: dict[str, Any], place: Place, problems: Problems) -> None:
    """Check images, and versions as pip shows them: "2.3.0+cu118" says two things that are two keys here."""
    for key in ("image", "base"):
        if values[key] and (why := reference_problem(values[key])):
            problems.add(place, key, why)
    for key in ("torch", "torchvision"):
        version, plus, variant = (values[key] or "").partition("+")
        if plus and key == "torch" and not version.replace(".", "").isdecimal():
            problems.add(place, key, f'"{values[key]}" is no release{_NIGHTLY}')
        elif plus:
            also = (
                catalog.key_of(variant)
                or 'cuda = "12.4", rocm = "6.2", xpu = true or cpu = true; there are no other wheels here'
            )
            problems.add(place, key, f'names its wheels by "+{variant}": write {key} = "{version}" and {also}')


def _refuse(values: dict[str, Any], keys: tuple[str, ...], why: str, place: Place, problems: Problems) -> None:
    for key in keys:
        if values[key]:
            problems.add(place, key, why)


def _wheels_stack(values: dict[str, Any], place: Place, problems: Problems) -> Stack | None:
    facts = catalog.load()
    release = facts.releases.get(values["torch"])
    if release is None:
        near = ", ".join(catalog.nearest_versions(values["torch"], facts.releases))
        nightly = _NIGHTLY if "dev" in values["torch"] else ""
        problems.add(place, "torch", f'unknown version "{values["torch"]}"; the nearest: {near}{nightly}')
        return None
    _check_sources(values, place, problems)
    _refuse(values, ("accelerator",), "is only for image and python stacks; use cuda, rocm, xpu or cpu", place, problems)
    variant = _variant(values, release, place, problems)
    python = values["python"] or release.default_python
    transformers = values["transformers"] or release.transformers
    _check_python(python, release, transformers, place, problems)
    if variant is None:
        return None
    return Stack(
        name=values["name"] or f"torch{release.torch}-{variant}",
        source="wheels",
        accelerator=catalog.accelerator_of(variant),
        torch=release.torch,
        variant=variant,
        cuda=catalog.cuda_of(variant) if variant.startswith("cu") else None,
        python=python,
        python_range=None if values["python"] else _python_range(release, transformers),
        base=values["base"] or facts.wheels_base.format(python=python),
        indexes=_indexes(release, variant, values, facts.pytorch_index),
        packages=(f"transformers=={transformers}", *release.also, *values["packages"]),
        compile_python=release.compile_python,
    )


_NIGHTLY = '; a nightly is pinned by address and hash: wheels = ["https://….whl#sha256=…", …]'


def _pinned_stack(values: dict[str, Any], place: Place, problems: Problems) -> Stack | None:
    keys = ("accelerator", *_VARIANTS, "python", "torchvision")
    _refuse(values, keys, "comes with the wheels", place, problems)
    _check_sources(values, place, problems)
    wheels, wrong = read_pinned_wheels(values["wheels"])
    torch = wheels.get("torch")
    if torch and not wrong and not (torch.python and catalog.key_of(torch.variant)):
        wrong = ["torch's name tells no CPython, or no variant such as +cu126, +rocm6.2, +xpu or +cpu"]
    for why in wrong:
        problems.add(place, "wheels", why)
    if torch is None or wrong:
        return None
    facts = catalog.load()
    newest = list(facts.releases.values())[-1]
    # The other packages come from PyTorch's folder, if the wheel lies in it, and from PyPI.
    folder = torch.folder if torch.folder.startswith(f"{facts.pytorch_index}/") else PYPI
    return Stack(
        name=values["name"] or f"torch{torch.version}-{torch.variant}",
        source="wheels",
        accelerator=catalog.accelerator_of(torch.variant),
        torch=torch.version,
        variant=torch.variant,
        cuda=catalog.cuda_of(torch.variant) if torch.variant.startswith("cu") else None,
        python=torch.python,
        base=values["base"] or facts.wheels_base.format(python=torch.python),
        indexes=(Index(url=values["index"] or folder, requirements=tuple(wheel.requirement for wheel in wheels.values())),),
        packages=(f"transformers=={values['transformers'] or newest.transformers}", *newest.also, *values["packages"]),
        compile_python=torch.python,
    )


def _check_sources(values: dict[str, Any], place: Place, problems: Problems) -> None:
    if values["index"] and not _INDEX.fullmatch(values["index"]):
        problems.add(place, "index", f'is not the address of a package index, https://…: "{shown(values["index"])}"')
    for requirement in values["packages"]:
        if why := requirement_problem(requirement):
            problems.add(place, "packages", f'"{shown(requirement)}" {why}')


def _check_python(python: str, release: catalog.Release, transformers: str, place: Place, problems: Problems) -> None:
    low, high = map(catalog.version_key, release.python)
    if not low <= catalog.version_key(python) <= high:
        problems.add(
            place, "python", f"torch {release.torch} has wheels for Python {' to '.join(release.python)}, not {python}"
        )
    elif catalog.version_key(python) < catalog.version_key(floor := _oldest_python(release, transformers)):
        problems.add(
            place, "python", f"transformers {transformers} needs Python {floor} or newer: also set an older transformers"
        )


def _oldest_python(release: catalog.Release, transformers: str) -> str:
    floor = catalog.load().transformers_python.get(transformers, release.python[0])
    return max(release.python[0], floor, key=catalog.version_key)


def _python_range(release: catalog.Release, transformers: str) -> str:
    """Return the Pythons that both releases have wheels for and torch can compile on, such as ">=3.9,<3.13"."""
    newest = min(release.python[1], release.compile_python or release.python[1], key=catalog.version_key)
    major, minor = newest.split(".")
    return f">={_oldest_python(release, transformers)},<{major}.{int(minor) + 1}"


def _variant(values: dict[str, Any], release: catalog.Release, place: Place, problems: Problems) -> str | None:
    named = [key for key in _VARIANTS if values[key]]
    if len(named) != 1:
        problems.add(place, None, 'needs exactly one of cuda = "12.4", rocm = "6.2", xpu = true or cpu = true')
        return None
    key = named[0]
    variant = {"cuda": "cu" + str(values[key]).replace(".", ""), "rocm": f"rocm{values[key]}"}.get(key, key)
    if variant not in release.wheels and not values["index"]:  # what another index serves isn't known
        valid = ", ".join(release.wheels)
        problems.add(place, key, f"torch {release.torch} has no {variant} wheels; it has: {valid}")
        return None
    return variant


def _indexes(release: catalog.Release, variant: str, values: dict[str, Any], pytorch: str) -> tuple[Index, ...]:
    """List the indexes of this torch, in order of preference: the variant's own index, then PyPI if it serves the variant."""
    vision = values["torchvision"] or release.torchvision
    plain = (f"torch=={release.torch}", f"torchvision=={vision}")
    if values["index"]:
        return (Index(url=values["index"], requirements=plain),)
    local = tuple(f"{requirement}+{variant}" for requirement in plain)
    pytorchs = Index(url=f"{pytorch}/{variant}", requirements=local)
    if variant in (release.pypi, "cpu"):
        return (pytorchs, Index(url=PYPI, requirements=plain))
    return (pytorchs,)


def _image_stack(values: dict[str, Any], place: Place, problems: Problems) -> Stack | None:
    why = "comes with the image; it is only for stacks of wheels"
    _refuse(values, (*_VARIANTS, "python", "torchvision", "base", "index"), why, place, problems)
    vendors, ngc = catalog.vendor_images(values["image"]), catalog.ngc_image(values["image"])
    accelerator = values["accelerator"] or (vendors.accelerator if vendors else None)
    if accelerator is None:
        problems.add(place, "accelerator", 'state what this image is for: accelerator = "cuda", "rocm", "xpu" or "cpu"')
        return None
    _check_sources(values, place, problems)
    path = re.sub(r"^[^/]*[.:][^/]*/", "", values["image"])
    packages = (f"transformers=={values['transformers']}",) if values["transformers"] else ()
    return Stack(
        name=values["name"] or re.sub(r"[^A-Za-z0-9._+-]+", "-", path),
        source="image",
        accelerator=accelerator,
        torch=(ngc.torch or None) if ngc else None,
        cuda=".".join(ngc.cuda.split(".")[:2]) if ngc else None,
        image=values["image"],
        packages=packages + values["packages"],
    )


def _interpreter_stack(values: dict[str, Any], place: Place, problems: Problems) -> Stack:
    why = "comes with the interpreter; it is only for stacks of wheels"
    keys = (*_VARIANTS, "torchvision", "transformers", "packages", "base", "index")
    _refuse(values, keys, why, place, problems)
    return Stack(
        name=values["name"] or "interpreter",
        source="interpreter",
        accelerator=values["accelerator"] or "any",
        python=values["python"],
    )
