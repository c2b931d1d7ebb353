"""matrix.toml, requirements, the words of a selection, and the configuration of a language model."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from random import Random

from faults.borders._mutating import ODD, held, in_files, mixed, mutated
from torchmatrix.core import assets
from torchmatrix.machine.host import Host
from torchmatrix.matrix import matrix_file, own_models
from torchmatrix.planning.fit import Prerequisites
from torchmatrix.planning.plan import make_plan
from torchmatrix.planning.selection import select

_SMALL = """[run]
launches = 3
method = "steady"
timeout_minutes = 30.0
[gpus]
counts = [1, 2]
lists = [[0, 1]]
[cpus]
counts = [1]
when = "always"
[[stack]]
name = "own"
torch = "2.5.1"
cpu = true
python = "3.11"
packages = ["numpy<2"]
index = "https://example.org/simple"
[[stack]]
image = "nvcr.io/nvidia/pytorch:25.02-py3"
[[workload]]
model = ["resnet50", "bert-base-cased"]
batch = { default = 8, "80GB" = 16 }
precision = ["fp32", "amp"]
stacks = ["own*"]
[[workload]]
device = "cpu"
model = "resnet18"
batch = 2
steps = 5
"""
_HOST = Host(
    name="here", vendor=None, gpus=(), driver=None, cuda_driver=None, cpu="some CPU", cores=tuple(range(8)), numa_nodes=1,
    governor=None, memory_bytes=1 << 36, kernel="6.1", os="Linux", architecture="x86_64", python="3.11.7",
)  # fmt: skip
_SUPPLIES = Prerequisites(containers=True)
_CONFIG = json.dumps({
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "max_position_embeddings": 256,
    "quantization_config": {"quant_method": "mxfp4"}, "rope_scaling": {"factor": 8.0}, "eos_token_id": [1, 2],
}, indent=2)  # fmt: skip
_CODINGS = ("utf-16", "utf-16-be", "utf-32", "utf-8-sig", "latin-1", "utf-7")
_WHERE = ("model=resnet50", "stack=own*", "count=1", "torch=2.5.1", "gpus=gpu0")


def cases(random: Random) -> Iterator[Callable[[], None]]:
    """Yield mutated matrices, planned where they are good; a tenth of them of the default one. Mutated words of --where, and
    configurations.
    """
    configs = in_files(random, "config.json", _configuration, lambda path: own_models.read(path.name, path.parent).as_model())
    return mixed(random, _matrices(random), _matrices(random), configs)


def _configuration(random: Random) -> bytes:
    """Return a mutated configuration, in a tenth of the cases in another coding."""
    coding = random.choice(_CODINGS) if random.random() < 0.1 else "utf-8"
    return mutated(_CONFIG, random).encode(coding, errors="surrogatepass" if "utf-8" in coding else "replace")


def _matrices(random: Random) -> Iterator[Callable[[], None]]:
    default = assets.DEFAULT_MATRIX.read_text()
    plan = make_plan(matrix_file.parse(_SMALL), _HOST, _SUPPLIES)
    while True:
        chance = random.random()
        if chance < 0.2:
            condition = mutated(random.choice(_WHERE), random)
            yield partial(held, partial(select, plan, [random.choice(ODD)] if chance < 0.1 else [], [condition]), condition)
        else:
            text = mutated(default if chance < 0.25 else _SMALL, random)
            yield partial(held, partial(_plan, text), text)


def _plan(text: str) -> None:
    make_plan(matrix_file.parse(text), _HOST, _SUPPLIES)
