"""Compares ways to generate with one small decoder: torchmatrix, a bare loop, transformers.generate, and other benchmarks.

    .venv/bin/python tests/bench/decoder.py --python STACK/bin/python --launches 10
    … --optimum PYTHON          # an interpreter with optimum-benchmark 0.6 and transformers 4.57
    … --llama-bench PROGRAM     # llama.cpp's; .venv needs the package gguf

Each launch is a process of its own on one CPU with one thread; the three take turns in an order that reverses from round to
round, so that a drift of the machine falls on all. The same model (lm-10m), prompt, output, batch, attention and number of
requests. Printed: the output tokens per second of each launch, and the ratio to the bare loop with its 95 % interval.
torchmatrix should be within 1 % of the bare loop; transformers.generate does more for each token (stopping criteria, masks,
processors of logits), and optimum-benchmark calls it and takes the time of each token besides. llama.cpp is no PyTorch: its
own kernels, without Python between the tokens.
"""

import argparse
import inspect
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2] / "images" / "workload"))
from support.boxes import bench
from torchmatrix.analysis.intervals import difference_verdict
from torchmatrix.analysis.pairs import pair_by_rounds
from torchmatrix.core import assets
from torchmatrix.engines.engine import workload_environment

MODEL = "lm-10m"
CONFIG = json.loads((assets.WORKLOAD / "families" / "models.json").read_text())["transformers"]["models"][MODEL]["config"]
Sizes = tuple[int, int, int, int, int, int]
"""Batch, tokens of the prompt, tokens of the output, requests before, timed requests, the CPU."""


def bare_loop(config: dict, batch: int, prompt: int, output: int, warmup: int, steps: int, cpu: int) -> float:
    """Return output tokens per second of greedy generation with a static cache; its source runs in the other interpreter."""
    import os
    import time

    import torch
    import transformers

    os.sched_setaffinity(0, {cpu})
    torch.set_num_threads(1)
    model = transformers.LlamaForCausalLM._from_config(transformers.LlamaConfig(**config), attn_implementation="sdpa").eval()
    cache = transformers.StaticCache(config=model.config, max_cache_len=prompt + output)
    tokens = torch.randint(model.config.vocab_size, (batch, prompt))
    with torch.no_grad():
        for step in range(-warmup, steps):
            if step == 0:
                begin = time.perf_counter()
            cache.reset()
            ids, place = tokens, torch.arange(prompt)
            for _ in range(output):
                logits = model(ids, past_key_values=cache, cache_position=place, use_cache=True, logits_to_keep=1).logits
                ids, place = logits[:, -1].argmax(-1)[:, None], place[-1:] + 1
    return batch * output * steps / (time.perf_counter() - begin)


def library_loop(config: dict, batch: int, prompt: int, output: int, warmup: int, steps: int, cpu: int) -> float:
    """Return the same of transformers' own `generate`."""
    import os
    import time

    import torch
    import transformers

    os.sched_setaffinity(0, {cpu})
    torch.set_num_threads(1)
    model = transformers.LlamaForCausalLM._from_config(transformers.LlamaConfig(**config), attn_implementation="sdpa").eval()
    tokens = torch.randint(model.config.vocab_size, (batch, prompt))
    words = {
        "use_cache": True,
        "do_sample": False,
        "max_new_tokens": output,
        "min_new_tokens": output,
        "cache_implementation": "static",
    }
    for step in range(-warmup, steps):
        if step == 0:
            begin = time.perf_counter()
        made = model.generate(tokens, attention_mask=torch.ones_like(tokens), pad_token_id=0, disable_compile=True, **words)
        assert made.shape[1] == prompt + output
    return batch * output * steps / (time.perf_counter() - begin)


def optimum_loop(config: dict, batch: int, prompt: int, output: int, warmup: int, steps: int, cpu: int) -> float:
    """Return the same of optimum-benchmark's scenario of inference, from the latencies of its whole generations."""
    import os
    import tempfile

    import torch
    import transformers
    from optimum_benchmark import Benchmark, BenchmarkConfig, InferenceConfig, InlineConfig, PyTorchConfig

    os.sched_setaffinity(0, {cpu})
    torch.set_num_threads(1)
    words = {"max_new_tokens": output, "min_new_tokens": output, "do_sample": False, "cache_implementation": "static"}
    words["disable_compile"] = True
    with tempfile.TemporaryDirectory() as folder:
        transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**config, "use_cache": True})).save_pretrained(folder)
        backend = PyTorchConfig(
            model=folder, task="text-generation", library="transformers", device="cpu", attn_implementation="sdpa",
            intra_op_num_threads=1,
        )  # fmt: skip
        scenario = InferenceConfig(
            warmup_runs=warmup, iterations=steps, duration=0, generate_kwargs=words,
            input_shapes={"batch_size": batch, "sequence_length": prompt},
        )  # fmt: skip
        asked = BenchmarkConfig(name="decoder", launcher=InlineConfig(), backend=backend, scenario=scenario)
        latency = Benchmark.launch(asked).to_dict()["generate"]["latency"]
    assert latency["count"] == steps
    return batch * output * steps / latency["total"]


