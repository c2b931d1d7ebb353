"""Facts about PyTorch releases (images/catalog.toml), NGC images (images/ngc.csv) and models (models.json), as typed values."""

import csv
import json
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from torchmatrix.core import assets
from torchmatrix.machine.vendors import ACCELERATORS, VENDORS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


OPERATIONS = "operations"
"""The library of what is no model: the operations of microbenchmarks."""
OWN = "own"
"""The library of models that users write (own_models.py)."""
NGC = "nvcr.io/nvidia/pytorch"
"""The repository whose images ngc.csv lists."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Release:
    """One PyTorch release and what goes with it; the fields are described at the top of catalog.toml."""

    torch: str
    torchvision: str
    transformers: str
    python: tuple[str, str]
    default_python: str
    compile_python: str | None
    wheels: tuple[str, ...]
    pypi: str
    also: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Architectures:
    """The GPUs that the wheels of some variants, from one minor release of torch to another, hold code for; empty: not known.

    `machine`: what the wheels are for, such as x86_64.
    """

    machine: str
    oldest: tuple[int, ...]
    newest: tuple[int, ...]
    variants: tuple[str, ...]
    compiled: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Extra:
    """Packages that only the workloads of one library or runtime need, from one minor release of torch to another.

    `accelerators`: of the stacks that they are for. `python`: the oldest that they run on. `in_images`: whether they may be
    added to a vendor's image.
    """

    needed_by: str
    oldest: tuple[int, ...]
    newest: tuple[int, ...]
    accelerators: tuple[str, ...]
    python: str
    in_images: bool
    packages: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class NgcImage:
    """One row of ngc.csv: the content of NVIDIA's PyTorch image of one month.

    The columns: `tag`; `torch` (a commit between two releases), `cuda`, `cudnn`, `nccl` and `python` in it, empty if not
    known; `driver`, which came with this CUDA; `forward_compat`, the oldest driver of each older branch that runs it on
    data-centre GPUs; `unproven`, the columns that are from memory or inferred from another month's image. The others were
    read in NVIDIA's notes or tables of the month, of the container itself or of its siblings on the same base (Triton, MXNet,
    PyTorch for Jetson). For CUDA 13 those notes disagree: `forward_compat` is all that any of them allows.
    """

    tag: str
    torch: str
    cuda: str
    forward_compat: tuple[str, ...]

    @property
    def reference(self) -> str:
        """Return the image's reference, as `image` in a [[stack]] has it."""
        return f"{NGC}:{self.tag}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Range:
    """CUDA releases such as "12.6" from `oldest` to `newest`, both included with their updates; None: open."""

    oldest: str | None
    newest: str | None

    def holds(self, version: str) -> bool:
        """Check whether `version` (such as "12.8" or "12.8.1") is in the range."""
        key = version_key(version)[:2]
        return not (self.oldest and key < version_key(self.oldest)) and not (self.newest and key > version_key(self.newest))


