"""The catalog's releases from one to another, as [[stack]] tables of one accelerator."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torchmatrix.ground.errors import BadInput
from torchmatrix.ground.toml_keys import Place, Problems, nearest, shown
from torchmatrix.matrix import catalog
from torchmatrix.matrix.stacks import Stack, make_stack


@dataclass(frozen=True, kw_only=True, slots=True)
class Wheels:
    """One release and the variant of its wheels, such as cu124."""

    torch: str
    variant: str

    @property
    def name(self) -> str:
        """Of the stack."""
        return f"torch{self.torch}-{self.variant}"

    @property
    def table(self) -> dict[str, object]:
        """The keys of its [[stack]] table."""
        if self.variant == "cpu":
            return {"torch": self.torch, "cpu": True}
        if self.variant.startswith("rocm"):
            return {"torch": self.torch, "rocm": self.variant.removeprefix("rocm")}
        return {"torch": self.torch, "cuda": catalog.cuda_of(self.variant)}


def end_of(word: str, stacks: Sequence[Stack]) -> tuple[str, str | None]:
    """The release that `word` names, and the variant if it is the name of a stack of the matrix. Raises BadInput."""
    stack = next((stack for stack in stacks if stack.name == word), None)
    known = catalog.load().releases
    if stack is None and word not in known:
        near = ", ".join(catalog.nearest_versions(word, known)) if word[:1].isdigit() else ""
        hint = f"the nearest releases: {near}" if near else nearest(word, [stack.name for stack in stacks])
        raise BadInput(f"{shown(word)} is neither a release of the catalog nor a stack of the matrix", hint=hint)
    if stack is None:
        return word, None
    if stack.torch not in known or stack.variant is None:
        raise BadInput(
            f"stack {stack.name} is not made of a release's wheels, so no releases lie beside it",
            hint="--listed searches the stacks of the matrix instead of the catalog's releases",
        )
    if replace(stack, name="", packages=()) != replace(_plain(stack.torch, stack.variant), name="", packages=()):
        raise BadInput(
            f"stack {stack.name} has settings of its own, which the releases between don't have",
            hint=f"name the release: {stack.torch}, or --listed to search the stacks of the matrix",
        )
    return stack.torch, stack.variant


def between(old: str, new: str, accelerator: str, variants: Sequence[str | None]) -> list[Wheels]:
    """The releases from `old` to `new`, both included, that have wheels for `accelerator` (cuda, rocm or cpu), oldest first.

    `variants`: those that are wanted, None where an end names none; else it is the newest that all releases have. A release
    that lacks it has the variant that PyPI serves or, for ROCm, its newest. Raises BadInput.
    """
    order = sorted(catalog.load().releases, key=catalog.version_key)
    if order.index(old) >= order.index(new):
        raise BadInput(f"{old} is not older than {new}", hint=f"torchmatrix bisect OLD NEW: {new} {old}")
    names = order[order.index(old) : order.index(new) + 1]
    own = {name: _of(accelerator, catalog.load().releases[name].wheels) for name in names}
    missing = [name for name in (old, new) if not own[name]]
    if missing:
        raise BadInput(f"torch {missing[0]} has no wheels for {accelerator}", hint="name a release that has")
    wanted = [variant for variant in variants if variant] or _shared(own)
    return [Wheels(torch=name, variant=_chosen(name, own[name], wanted)) for name in names if own[name]]


def _shared(own: dict[str, list[str]]) -> list[str]:
    """The newest variant that all releases have."""
    every = [set(variants) for variants in own.values() if variants]
    return sorted(set.intersection(*every), key=_order)[-1:]


def _chosen(release: str, own: list[str], wanted: Sequence[str]) -> str:
    usual = catalog.load().releases[release].pypi
    return next((variant for variant in (*wanted, usual) if variant in own), own[-1])


def _of(accelerator: str, wheels: Sequence[str]) -> list[str]:
    return sorted((one for one in wheels if catalog.accelerator_of(one) == accelerator), key=_order)


def _order(variant: str) -> tuple[int, ...]:
    """By the version of CUDA or ROCm."""
    if variant.startswith("cu"):
        return catalog.version_key(catalog.cuda_of(variant))
    return catalog.version_key(variant.removeprefix("rocm"))


def _plain(torch: str, variant: str) -> Stack:
    stack = make_stack(Wheels(torch=torch, variant=variant).table, Place(header="[[stack]]"), Problems(""))
    assert stack is not None
    return stack