def write_gguf(config: dict, path: str) -> None:
    """Write the same shape with random weights in float32, and without a tokenizer, as llama.cpp reads it."""
    import gguf
    import numpy

    hidden, heads, inner = config["hidden_size"], config["num_attention_heads"], config["intermediate_size"]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(hidden)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("no_vocab")
    shapes = {"token_embd": (config["vocab_size"], hidden), "output_norm": (hidden,)}
    width = {"attn_q": heads, "attn_k": config["num_key_value_heads"], "attn_v": config["num_key_value_heads"]}
    for block in range(config["num_hidden_layers"]):
        of_block = {name: (count * config["head_dim"], hidden) for name, count in width.items()}
        of_block |= {"attn_output": (hidden, heads * config["head_dim"]), "attn_norm": (hidden,), "ffn_norm": (hidden,)}
        of_block |= {"ffn_gate": (inner, hidden), "ffn_up": (inner, hidden), "ffn_down": (hidden, inner)}
        shapes |= {f"blk.{block}.{name}": shape for name, shape in of_block.items()}
    draw = numpy.random.default_rng(0).standard_normal
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", 0.02 * draw(shape, dtype=numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def measured_by_llama_bench(program: str, model: str, sizes: Sizes) -> float:
    """Launch llama-bench once: prompts read and continued. It counts the tokens of the prompt, too, and warms up once."""
    batch, prompt, output, _, steps, cpu = sizes
    assert batch == 1, "llama-bench continues one text"
    words = ["-m", model, "-t", "1", "-r", str(steps), "-p", "0", "-n", "0", "-pg", f"{prompt},{output}", "-o", "json"]
    done = subprocess.run(["taskset", "-c", str(cpu), program, *words], stdout=subprocess.PIPE, text=True, check=True)
    (row,) = json.loads(done.stdout)
    return float(output / (row["avg_ns"] / 1e9))


def measured_alone(python: str, loop: Callable[..., float], sizes: Sizes) -> float:
    """Launch a loop once in the other interpreter."""
    call = f"{loop.__name__}({CONFIG!r}, {', '.join(map(str, sizes))})"
    done = subprocess.run(
        [python, "-c", f"{inspect.getsource(loop)}\nprint({call})"],
        env={**os.environ, **workload_environment("cpu"), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    return float(done.stdout.split()[-1])


def measured_by_torchmatrix(python: str, sizes: Sizes) -> float:
    """Launch the workload once, with its proof after the window."""
    batch, prompt, output, warmup, steps, cpu = map(str, sizes)
    code, events, stderr = bench(
        python, "--model", MODEL, "--mode", "generate", "--attention", "sdpa", "--batch", batch, "--sequence-length", prompt,
        "--output-length", output, "--warmup-steps", warmup, "--warmup-cap", warmup, "--steps", steps, "--windows", "1",
        "--requests", "1", "--threads", "1", "--cpus", cpu, fresh=True,
    )  # fmt: skip
    assert code == 0, stderr
    (window,) = [event for event in events if event["event"] == "sample" and event["phase"] == "measure"]
    return float(window["items"] / window["seconds"][0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True, help="an interpreter with torch and transformers 4.57 or newer")
    parser.add_argument("--optimum", help="an interpreter with optimum-benchmark")
    parser.add_argument("--llama-bench", help="llama.cpp's program")
    for name, default in (("batch", 1), ("prompt", 64), ("output", 64), ("warmup", 4), ("steps", 12), ("launches", 10)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    sizes = (args.batch, args.prompt, args.output, args.warmup, args.steps, max(os.sched_getaffinity(0)))
    sides: dict[str, Callable[[], float]] = {
        "bare loop": lambda: measured_alone(args.python, bare_loop, sizes),
        "torchmatrix": lambda: measured_by_torchmatrix(args.python, sizes),
        "transformers.generate": lambda: measured_alone(args.python, library_loop, sizes),
    }
    if args.optimum:
        sides["optimum-benchmark"] = lambda: measured_alone(args.optimum, optimum_loop, sizes)
    if args.llama_bench:
        shape = tempfile.NamedTemporaryFile(suffix=".gguf")  # noqa: SIM115 - deleted when this process ends
        write_gguf(CONFIG, shape.name)
        sides["llama-bench"] = lambda: measured_by_llama_bench(args.llama_bench, shape.name, sizes)
    rates: dict[str, list[float]] = {side: [] for side in sides}
    for number in range(args.launches):
        for side in sides if number % 2 == 0 else reversed(sides):
            rates[side].append(sides[side]())
            print(f"{number + 1:3d} {side:<22} {rates[side][-1]:.2f} tokens/s", flush=True)
    for side in list(sides)[1:]:
        ratio = pair_by_rounds(rates[side], rates["bare loop"]).interval
        print(f"{side} / bare loop = {ratio.value:.4f} [{ratio.low:.4f}, {ratio.high:.4f}]: {difference_verdict(ratio)}")


if __name__ == "__main__":
    main()
