"""Published tables as audit reads them, and JSON."""

from collections.abc import Callable, Iterator
from functools import partial
from random import Random

from faults.borders._mutating import as_bytes, held, in_files, mixed, mutated
from torchmatrix.analysis.published import figure_files
from torchmatrix.core import inputs

_TABLE = """vendor,framework,mode,gpu,gpus,model,precision,batch_per_gpu,throughput,unit,torch,source,notes
NVIDIA,pytorch,training,A100 SXM4 80GB,8,resnet50,amp,256,"21,050.5",images/s,2.1.0,https://example.org/a,
NVIDIA,pytorch,training,A100 SXM4 80GB,1,resnet50,fp32,128,812,images/s,2.1.0,https://example.org/a,"a, b"
Lambda,pytorch,inference,H100 PCIe,1,bert-base-cased,amp fp16,64,1500.25,sequences/s,,https://example.org/b,
"""
_TIMM = """model,infer_samples_per_sec,infer_step_time,infer_batch_size,infer_img_size,infer_gmacs,param_count
resnet50,4302.84,237.9,1024,224,4.11,25.56
resnet18,9853.1,103.9,1024,224,1.82,11.69
"""
_LAMBDA = "name_gpu,num_gpu,resnet50,bert_base_squad\n8x_A100_80GB,8,2300.5,1804\nRTX_3090,1,194,88.1\n"
_JSON = '{"version": 1, "platform": "linux/amd64", "files": {"a": {"bytes": 3, "sha256": "00"}}, "images": {}, "n": [1, 2.5e3]}'


def cases(random: Random) -> Iterator[Callable[[], None]]:
    """Yield mutated tables of three layouts, as files, and mutated JSON."""

    def of(text: str) -> Callable[[Random], bytes]:
        return lambda random: as_bytes(mutated(text, random))

    return mixed(
        random,
        in_files(random, "published.csv", of(_TABLE), figure_files.take),
        in_files(random, "benchmark-infer-amp-nhwc-pt240-cu124-rtx4090.csv", of(_TIMM), figure_files.take),
        in_files(random, "pytorch-train-throughput-fp16.csv", of(_LAMBDA), figure_files.take),
        _texts(random),
    )


def _texts(random: Random) -> Iterator[Callable[[], None]]:
    while True:
        text = mutated(_JSON, random)
        yield partial(held, partial(inputs.json_of, as_bytes(text), "some.json", hint="mend it"), text)
