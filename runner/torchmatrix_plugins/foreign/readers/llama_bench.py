"""llama.cpp: the output of llama-bench (-o json, jsonl or csv)."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from torchmatrix_plugins.foreign.document import Document, Fields
from torchmatrix_plugins.foreign.results import Amount, Case, Figure, ForeignFile

NEEDED = ("build_commit", "n_prompt", "n_gen", "avg_ts", "model_type")
SETUP = {
    "model": "model_type", "CPU": "cpu_info", "GPU": "gpu_info", "backends": "backends",
    "threads": "n_threads", "GPU layers": "n_gpu_layers", "batch": "n_batch", "micro batch": "n_ubatch", "K cache": "type_k",
    "V cache": "type_v", "flash attention": "flash_attn",
}  # fmt: skip
_EXPERTS = re.compile(r"(?i)moe|\d+x\d+|\dB\.A\d")
"""In the names of mixtures of experts, such as qwen3moe 30B.A3B and llama 8x7B."""
_RATE = "tokens / time, the mean of the repetitions' rates in one process"


def read(document: Document) -> ForeignFile | None:
    """Read a case for each test."""
    rows = document.records
    if not rows or not all(all(key in row for key in NEEDED) for row in rows):
        return None
    return ForeignFile(
        path=document.path, tool="llama-bench", cases=tuple(_numbered(map(_case, rows))),
        version=rows[0].text("build_commit"), began=rows[0].text("test_time"),
    )  # fmt: skip


def _numbered(cases: Iterable[Case]) -> Iterator[Case]:
    """Yield the cases; a repeated one, as of an option that is given twice, under a name of its own."""
    times: dict[object, int] = {}
    for case in cases:
        key = case.name, tuple(case.work.items()), tuple(case.setup.items())
        times[key] = times.get(key, 0) + 1
        yield replace(case, name=f"{case.name} ({times[key]})") if times[key] > 1 else case


def _case(row: Fields) -> Case:
    prompt, generated = row.whole("n_prompt") or 0, row.whole("n_gen") or 0
    quantity = "prompt and generation" if prompt and generated else "prompt processing" if prompt else "generation"
    rate = row.positive("avg_ts")
    figures = (Figure(quantity=quantity, statistic="mean", value=rate, definition=_RATE),) if rate else ()
    work: dict[str, Amount] = {"prompt": prompt, "generated": generated, "depth": row.whole("n_depth")}
    is_dense = not _EXPERTS.search(row.text("model_type"))  # else a token uses a part of the weights
    name = "+".join([f"pp{prompt}"] * bool(prompt) + [f"tg{generated}"] * bool(generated))
    name += f" @ d{row.text('n_depth')}" if row.positive("n_depth") else ""
    gpus = [name.strip() for name in row.text("gpu_info").split(",") if name.strip()]
    device = gpus[0] if len(set(gpus)) == 1 and row.number("n_gpu_layers") != 0 else ""
    setup = {word: row.text(key) or ("none" if word == "GPU" else "") for word, key in SETUP.items()}
    return Case(
        name=name, work=work, setup=setup, figures=figures, sequences=1.0,
        weight_bytes=row.positive("model_size") if is_dense else None,
        parameters=row.positive("model_n_params") if is_dense else None, device=device, devices=len(gpus) or None,
    )  # fmt: skip