@dataclass(frozen=True, kw_only=True, slots=True)
class VendorImages:
    """The images under one registry path: the kind of GPUs that they are for, and how much disk one takes at least."""

    accelerator: str
    gib: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Catalog:
    """All releases by torch version, oldest first, and the facts that concern more than one; see catalog.toml."""

    releases: dict[str, Release]
    drivers: dict[str, str]
    architectures: tuple[Architectures, ...]
    not_assembled: tuple[Architectures, ...]
    extras: tuple[Extra, ...]
    pytorch_index: str
    wheels_base: str
    vendor_packages: tuple[str, ...]
    vendor_images: dict[str, VendorImages]
    transformers_python: dict[str, str]
    ngc_cuda: dict[str, Range]
    data_centre: frozenset[str]
    wheels_gib: dict[str, float]
    layers: dict[str, tuple[str, ...]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """A model that the workload can build, as images/workload/families/models.json says.

    `unit`: the items that it processes (images, sequences, clips); `optimizer`: the one it is usually trained with; `takes`:
    the factors that apply to it besides those of every model, such as image_size. `parameters`: give a lower bound of the
    memory that it needs (None: not judged). `positions`: the longest sequence; `transformers`: the oldest release that has
    it; `generates`: whether it continues a text; `kv_bytes_per_token`: of its cache, in 16 bits;
    `windowed_bytes_per_token`: those that it keeps of the last `window` tokens only. `shared`: what devices share of it in
    tensor parallelism, with the number of each; empty: it can't be split. `forward_flops`: the floating-point operations of
    the forward pass, for `flops_per`: "token" (at least) or "image of 224 pixels", by a source or operations.json; else
    None. `vocabulary_flops`: those of them that compare a token with the vocabulary; `predicts_all`: if it is trained to,
    at each. `devices`: the least number that it needs.
    """

    name: str
    library: str
    unit: str
    optimizer: str
    takes: tuple[str, ...]
    parameters: int | None
    positions: int | None = None
    transformers: str | None = None
    generates: bool = False
    kv_bytes_per_token: int = 0
    window: int = 0
    windowed_bytes_per_token: int = 0
    shared: tuple[tuple[str, int], ...] = ()
    forward_flops: float | None
    flops_per: str | None
    vocabulary_flops: float = 0.0
    predicts_all: bool = False
    devices: int = 1


@cache
def load() -> Catalog:
    """Read catalog.toml once."""
    data = tomllib.loads((assets.IMAGES / "catalog.toml").read_text(encoding="utf-8"))
    return Catalog(
        releases={version: _release(version, table) for version, table in data["torch"].items()},
        drivers=data["driver"],
        architectures=tuple(_architectures(table, "compiled") for table in data["architectures"]),
        not_assembled=tuple(_architectures(table, "capabilities") for table in data["not_assembled"]),
        extras=tuple(map(_extra, data["extras"])),
        pytorch_index=data["index"]["pytorch"],
        wheels_base=data["base"]["wheels"],
        vendor_packages=tuple(data["vendor"]["usual_packages"]),
        vendor_images={
            path: VendorImages(accelerator=table["accelerator"], gib=table.get("gib"))
            for path, table in data["vendor_images"].items()
        },
        transformers_python=data["transformers_python"],
        ngc_cuda={
            capability: Range(oldest=table.get("oldest"), newest=table.get("newest"))
            for capability, table in data["ngc_cuda"].items()
        },
        data_centre=frozenset(data["data_centre"]["names"]),
        wheels_gib=data["wheels_gib"],
        layers={name: tuple(globs) for name, globs in data["layers"].items()},
    )


@cache
def ngc_images() -> dict[str, NgcImage]:
    """Read ngc.csv once: every image by tag, oldest first."""
    with (assets.IMAGES / "ngc.csv").open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    return {
        row["tag"]: NgcImage(
            tag=row["tag"], torch=row["torch"], cuda=row["cuda"], forward_compat=tuple(row["forward_compat"].split())
        )
        for row in rows
    }


def ngc_image(reference: str | None) -> NgcImage | None:
    """Return the row of an image such as "nvcr.io/nvidia/pytorch:25.02-py3" (with or without a digest), or None."""
    repository, _, tag = (reference or "").partition("@")[0].partition(":")
    return ngc_images().get(tag) if repository == NGC else None


def vendor_images(reference: str) -> VendorImages | None:
    """Return the entry with the longest path that `reference` begins with, or None."""
    entries = load().vendor_images
    return next((entries[path] for path in sorted(entries, key=len, reverse=True) if reference.startswith(path)), None)


@cache
def models() -> dict[str, Model]:
    """Read models.json once: every model by name."""
    models = {library: facts for library, facts in _libraries().items() if library != OPERATIONS}
    return {name: _model(name, library, facts) for library, facts in models.items() for name in facts["models"]}


@cache
def operations() -> dict[str, Model]:
    """Return the operations of microbenchmarks, by the names that stand in the place of a model's."""
    facts = _libraries()[OPERATIONS]
    return {name: _model(name, OPERATIONS, facts) for name in facts["models"]}


@cache
def _libraries() -> dict[str, dict[str, Any]]:
    return dict(json.loads((assets.WORKLOAD / "families" / "models.json").read_text(encoding="utf-8")))


def default_of(library: str) -> Model:
    """Return a model of `library` that isn't listed, with the library's own facts."""
    return _model("", library, {**_libraries()[library], "models": {"": {}}})


def find(name: str) -> Model | None:
    """Find the model of that name: one of `models`, or any of a library whose models needn't be listed, as timm.resnet50d."""
    listed = models().get(name) or operations().get(name)
    prefixes = {library: facts["any"] for library, facts in _libraries().items() if "any" in facts}
    library = next((library for library, prefix in prefixes.items() if name.startswith(prefix)), None)
    if listed or library is None or not re.fullmatch(r"[a-z][A-Za-z0-9_.-]{1,80}", name):
        return listed
    return _model(name, library, {**_libraries()[library], "models": {name: {}}})


def usual_optimizer(model: str) -> str:
    """Return a model's optimizer unless the matrix names another; ids leave it out. Users' own models: sgd."""
    entry = find(model)
    return entry.optimizer if entry else "sgd"


@cache
def _counted() -> dict[str, dict[str, Any]]:
    """Read what tests/operations.py counted of the models whose operations no source states."""
    return dict(json.loads(Path(__file__).with_name("operations.json").read_text(encoding="utf-8")))


def positions_in(config: dict[str, Any]) -> int | None:
    """Return how many tokens a configuration of transformers allows; None if it says none."""
    text = config.get("text_config")
    parts = [config, text] if isinstance(text, dict) else [config]
    stated = next((part[key] for part in parts for key in ("max_position_embeddings", "n_positions") if part.get(key)), None)
    padding = config.get("pad_token_id", 1)
    is_after = str(config.get("model_type")).replace("_", "-") in _AFTER_PADDING and isinstance(padding, int)
    return max(stated - padding - 1, 1) if stated and is_after else stated


_AFTER_PADDING = frozenset(
    ("camembert", "data2vec-text", "ibert", "longformer", "mpnet", "roberta", "roberta-prelayernorm", "xlm-roberta",
     "xlm-roberta-xl", "xmod")
)  # fmt: skip
"""Types of transformers (5.23) whose tokens take the rows of the table of positions that come after the padding's own."""


def _model(name: str, library: str, facts: dict[str, Any]) -> Model:
    """Make a model of its entry, completed by the entry of its library."""
    entry = {**facts, **facts["models"][name]}
    flops, config = entry.get("flops") or _counted().get(name, {}), entry.get("config", {})
    window = entry.get("kv_window", {})
    return Model(
        name=name,
        library=library,
        unit=entry["unit"],
        optimizer=entry["optimizer"],
        takes=tuple(entry["takes"]),
        parameters=entry.get("parameters"),
        positions=entry.get("positions") or positions_in({"model_type": entry.get("type"), **config}),
        transformers=entry.get("transformers"),
        generates=entry["unit"] == "tokens",
        kv_bytes_per_token=entry.get("kv_bytes_per_token", 0),
        window=window.get("tokens", 0),
        windowed_bytes_per_token=window.get("bytes_per_token", 0),
        shared=_shared(entry, config),
        forward_flops=flops.get("forward"),
        flops_per=flops.get("per"),
        vocabulary_flops=flops.get("vocabulary", 0.0),
        predicts_all=entry.get("head") == "CausalLM",
        devices=entry.get("devices", 1),
    )


def _shared(entry: dict[str, Any], config: dict[str, Any]) -> tuple[tuple[str, int], ...]:
    """Return what devices share of a model whose type has a known layout; see images/workload/tensor_parallel.py."""
    layout = entry.get("tensor_parallel", {})
    if entry.get("type") not in layout.get("types", ()):
        return ()
    return tuple((what, config[key]) for key, what in layout["shared"].items())


def compiled_for(torch: str, variant: str, machine: str) -> tuple[str, ...] | None:
    """Return the compute capabilities or gfx names that this wheel holds code for, or None if the catalog doesn't know.

    `machine`: what the wheel is for, as x86_64 and aarch64.
    """
    row = _row_of(load().architectures, torch, variant, machine)
    return row.compiled or None if row else None


def not_assembled_for(torch: str, variant: str) -> tuple[str, ...]:
    """Return the compute capabilities of GPUs that run this wheel's code, but that its torch.compile has no assembler for."""
    row = _row_of(load().not_assembled, torch, variant, _USUAL)
    return row.compiled if row else ()


def has_wheels(torch: str, variant: str, machine: str) -> bool:
    """Check whether this release has wheels of a variant for the machine: for others than x86_64 the catalog lists all."""
    return (
        machine == _USUAL
        or accelerator_of(variant) == "cpu"
        or _row_of(load().architectures, torch, variant, machine) is not None
    )


_USUAL = "x86_64"


def _row_of(rows: Iterable[Architectures], torch: str, variant: str, machine: str) -> Architectures | None:
    minor = version_key(torch)[:2]
    suitable = (row for row in rows if variant in row.variants and row.oldest <= minor <= row.newest)
    return next((row for row in suitable if row.machine == machine), None)


def _architectures(table: dict[str, Any], key: str) -> Architectures:
    oldest, newest = map(version_key, table["torch"])
    variants, compiled = tuple(table["variants"]), tuple(table.get(key, ()))
    machine = table.get("machine", _USUAL)
    return Architectures(machine=machine, oldest=oldest, newest=newest, variants=variants, compiled=compiled)


def _extra(table: dict[str, Any]) -> Extra:
    oldest, newest = map(version_key, table["torch"])
    return Extra(
        needed_by=table["needed_by"],
        oldest=oldest,
        newest=newest,
        accelerators=tuple(table.get("accelerators", ACCELERATORS)),
        python=table.get("python", "3.7"),
        in_images=table.get("in_images", True),
        packages=tuple(table["packages"]),
    )


def extras_of(needed_by: str, accelerator: str) -> tuple[Extra, ...]:
    """Return the rows of a library or runtime for stacks of this accelerator; none if it needs nothing, or isn't listed."""
    return tuple(row for row in load().extras if row.needed_by == needed_by and accelerator in row.accelerators)


def accelerator_of(variant: str) -> str:
    """Return the accelerator of wheels of a variant such as cu124, rocm6.2, xpu or cpu: cuda, rocm, xpu or cpu."""
    return next((vendor.accelerator for vendor in VENDORS.values() if variant.startswith(vendor.wheels)), "cpu")


def cuda_of(variant: str) -> str:
    """Return the CUDA version of a wheel's variant: cu124 is 12.4."""
    return f"{variant[2:-1]}.{variant[-1]}"


def key_of(variant: str) -> str | None:
    """Return the key of a [[stack]] that requests wheels of this variant, such as cuda = "12.4"; None if unknown."""
    if re.fullmatch(r"cu\d{3}", variant):
        return f'cuda = "{cuda_of(variant)}"'
    if re.fullmatch(r"rocm\d+(\.\d+)+", variant):
        return f'rocm = "{variant.removeprefix("rocm")}"'
    return f"{variant} = true" if variant in ("cpu", "xpu") else None


def version_key(version: str) -> tuple[int, ...]:
    """Return the sort key of a dotted version number: "3.9" comes before "3.10"."""
    return tuple(int(part) for part in version.split(".") if part.isascii() and part.isdigit())


def nearest_versions(version: str, versions: Iterable[str]) -> list[str]:
    """Return the versions next to an unknown one: itself without a variant ("2.5.1+cu124"), its own patch releases ("2.5"),
    else the newest older and the oldest newer."""
    ordered, version = sorted(versions, key=version_key), version.partition("+")[0]
    if version in ordered:
        return [version]
    patches = [other for other in ordered if other.startswith(version + ".")]
    older = [other for other in ordered if version_key(other) < version_key(version)]
    newer = [other for other in ordered if version_key(other) > version_key(version)]
    return patches or older[-1:] + newer[:1]


def _release(version: str, table: dict[str, Any]) -> Release:
    oldest, newest = table["python"]
    return Release(
        torch=version,
        torchvision=table["torchvision"],
        transformers=table["transformers"],
        python=(oldest, newest),
        default_python=table["default_python"],
        compile_python=table.get("compile_python"),
        wheels=tuple(table.get("wheels", ())),
        pypi=table["pypi"],
        also=tuple(table.get("also", ())),
    )
