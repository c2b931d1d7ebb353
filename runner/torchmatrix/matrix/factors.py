"""Every factor: one thing that a workload can vary. All that the tool knows of it stands in its entry here.

Derived from the entries: the keys of [[workload]], the conditions of --where, the box's flags, the ids, what two launches must
share to be compared, the columns of tables and exports, the labels and pairs of the charts. A new factor is one entry here and
the lines in images/workload that take its flag and act on it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torchmatrix.ground.toml_keys import Key

Value = str | int | float | bool | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Contrast:
    """Two values that are compared with all else equal: `value` over `over`, in `words` for a chart's title.

    `name` is the setting in tables of such pairs.
    """

    name: str
    value: Value
    over: Value
    words: tuple[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Factor:
    """`name`: its key in matrix.toml and --where, and its field in the facts. `meaning`: a phrase for readers.

    What it may be: `kind`, `choices`, `minimum`, `maximum`; with `axis` a list multiplies. `default`: also assumed for
    facts recorded before the factor existed; None: the batch is required, the optimizer depends on the library.
    `asked`: whether it is a key of [[workload]].

    `flag` of the box; a truth value passes it alone, if it isn't the default. `part` of the id, at `place` among
    the parts ({}: the value), left out for the default unless `always_in_id`. `label`: the same for charts.

    It applies to `libraries`, `modes` and `devices` (empty: all); elsewhere its value is None. `decides`: whether it may change
    the figure; then launches that differ in it aren't compared. `has_column`: in tables and exports, under its name.
    """

    name: str
    meaning: str
    kind: type
    default: Value = None
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    axis: bool = True
    asked: bool = True
    flag: str
    part: str = ""
    place: int = 50
    always_in_id: bool = False
    label: str = ""
    libraries: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    decides: bool = True
    has_column: bool = True
    contrasts: tuple[Contrast, ...] = ()

    @property
    def may_be_none(self) -> bool:
        """Does it apply to some workloads only?"""
        return bool(self.libraries or self.modes or self.devices)

    def key(self) -> Key:
        """What [[workload]] takes."""
        return Key(
            kind=self.kind,
            default=self.default,
            choices=self.choices,
            minimum=self.minimum,
            maximum=LARGEST if self.maximum is None and self.kind is int else self.maximum,
            axis=self.axis,
            meaning=f"{self.meaning[0].upper()}{self.meaning[1:]}.",
        )

    def applies(self, library: str | None, mode: Value, device: Value) -> bool:
        """Does it mean something to models of this library (None: of any), in this mode, on this device (gpu or cpu)?"""
        return (
            (not self.libraries or library in self.libraries)
            and (not self.modes or mode in self.modes)
            and (not self.devices or device in self.devices)
        )

    def part_for(self, value: Value) -> str:
        """What an id says of `value`; "" if nothing."""
        said = value is not None and (self.always_in_id or value != self.default)
        return self.part.format(value) if said else ""

    def label_for(self, value: Value) -> str:
        """What a chart says of `value`; "" if nothing."""
        return self.label.format(value) if value is not None and value != self.default else ""

    def words_for(self, value: Value) -> tuple[str, ...]:
        """Of the box's command line."""
        if value is None or (isinstance(value, bool) and value == self.default):
            return ()
        return (self.flag,) if isinstance(value, bool) else (self.flag, str(value))

    def recorded_in(self, workload: Mapping[str, Any]) -> Any:
        """Its value in a launch's facts; the default where they don't have it yet and it applies, else None."""
        if self.name in workload:
            return workload[self.name]
        return self.default if self.applies(None, workload.get("mode"), workload.get("device", "gpu")) else None


LARGEST = 1_000_000_000
"""Of any whole number."""
PRECISIONS = ("fp32", "tf32", "amp", "amp-bf16")

