#!/bin/sh
# transformers' Trainer: train_samples_per_second counts samples that were never read, over a time in which evaluation took place; and its
# total_flos takes each number of an image for a token: 743 times too much for ViT-B/16.
#
# Seen with transformers 5.24.0 and 4.57.6, torch 2.13.0, Python 3.11, on a CPU. Samples that the model got in training, and
# train_samples_per_second x train_runtime, batches of 4:
#   7 samples, 10 epochs: 70 and 70; with dataloader_drop_last: 40 and 70
#   5 samples, max_steps 20: 50 and 80; 20 samples, gradient_accumulation_steps 4, max_steps 20: 200 and 320 (10 epochs instead: both 200)
# train_runtime runs on during evaluation: 4 steps that took 0.01 s had 3.2 s and 4.9 samples/s with two evaluations of 1.6 s, and no field
# of the metrics tells. total_flos over what FlopCounterMode counts of the same step, with attn_implementation="eager": 743 for ViT-B/16
# (an image has 150,528 "tokens", of which the model sees 197), 950 for ResNet-50, 0.95 for a Llama of width 256 with 128 tokens and a
# vocabulary of 8,192, 0.59 if its input and output embeddings are tied: the output's product is left out. num_input_tokens_seen, from
# which train_tokens_per_second is made, counts the numbers of an image, too. No warning.
# So the figure depends on how max_steps and num_train_epochs were chosen, and an MFU from total_flos holds for language models alone.
# Exits with 1 if any of that has changed. Takes 2 GB below TMPDIR with a torch for CPUs, 6 GB with one for CUDA, and two minutes.
set -eu
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
cat >"$folder/try.py" <<'PYTHON'
import sys
import tempfile
import time
import warnings

import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode
from transformers import LlamaConfig, LlamaForCausalLM, ResNetConfig, ResNetForImageClassification, Trainer, TrainerCallback
from transformers import TrainingArguments, ViTConfig, ViTForImageClassification

warnings.simplefilter("ignore")
transformers.utils.logging.set_verbosity_error()
torch.set_num_threads(1)


class Data(torch.utils.data.Dataset):
    def __init__(self, size, item, seconds=0.0):
        self.size, self.item, self.seconds = size, item, seconds

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        if index >= self.size:
            raise IndexError
        time.sleep(self.seconds)
        return dict(self.item)


class Steps(TrainerCallback):
    seconds = 0.0

    def on_step_begin(self, *_, **__):
        self.begun = time.perf_counter()

    def on_step_end(self, *_, **__):
        self.seconds += time.perf_counter() - self.begun


def train(model, data, evaluated=None, **options):
    """Return the metrics, the samples that the model got while it trained, the seconds of all steps, and the trainer's state."""
    got, steps = [], Steps()

    def count(module, _, words):
        if module.training:
            got.append(len(words[module.main_input_name]))

    handle = model.register_forward_pre_hook(count, with_kwargs=True)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, report_to=[], save_strategy="no", logging_strategy="no", disable_tqdm=True, use_cpu=True, **options
        )
        trainer = Trainer(model=model, args=arguments, train_dataset=data, eval_dataset=evaluated, callbacks=[steps])
        trainer.remove_callback(transformers.PrinterCallback)
        metrics = trainer.train().metrics
    handle.remove()
    return metrics, sum(got), steps.seconds, trainer.state


def llama(**sizes):
    return LlamaForCausalLM(LlamaConfig(num_attention_heads=2, num_key_value_heads=2, attn_implementation="eager", **sizes))


def tokens(length):
    return {"input_ids": torch.arange(length), "labels": torch.arange(length)}


SMALL = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "vocab_size": 64}
train(llama(**SMALL), Data(4, tokens(8)), max_steps=1)
ok = True
for size, options, wanted in (
    (7, {"num_train_epochs": 10}, (70, 70)),
    (7, {"num_train_epochs": 10, "dataloader_drop_last": True}, (40, 70)),
    (5, {"max_steps": 20}, (50, 80)),
    (20, {"max_steps": 20, "gradient_accumulation_steps": 4}, (200, 320)),
    (20, {"num_train_epochs": 10, "gradient_accumulation_steps": 4}, (200, 200)),
):
    metrics, got, *_ = train(llama(**SMALL), Data(size, tokens(8)), per_device_train_batch_size=4, **options)
    told = metrics["train_samples_per_second"] * metrics["train_runtime"]
    print(transformers.__version__, size, "samples", options, "got", got, "told", round(told, 1))
    ok = ok and got == wanted[0] and abs(told / wanted[1] - 1) < 0.03
options = {"max_steps": 4, "per_device_train_batch_size": 4, "eval_strategy": "steps", "eval_steps": 2}
metrics, _, seconds, _ = train(llama(**SMALL), Data(16, tokens(8)), Data(16, tokens(8), seconds=0.1), **options)
print("seconds of steps", round(seconds, 3), metrics)
ok = ok and metrics["train_runtime"] >= 3.2 > 2 * seconds and not any("eval" in name for name in metrics)

image = {"pixel_values": torch.rand(3, 224, 224), "labels": 1}
text = {"hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 4, "vocab_size": 8192}
for name, model, item, wanted in (
    ("ViT-B/16", ViTForImageClassification(ViTConfig(attn_implementation="eager", num_labels=1000)), image, 743.5),
    ("ResNet-50", ResNetForImageClassification(ResNetConfig(num_labels=1000)), image, 949.9),
    ("Llama", llama(**text), tokens(128), 0.955),
    ("Llama, tied", llama(**text, tie_word_embeddings=True), tokens(128), 0.591),
):
    state = train(model, Data(2, item), max_steps=1, per_device_train_batch_size=2, include_num_input_tokens_seen=True)[-1]
    batch = {key: torch.stack([torch.as_tensor(value)] * 2) for key, value in item.items()}
    with FlopCounterMode(display=False) as counter:
        model(**batch).loss.backward()
    ratio = state.total_flos / counter.get_total_flops()
    print(name, "total_flos", state.total_flos, "counted", counter.get_total_flops(), f"{ratio:.4g}", "tokens", state.num_input_tokens_seen)
    ok = ok and abs(ratio / wanted - 1) < 0.03 and state.num_input_tokens_seen == batch[model.main_input_name].numel()
sys.exit(not ok)
PYTHON
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 "numpy<2.4" accelerate==1.15.0
for release in 4.57.6 5.24.0; do
    "$folder/venv/bin/pip" install --quiet --disable-pip-version-check "transformers==$release"
    "$folder/venv/bin/python" -W ignore "$folder/try.py" || { echo "the figures of Trainer of transformers $release have changed" >&2; exit 1; }
done
