"""The recipes of training with the products of linear layers in float8: the precisions that have one, and what each says.

An entry here is all that the workload needs for a new recipe of a library that it knows (float8.py).
"""

from typing import NamedTuple, Tuple


class Recipe(NamedTuple):
    """A recipe. `library` has it as `name`. Numbers that share a scale are `scaled` alike: those of a tensor or of a row.

    `capability`: the least one of NVIDIA's GPUs; on others float8 is untried. `gradients`: the type of gradients of outputs.
    """

    library: str
    name: str
    capability: Tuple[int, int]
    scaled: str
    gradients: str = "float8_e4m3fn"


FLOAT8 = {
    "fp8": Recipe("torchao", "tensorwise", (8, 9), "tensor", "float8_e5m2"),
    "fp8-rowwise": Recipe("torchao", "rowwise", (9, 0), "row"),
}
"""By precision. Weights stay float32, inputs and weights are e4m3, and all but linear layers is autocast to bfloat16."""