FACTORS = (
    Factor(name="model", meaning="what is trained or run", kind=str, flag="--model", part="{}", place=1),
    Factor(
        name="mode", meaning="train or infer", kind=str, default="train", choices=("train", "infer"),
        flag="--mode", part="{}", place=2, always_in_id=True,
    ),
    Factor(
        name="precision", meaning="as requested: fp32 (IEEE), tf32, amp (fp16) or amp-bf16", kind=str, default="fp32",
        choices=PRECISIONS, flag="--precision", part="{}", place=3, always_in_id=True,
        contrasts=(
            Contrast(name="amp", value="amp", over="fp32", words=("AMP (float16)", "fp32")),
            Contrast(name="amp-bf16", value="amp-bf16", over="fp32", words=("AMP (bfloat16)", "fp32")),
            Contrast(name="tf32", value="tf32", over="fp32", words=("TF32", "fp32")),
        ),
    ),
    Factor(
        name="compile", meaning="with torch.compile", kind=bool, default=False, flag="--compile", part="compile", place=9,
        label="compiled",
        contrasts=(Contrast(name="compile", value=True, over=False, words=("torch.compile", "eager")),),
    ),
    Factor(
        name="channels_last", meaning="images in NHWC memory format", kind=bool, default=False, flag="--channels-last",
        part="nhwc", place=8, label="NHWC",
        contrasts=(Contrast(name="channels_last", value=True, over=False, words=("channels_last", "contiguous memory")),),
    ),
    Factor(
        name="attention", meaning="eager or sdpa; only for models with attention", kind=str, default="eager",
        choices=("eager", "sdpa"), flag="--attention", part="{}", place=7, always_in_id=True, label="{}",
        libraries=("transformers",),
    ),
    Factor(
        name="cudnn_benchmark", meaning="let cuDNN try its algorithms and keep the fastest", kind=bool, default=True,
        flag="--no-cudnn-benchmark", part="no-cudnn-benchmark", label="no cuDNN benchmark", devices=("gpu",),
        contrasts=(
            Contrast(name="cudnn_benchmark", value=True, over=False, words=("cudnn.benchmark", "cuDNN’s own choice")),
        ),
    ),
    Factor(
        name="grad", meaning="how inference turns gradients off: none (not at all), no_grad or inference_mode",
        kind=str, default="no_grad", choices=("none", "no_grad", "inference_mode"), flag="--grad", part="grad-{}",
        label="grad {}", modes=("infer",),
        contrasts=(
            Contrast(name="grad-none", value="none", over="no_grad", words=("gradients recorded", "no_grad")),
            Contrast(name="inference_mode", value="inference_mode", over="no_grad", words=("inference_mode", "no_grad")),
        ),
    ),
    Factor(
        name="optimizer", meaning="by default sgd for vision, adamw for transformers", kind=str,
        choices=("sgd", "adamw"), axis=False, flag="--optimizer", part="{}", place=10, has_column=False,
    ),
    Factor(
        name="batch", meaning="items per device and step", kind=int, minimum=1, flag="--batch", part="b{}", place=4,
        decides=False, has_column=False,
    ),  # two launches must share the batch that was used, which is recorded apart
    Factor(
        name="image_size", meaning="pixels per side", kind=int, default=224, minimum=32, flag="--image-size", part="{}px",
        place=5, always_in_id=True, libraries=("torchvision",), has_column=False,
    ),
    Factor(
        name="sequence_length", meaning="tokens per sequence", kind=int, default=128, minimum=2, flag="--sequence-length",
        part="s{}", place=6, always_in_id=True, libraries=("transformers",), has_column=False,
    ),
    Factor(
        name="parallel", meaning="what several processes share: ddp, no-sync (no all-reduce) or independent (nothing)",
        kind=str, default="ddp", asked=False, flag="--parallel", part="{}", place=100, has_column=False,
    ),
    Factor(
        name="steps", meaning="minimum number of steps in a timed window", kind=int, default=50, minimum=1, axis=False,
        flag="--steps", has_column=False,
    ),
    Factor(
        name="seconds", meaning="minimum seconds of a timed window", kind=float, default=0.0, minimum=0, maximum=86_400,
        axis=False, flag="--seconds", has_column=False,
    ),
    Factor(
        name="windows", meaning="number of timed windows", kind=int, default=1, minimum=1, axis=False, flag="--windows",
        has_column=False,
    ),
    Factor(
        name="warmup_steps", meaning="minimum number of warm-up steps", kind=int, default=10, minimum=1,
        axis=False, flag="--warmup-steps", has_column=False,
    ),
    Factor(
        name="warmup_seconds", meaning="minimum seconds of warm-up, regardless of the caps", kind=float, default=0.0,
        minimum=0, maximum=86_400, axis=False, flag="--warmup-seconds", has_column=False,
    ),
    Factor(
        name="warmup_cap", meaning="maximum number of warm-up steps, if the step time drifts; by default only seconds limit it",
        kind=int, minimum=1, axis=False, flag="--warmup-cap", has_column=False,
    ),
    Factor(
        name="warmup_cap_seconds", kind=float,
        meaning="maximum seconds of warm-up, if the step time drifts; 0 with the methods cold and aime",
        default=300.0, minimum=0, maximum=86_400, axis=False, flag="--warmup-cap-seconds", decides=False, has_column=False,
    ),
)  # fmt: skip
"""In the order in which lists multiply: the first varies slowest."""

BY_NAME = {factor.name: factor for factor in FACTORS}
COLUMNS = tuple(factor for factor in FACTORS if factor.has_column)
CONTRASTED = tuple(factor for factor in FACTORS if factor.contrasts)
"""Those of whose values the charts show pairs."""


def id_of(values: Mapping[str, Value]) -> str:
    """The factors' part of a workload's id."""
    ordered = sorted(FACTORS, key=lambda factor: factor.place)
    return "-".join(part for factor in ordered if (part := factor.part_for(values.get(factor.name))))
