"""Generation with a static cache is proven against a pass without one, piece by piece; what isn't done gives no figure."""

import subprocess
from collections import Counter

import pytest

from support.boxes import bench, only
from torchmatrix.core import assets

GENERATE = (
    "--model", "lm-1m", "--mode", "generate", "--batch", "2", "--sequence-length", "16", "--output-length", "8", "--steps", "2",
    "--windows", "2", "--warmup-steps", "2", "--warmup-cap", "2", "--requests", "4",
)  # fmt: skip


def test_a_generation_counts_its_output_and_agrees_with_a_pass_without_a_cache(real_python: str) -> None:
    code, events, stderr = bench(real_python, *GENERATE)
    assert code == 0, stderr
    windows = [event for event in events if event["event"] == "sample" and event["phase"] == "measure"]
    assert [window["items"] for window in windows] == [2 * 8 * 2] * 2
    reference = only(events, "reference")
    assert reference["agrees"] is True and reference["proof"] == "full" and reference["parity"]["rows"] == 2 * 4
    streams = {event["phase"]: event for event in events if event["event"] == "stream"}
    assert streams["prefill"]["items"] == [2 * 16] * 4 and streams["prefill"]["requests"] == [0, 1, 2, 3]
    assert streams["decode"]["items"] == [2] * 4 * 7 and Counter(streams["decode"]["requests"]) == dict.fromkeys(range(4), 7)
    assert {event["unit"] for event in streams.values()} == {"tokens"}


LAYERS, HIDDEN, HEADS, KV_HEADS, WIDTH, INNER, WORDS = 4, 128, 4, 2, 32, 384, 1024
"""The sizes of lm-1m, as models.json has them."""


def test_the_roof_and_the_least_work_of_a_generation_are_recorded(real_python: str) -> None:
    code, events, stderr = bench(real_python, *GENERATE)
    assert code == 0, stderr
    roof = only(events, "roof")
    block = HIDDEN * WIDTH * (2 * HEADS + 2 * KV_HEADS) + 3 * HIDDEN * INNER
    assert roof["weight_bytes"] == 4 * (LAYERS * (block + 2 * HIDDEN) + HIDDEN + WORDS * HIDDEN)  # the table is also the head
    depth = sum(range(17, 24)) / 7  # of a step of decode: its own token and all before it
    assert roof["cache_bytes"] == pytest.approx(2 * 4 * LAYERS * KV_HEADS * WIDTH * 2 * depth)
    pairs = 16 * 17 / 2
    flops = 2 * (16 * LAYERS * block + WORDS * HIDDEN) + 4 * LAYERS * HEADS * WIDTH * pairs
    assert roof["prefill_flops"] == pytest.approx(2 * flops, rel=1e-4)  # the rotary angles are a product, too
    assert roof["expert_share"] is None and roof["product_type"] == "float32"
    assert roof["limit_bytes_per_second"] >= max(roof[f"{kind}_bytes_per_second"] for kind in ("copy", "triad", "read")) > 0


def test_of_experts_those_count_that_the_routers_chose(newest_python: str) -> None:
    words = [word if word != "lm-1m" else "lm-10m-moe" for word in GENERATE]
    code, events, stderr = bench(newest_python, *words)
    assert code == 0, stderr
    roof, whole = only(events, "roof"), only(events, "setup")["parameters"] * 4
    assert 0.25 <= roof["expert_share"] <= 0.5 and roof["weight_bytes"] < 0.7 * whole  # 2 tokens, each to a quarter of them
    remarks = [text for event in events if event["event"] == "remarks" for text in event["texts"]]
    assert any("spread the tokens evenly" in text for text in remarks), remarks
    reference = only(events, "reference")
    assert 0 < reference["formula_flops_per_item"] < reference["flops_per_item"] < 2 * only(events, "setup")["parameters"] * 3


