"""Generation with a static cache is proven against a pass without one, piece by piece; what isn't done gives no figure."""

from collections import Counter

import pytest

from support.boxes import bench, only

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
    "only what is looked at is decoded": IN_FORWARD.format(
        "if begin and begin not in self._depths: return self._latest\n"
        "    self._latest = inner(self, tokens, begin)\n"
        "    return self._latest"
    ),
}


SAID = {
    "the cache is not written": "but was",
    "an early stop": "a generation ended after 4 of 8 tokens",
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
