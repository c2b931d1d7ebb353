#!/bin/sh
# Lightning 2.6.6 divides by another GPU's peak for its MFU, or by one of another kind: an L40S gets an L4's, so that its MFU can be above 1,
# and an H100 NVL twice an H100 SXM's. Its tokens a second are those of one sample per batch if one follows length_fn's description.
#
# Seen with Python 3.11, torch 2.13.0, no GPU: get_available_flops, by which ThroughputMonitor makes device/mfu, of names that NVIDIA's driver
# gives, put in the place of torch.cuda.get_device_name. Any name with "l4" in it, of which there are three, is an L4: 121 TFLOP/s in bfloat16
# for L40 and L40S, too, of which the first has a row of its own (181) in the same table. The branch for "l40" asks for "tesla" in the name.
# Any name with "a40" is an A40, such as RTX A4000 and RTX A400; one with "t4" a T4, such as the T400: 65 TFLOP/s in float16. H100 NVL has
# 1978.8 TFLOP/s, twice what the table has for an H100 SXM (989.4, dense), which is the faster of the two. A40, RTX A6000, 3090 and 4090 have
# one figure for float32 and bfloat16 (37.4, 38.7, 35.6 and 82.6), though A100 has 16 times as much in bfloat16, that of its tensor cores.
# H200, GH200 and B200 have none: H200's rows of the table (with 2,000 TFLOP/s, those of sparse matrices) ask for "sxm1" or "nvl1".
# And length_fn, "the number of items in a sample given a batch", is summed up once per batch: of 16 batches of 8 samples of 32 tokens each
# train/lengths is 512 where it returns 32, of 4,096 tokens; items_per_sec is an eighth. It has to return a batch's items.
# So MFUs of two GPUs don't compare, one below 1 is no sign that it is right, and tokens a second hang on how a sentence was read. The
# FLOP/s beside the MFU are free of the table.
# Exits with 1 if any of that has changed. Takes 2 GB below TMPDIR with a torch for CPUs, 6 GB with one for CUDA.
set -eu
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 numpy lightning==2.6.6
cat >"$folder/try.py" <<'PYTHON'
import logging
import sys
import warnings
from unittest import mock

import lightning
import torch
from lightning.fabric.accelerators import cuda
from lightning.fabric.utilities.throughput import get_available_flops
from lightning.pytorch.callbacks import ThroughputMonitor
from lightning.pytorch.loggers.logger import DummyLogger

warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
BATCHES, BATCH, LENGTH = 16, 8, 32
WANTED = {  # TFLOP/s in bfloat16, float16 and float32
    "NVIDIA H100 80GB HBM3": (989.4, 989.4, 66.9), "NVIDIA H100 NVL": (1978.8, 1978.8, 133.8), "NVIDIA H200": (None, None, None),
    "NVIDIA GH200 480GB": (None, None, None), "NVIDIA B200": (None, None, None), "NVIDIA A100-SXM4-80GB": (312.0, 312.0, 19.5),
    "NVIDIA L4": (121.0, 121.0, 30.3), "NVIDIA L40": (121.0, 121.0, 30.3), "NVIDIA L40S": (121.0, 121.0, 30.3),
    "NVIDIA A40": (37.4, 37.4, 37.4), "NVIDIA RTX A4000": (37.4, 37.4, 37.4), "NVIDIA RTX A400": (37.4, 37.4, 37.4),
    "NVIDIA RTX A6000": (38.7, 38.7, 38.7), "NVIDIA GeForce RTX 3090": (35.6, 35.6, 35.6),
    "NVIDIA GeForce RTX 4090": (82.6, 82.6, 82.6), "Tesla T4": (None, 65.0, 8.1), "NVIDIA T400 4GB": (None, 65.0, 8.1),
}  # fmt: skip


def peaks(name):
    with mock.patch("torch.cuda.get_device_name", return_value=name), mock.patch.object(cuda, "_is_ampere_or_later", return_value=True):
        flops = [get_available_flops(torch.device("cuda", 0), kind) for kind in (torch.bfloat16, torch.float16, torch.float32)]
    return tuple(peak and peak / 1e12 for peak in flops)


seen = {name: peaks(name) for name in WANTED}
for name, found in seen.items():
    print(f"{name:26}", *found)


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(10, 4)

    def training_step(self, batch, _):
        return self.table(batch).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 1e-3)


class Kept(DummyLogger):
    last = None

    def log_metrics(self, metrics, step=None):
        self.last = metrics


def lengths(length_fn):
    """Return the samples and the items that the monitor counted, and its items per sample by its rates."""
    kept = Kept()
    monitor = ThroughputMonitor(lambda batch: batch.shape[0], length_fn, window_size=4)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=1, max_epochs=1, logger=kept, log_every_n_steps=1, callbacks=[monitor], enable_progress_bar=False,
        enable_model_summary=False, enable_checkpointing=False,
    )  # fmt: skip
    trainer.fit(Model(), torch.utils.data.DataLoader(torch.randint(10, (BATCHES * BATCH, LENGTH)), batch_size=BATCH))
    rates = [kept.last[f"train/device/{what}_per_sec"] for what in ("items", "samples")]
    return kept.last["train/samples"], kept.last["train/lengths"], round(rates[0] / rates[1], 3)


counted = [lengths(lambda batch: batch.shape[1]), lengths(lambda batch: batch.numel())]
print("samples, items and items per sample:", *counted)
samples = BATCHES * BATCH
sys.exit(seen != WANTED or counted != [(samples, BATCHES * LENGTH, LENGTH / BATCH), (samples, samples * LENGTH, LENGTH)])
PYTHON
"$folder/venv/bin/python" "$folder/try.py" 2>"$folder/log" ||
    { cat "$folder/log"; echo "the peaks or the counts of Lightning have changed" >&2; exit 1; }
