"""Each way in which box/sabotage.py breaks the work of a launch, with a launch that it must not get through."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.boxes import bench

RESNET = ("--model", "resnet18", "--image-size", "32", "--batch", "4")
BERT = ("--model", "bert-tiny", "--sequence-length", "16", "--batch", "4", "--optimizer", "adamw")
HALF = ("--precision", "amp-bf16")
IN_HALF = ("--precision", "bf16-weights")
TRACED = ("--mode", "infer", "--runtime", "torchscript")
NOT_REDUCED = "the ranks' gradients differ after a step"
UNWRITTEN = "the optimizer did not always change"
GLANCE = ("--proof", "fingerprint")
BEFORE = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[1] / 'box')!r}); import sabotage; sabotage.{{}}()"


@dataclass(frozen=True)
class Sabotage:
    """One launch. `said`: what the proof of work must say of it."""

    name: str
    words: tuple[str, ...]
    processes: int
    said: str

    def launch(self, python: str, before: str = "") -> tuple[int, list[dict[str, Any]], str]:
        """Launch and return (exit code, events, stderr). `before`: Python to run first."""
        return bench(python, *self.words, processes=self.processes, before=f"{before}\n{BEFORE.format(self.name)}")

    def is_caught(self, code: int, events: list[dict[str, Any]]) -> bool:
        """Return whether it ended as numerics and nothing else, for that reason."""
        failures = {event["kind"] for event in events if event["event"] == "failure"}
        problems = [problem for event in events if event["event"] == "reference" for problem in event["problems"]]
        problems += [
            event["message"] for event in events if event["event"] == "failure"
        ]  # what was wrong before the proof of work
        is_done = any(event["event"] == "done" for event in events)
        return code != 0 and not is_done and failures == {"numerics"} and any(self.said in problem for problem in problems)


EVERY = (
    Sabotage("no_backward", RESNET, 1, "gradient"),
    Sabotage("no_backward", (*BERT, *HALF), 1, "gradient"),
    Sabotage("constant_loss", RESNET, 1, "gradient"),
    Sabotage("constant_loss", BERT, 1, "gradient"),
    Sabotage("no_optimizer", RESNET, 1, "change of the parameters"),
    Sabotage("no_optimizer", (*BERT, *HALF), 1, "change of the parameters"),
    Sabotage("half_a_batch", (*RESNET, *HALF), 1, "away from eager fp32"),
    Sabotage("half_a_batch", BERT, 1, "away from eager fp32"),
    Sabotage("half_a_batch", (*BERT, *HALF), 1, "away from eager fp32"),
    Sabotage("no_all_reduce", RESNET, 2, NOT_REDUCED),
    Sabotage("dropped_gradient_sync", (*BERT, *HALF), 2, NOT_REDUCED),
    Sabotage("compressed_gradients", RESNET, 2, "they were compressed on their way"),
    Sabotage("compressed_gradients", (*BERT, *HALF), 2, "they were compressed on their way"),
    Sabotage("frozen_weights", RESNET, 1, "parameters are frozen"),
    Sabotage("wrong_batch_size", RESNET, 1, "a batch of 4 was asked for, but images has 3 items"),
    Sabotage("loss_of_one_rank", RESNET, 2, "away from eager fp32"),
    Sabotage("no_autocast", (*RESNET, *HALF), 1, "the step doesn't compute as asked"),
    Sabotage("no_autocast", (*BERT, *HALF, "--mode", "infer"), 1, "the step doesn't compute as asked"),
    Sabotage("autocast_of_half_the_layers", (*RESNET, *HALF), 1, "the step doesn't compute as asked"),
    Sabotage("autocast_of_half_the_layers", (*RESNET, *HALF, "--mode", "infer"), 1, "the step doesn't compute as asked"),
    Sabotage("autocast_of_half_the_layers", (*BERT, *HALF), 2, "the step doesn't compute as asked"),
    Sabotage("backward_in_bfloat16", RESNET, 1, "convolution backward computes in bf16"),
    Sabotage("layers_backward_in_bfloat16", RESNET, 1, "the products of the timed backward pass are bfloat16"),
    Sabotage("products_in_float8", (*RESNET, *HALF, "--mode", "infer"), 1, "convolution computes in wrong and matmul"),
    Sabotage("no_optimizer", (*RESNET, *IN_HALF), 1, "change of the parameters"),
    Sabotage("no_optimizer", (*BERT, *IN_HALF), 1, "change of the parameters"),
    Sabotage("weights_in_float32", (*RESNET, *IN_HALF, "--mode", "infer"), 1, "the model's products are float32"),
    Sabotage("stale_graph", (*RESNET, *TRACED), 1, "the outputs differ from eager fp32 by up to"),
    Sabotage("stale_graph", (*BERT, *TRACED), 1, "the outputs differ from eager fp32 by up to"),
    Sabotage("graph_of_other_weights", (*RESNET, *TRACED), 1, "the outputs differ from eager fp32 by up to"),
    Sabotage("graph_of_other_weights", (*BERT, *TRACED), 1, "the outputs differ from eager fp32 by up to"),
    Sabotage("rounded_graph", (*RESNET, *TRACED), 1, "the outputs differ from eager fp32 by up to"),
    Sabotage("rounded_graph", (*BERT, *TRACED), 1, "the outputs differ from eager fp32 by up to"),
    Sabotage("stale_outputs", (*BERT, "--compile"), 1, "the loss differs from that of eager fp32"),
    Sabotage("stale_outputs", (*RESNET, "--compile", "--mode", "infer"), 1, "away from eager fp32"),
    Sabotage("no_backward_in_windows", RESNET, 1, UNWRITTEN),
    Sabotage("no_backward_in_windows", (*BERT, *IN_HALF), 1, UNWRITTEN),
    Sabotage("head_alone_in_windows", (*BERT, *HALF), 1, UNWRITTEN),
    Sabotage("zeros_below_the_head_in_windows", RESNET, 1, "the windows' last step gave no gradient to"),
    Sabotage("dropped_block_in_windows", (*BERT, *HALF), 1, UNWRITTEN),
    Sabotage("no_rate_in_windows", (*BERT, *HALF), 1, "the windows did not change bert.embeddings"),
    Sabotage("no_rate_in_windows", (*RESNET, "--steps", "9"), 1, "each batch has the same loss again and again"),
    Sabotage("stale_gradients_in_windows", BERT, 1, "are those from before them"),
    Sabotage("no_all_reduce_in_windows", (*BERT, *HALF), 2, "the norms of the ranks' gradients differ after the windows"),
    Sabotage("made_equal_after_windows", RESNET, 2, "the norms of the ranks' gradients differ after the windows"),
    Sabotage("other_outputs_in_windows", (*RESNET, "--mode", "infer"), 1, "the loss of a batch is"),
    Sabotage(
        "last_pass_of_a_window_alone", (*RESNET, "--mode", "infer"), 1, "gave other outputs for a batch than a step before"
    ),
    Sabotage("last_pass_of_a_window_alone", (*BERT, "--mode", "infer"), 1, "gave other outputs for a batch than a step before"),
    Sabotage("six_tensors", (*BERT, *HALF, *GLANCE), 1, "the optimizer never changed"),
)
