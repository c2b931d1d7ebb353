"""The cells that the suite measures on a real GPU, by name, and a loop that shares no code with the workload."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from gpu_machine import Machine

SETTINGS: dict[str, dict[str, Any]] = {
    "fp32": {"precision": "fp32"},
    "tf32": {"precision": "tf32"},
    "amp": {"precision": "amp"},
    "amp-bf16": {"precision": "amp-bf16"},
    "compiled": {"precision": "amp-bf16", "compile": True},
}
COMPUTED_IN = {"fp32": "fp32", "tf32": "tf32", "amp": "fp16", "amp-bf16": "bf16", "compiled": "bf16"}
"""The precision that matrix products must show, by setting."""
MODELS: dict[str, tuple[int, dict[str, Any]]] = {
    "resnet50": (128, {"channels_last": True}),
    "bert-large-cased": (32, {"sequence_length": 128, "attention": "sdpa"}),
}
"""The batch of each model and what else its cells have."""
DECODER = ("llama-3.2-1b-shape", 8)
GENERATE = {"mode": "generate", "precision": "bf16-weights", "sequence_length": 128, "output_length": 64, "attention": "sdpa"}
INFER = {"mode": "infer", "precision": "bf16-weights", "sequence_length": 128, "compile": True}


def _of(model: str, batch: int, settings: dict[str, Any]) -> Callable[[Machine], str]:
    return lambda machine: machine.workload(model, batch, **settings)


_TRAINING = {
    f"{model}-{name}": _of(model, batch, {**more, **settings})
    for model, (batch, more) in MODELS.items()
    for name, settings in SETTINGS.items()
}
_FLOAT8 = {
    f"bert-large-cased-{precision}": _of(
        "bert-large-cased", 32, {"precision": precision, "compile": True, "sequence_length": 128}
    )
    for precision in ("fp8", "fp8-rowwise", "mxfp8")
}
_QUANTIZED = {
    f"bert-large-cased-{runtime}": _of("bert-large-cased", 32, {**INFER, "runtime": runtime})
    for runtime in ("torchao-int8", "torchao-float8", "torchao-int4")
}
_GENERATION = {
    "decoder-eager": _of(*DECODER, GENERATE),
    "decoder-compiled": _of(*DECODER, {**GENERATE, "compile": True, "compile_mode": "reduce-overhead"}),
}
CELLS = {**_TRAINING, **_FLOAT8, **_QUANTIZED, **_GENERATION}


def bare_loop(model: str, batch: int, setting: str, seconds: float, warmup: int = 10, steps: int = 4) -> float:
    """Return items per second of plain training on the GPU. Its source runs in the interpreter with PyTorch, alone."""
    import time

    import torch

    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = setting == "tf32"
    torch.backends.cudnn.benchmark = True
    if model.startswith("resnet"):
        import torchvision

        size = 224 if model == "resnet50" else 32
        net = getattr(torchvision.models, model)().to("cuda").to(memory_format=torch.channels_last)
        data = [
            (torch.randn(batch, 3, size, size, device="cuda").to(memory_format=torch.channels_last),
             torch.randint(1000, (batch,), device="cuda"))
            for _ in range(4)
        ]  # fmt: skip
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
    else:
        import transformers

        large = {"vocab_size": 28996, "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16}
        tiny = {"vocab_size": 30522, "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
        width = 128 if model == "bert-tiny" else 1024
        config = transformers.BertConfig(**(tiny if model == "bert-tiny" else large), intermediate_size=4 * width)
        config._attn_implementation = "sdpa"
        net = transformers.BertForQuestionAnswering(config).to("cuda")
        size = 16 if model == "bert-tiny" else 128
        ends = partial(torch.randint, size, (batch,), device="cuda")
        data = [(torch.randint(28996, (batch, size), device="cuda"), ends(), ends()) for _ in range(4)]
        mask = torch.ones(batch, size, dtype=torch.long, device="cuda")
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-5)
    run = torch.compile(net.train()) if setting == "compiled" else net.train()
    dtype = torch.float16 if setting == "amp" else torch.bfloat16
    scaler = torch.cuda.amp.GradScaler(enabled=setting == "amp") if hasattr(torch.cuda.amp, "GradScaler") else None

    def step(number: int) -> None:
        x, *rest = data[number % 4]
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=dtype, enabled=setting not in ("fp32", "tf32")):
            if model.startswith("resnet"):
                loss = torch.nn.functional.cross_entropy(run(x), rest[0])
            else:
                loss = run(x, attention_mask=mask, start_positions=rest[0], end_positions=rest[1]).loss
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    for number in range(warmup):
        step(number)
    torch.cuda.synchronize()
    begin, number = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        for _ in range(steps):
            step(number)
            number += 1
        torch.cuda.synchronize()
    return batch * number / (time.perf_counter() - begin)


def bare_rates(machine: Machine, model: str, settings: tuple[str, ...]) -> dict[str, float]:
    """Return items per second of the bare loop for each setting, in one process that ends before anything is launched."""
    batch = MODELS[model][0]
    if not machine.is_real:
        model, batch = ("resnet18" if model == "resnet50" else "bert-tiny"), 2
    seconds = "2.0" if machine.is_real else "0.1, 1, 1"
    calls = f"{{name: bare_loop({model!r}, {batch}, name, {seconds}) for name in {settings!r}}}"
    code = f"from functools import partial\n{inspect.getsource(bare_loop)}\nimport json\nprint(json.dumps({calls}))"
    rates: dict[str, float] = machine.asked(code)
    return rates
