"""The recipes of training with the products of linear layers in float8: the precisions that have one, and what each says.

An entry here is all that the workload needs for a new recipe of a library that it knows (float8.py).
"""

from typing import NamedTuple, Tuple

TORCHAO, TORCHAO_MX = "torchao.float8", "torchao.prototype.moe_training.mxfp8_linear"
TRANSFORMER_ENGINE = "transformer_engine.pytorch"
IN_BLOCKS = {"mxfp8": "float8", "mxfp4": "int4", "nvfp4": "int4"}
"""What torchao quantizes a trained model to with a scale for each block, and the type whose limits in the proofs it shares, but
for those that FLOAT8 has in training, too."""


def with_blocks(limits):
    """Return limits by type with those of IN_BLOCKS."""
    return {**limits, **{name: limits[like] for name, like in IN_BLOCKS.items()}}


def is_of_transformer_engine(precision):
    """Say whether Transformer Engine's layers compute in `precision`: in a context of its own, unseen by torch."""
    return precision in FLOAT8 and FLOAT8[precision].library == TRANSFORMER_ENGINE


class Recipe(NamedTuple):
    """A recipe. `library`, a module, has it as `name`. Numbers share a scale by what is `scaled`: tensor, row or block of 32.

    `capability`: the least one of NVIDIA's GPUs; on others float8 is untried. `gradients`: the type of gradients of outputs.
    `multiple`: of the sides of all matrices.
    """

    library: str
    name: str
    capability: Tuple[int, int]
    scaled: str
    gradients: str = "float8_e4m3fn"
    multiple: int = 16


FLOAT8 = {
    "fp8": Recipe(TORCHAO, "tensorwise", (8, 9), "tensor", "float8_e5m2"),
    "fp8-rowwise": Recipe(TORCHAO, "rowwise", (9, 0), "row"),
    "mxfp8": Recipe(TORCHAO_MX, "mxfp8_rceil", (10, 0), "block", multiple=32),
    "fp8-te": Recipe(TRANSFORMER_ENGINE, "Float8CurrentScaling", (8, 9), "tensor", "float8_e5m2"),
}
"""By precision. Weights stay float32, inputs and weights are e4m3, and all but linear layers is autocast to bfloat16."""