IN_FORWARD = """
import measurements.generate as generate
inner = generate._Generator._forward
def forward(self, tokens, begin):
    {0}
generate._Generator._forward = forward
"""
CACHE = "import transformers.cache_utils as c; c.{0} = lambda self, *words, **named: {1}"
SABOTAGES = {
    "the cache is not written": IN_FORWARD.format(
        "kept = [(layer.keys.clone(), layer.values.clone()) for layer in self._cache.layers if layer.keys is not None]\n"
        "    logits = inner(self, tokens, begin)\n"
        "    [(l.keys.copy_(k), l.values.copy_(v)) for l, (k, v) in zip(self._cache.layers, kept)]\n"
        "    return logits"
    ),
    "wrong positions": IN_FORWARD.format("return inner(self, tokens, begin - 1 if begin else 0)"),
    "a layer is skipped in decode": IN_FORWARD.format(
        "layers = self._model.model.layers\n"
        "    if begin: self._model.model.layers = layers[:-1]\n"
        "    logits = inner(self, tokens, begin)\n"
        "    self._model.model.layers = layers\n"
        "    return logits"
    ),
    "an early stop": """
import torch
import measurements.generate as generate
inner = generate._Generator.pieces
def pieces(self, batch):
    logits = None
    for number, (phase, logits) in enumerate(inner(self, batch)):
        yield phase, logits
        if number == 3:
            return
generate._Generator.pieces = pieces
""",
    "a repeated prompt is served from a cache": """
import measurements.generate as generate
inner, known = generate._Generator.pieces, {}
def pieces(self, batch):
    key = id(batch)
    if key not in known:
        known[key] = batch, list(inner(self, batch))
    yield from known[key][1]
generate._Generator.pieces = pieces
""",
    "only what is looked at is decoded": IN_FORWARD.format(
        "if begin and begin not in self._depths: return self._latest\n"
        "    self._latest = inner(self, tokens, begin)\n"
        "    return self._latest"
    ),
}


SAID = {
    "the cache is not written": "but was",
    "an early stop": "a generation ended after 4 of 8 tokens",
    "a repeated prompt is served from a cache": "GB/s at most: the work was not done",
}
"""What is seen before the outputs are compared with those of eager fp32."""


@pytest.mark.parametrize("sabotage", SABOTAGES)
@pytest.mark.representative
def test_a_generation_that_does_not_do_its_work_gives_no_number(real_python: str, sabotage: str) -> None:
    code, events, stderr = bench(real_python, *GENERATE, before=SABOTAGES[sabotage])
    assert code != 0, stderr
    failure = only(events, "failure")
    assert failure["kind"] == "numerics" and SAID.get(sabotage, "eager fp32") in failure["message"], failure
    assert not any(event["event"] == "done" for event in events)


NARROW = """
from transformers import cache_utils
real = cache_utils.StaticLayer.update
def update(self, keys, values, *args, **words):
    return tuple(tensor.float() for tensor in real(self, keys.half(), values.half(), *args, **words))
cache_utils.StaticLayer.update = update
"""


def test_a_cache_of_fewer_bits_than_the_weights_is_told(real_python: str) -> None:
    for before, told in ((NARROW, True), ("", False)):
        _, events, stderr = bench(real_python, *GENERATE, before=before)
        texts = [text for event in events if event["event"] == "remarks" for text in event["texts"]]
        assert ("the cache keeps numbers in float16, with fewer bits than the weights" in texts) is told, (texts, stderr)


@pytest.mark.parametrize("python", ["real_python", "newest_python"])
@pytest.mark.parametrize("precision", ["half", "bf16-weights"])
def test_a_generation_in_16_bits_is_proven_by_whatever_kernel_its_attention_is_computed(
    request: pytest.FixtureRequest, python: str, precision: str
) -> None:
    """In torch 2.5 the pass without a cache has no kernel for its mask on a CPU: it computes attention in float32."""
    words = (*GENERATE, "--precision", precision, "--attention", "sdpa")
    code, events, stderr = bench(request.getfixturevalue(python), *words)
    assert code == 0 and only(events, "reference")["agrees"] is True, (events, stderr)


ATTENTION = """
import sys
sys.path.insert(0, sys.argv[1])
import torch
from torch.nn import functional
from proofs import arithmetic

def watched():
    seen, heads = arithmetic.Watched(), torch.rand(1, 2, 8, 16).half()
    with torch.no_grad():
        seen.see(lambda: functional.scaled_dot_product_attention(heads, heads, heads, torch.zeros(8, 8).half()) @ heads.mT)
    return seen

assert set(watched().apart_from_attention) == {"float16"} and watched().attentions == 1
own = lambda query, key, value, mask: (query.float() @ key.float().mT).softmax(-1).half() @ value
functional.scaled_dot_product_attention = own
assert watched().apart_from_attention == watched().products and len(watched().products) == 2
"""


def test_only_torchs_own_attention_may_compute_in_another_type(real_python: str) -> None:
    done = subprocess.run([real_python, "-c", ATTENTION, str(assets.WORKLOAD)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
