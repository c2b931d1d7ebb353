#!/bin/sh
# pytorch-benchmark 0.3.6: its batches per second are a mean of rates, which one fast run in two makes eight times what was done; its FLOPs are
# multiply-adds; and on a GPU the seconds are milliseconds with a minus sign.
#
# Seen with Python 3.11, torch 2.13.0 on a CPU, no GPU. A model that sleeps 1 ms and 40 ms in turn: seconds_per_batch_mean is 0.0209, so 48
# batches a second; batches_per_second_mean, and "batches_per_second" with its "+/-", 370 to 413: the mean of 1 / time. flops of a linear
# layer of 1,024 x 1,024 without bias for one row: 1,048,576, where 2,097,152 operations take place. params counts parameters that need a
# gradient: 0 of a model prepared for inference. For device "cuda" it takes stop.elapsed_time(start), which is the time from stop to start, in
# milliseconds: with a stand-in for torch.cuda.Event that keeps to torch's documentation, since no GPU was at hand, the same model has
# seconds_per_batch_mean -20.9, and batches_per_second_mean -0.4, under "on_device_inference"; "total" there is right, 0.0209.
# So a rate of it is above the true one, the more the more times vary, and grows with noise; an MFU is half; divide 1 by the mean time.
# Exits with 1 if any of that has changed. Takes 2 GB below TMPDIR with a torch for CPUs, 6 GB with one for CUDA.
set -eu
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 "numpy<2.4" pytorch-benchmark==0.3.6
cat >"$folder/try.py" <<'PYTHON'
import importlib
import sys
import time
from unittest import mock

import torch
from pytorch_benchmark import benchmark
from torch import nn

torch.set_num_threads(1)
measured = importlib.import_module("pytorch_benchmark.benchmark").measure_repeated_inference_timing


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.calls = nn.Linear(1024, 1024, bias=False), 0

    def forward(self, rows):
        self.calls += 1
        time.sleep(0.001 if self.calls % 2 else 0.04)
        return self.layer(rows)


class Event:
    """What torch.cuda.Event is documented as, by the clock of the host."""

    def __init__(self, enable_timing=False):
        self.seconds = None

    def record(self):
        self.seconds = time.perf_counter()

    def elapsed_time(self, end_event):
        return 1e3 * (end_event.seconds - self.seconds)


def means(timing):
    metrics = timing["metrics"]
    return metrics["seconds_per_batch_mean"], metrics["batches_per_second_mean"]


model = Model()
found = benchmark(model, torch.rand(1, 1024), num_runs=40)
seconds, rate = means(found["timing"]["batch_size_1"]["on_device_inference"])
print(f"{seconds:.4f} s, {1 / seconds:.1f}/s, told {rate:.1f}/s; flops", found["flops"], "params", found["params"])
model.layer.weight.requires_grad_(False)
frozen = benchmark(model, torch.rand(1, 1024), num_runs=2)["params"]
with mock.patch("torch.cuda.Event", Event), mock.patch("torch.cuda.synchronize"):
    timing = measured(model, torch.rand(1, 1024), torch.device("cuda"), lambda tensor, _: tensor, num_runs=40)
device, total = means(timing["on_device_inference"]), means(timing["total"])
print("params of a frozen model", frozen, "on device", device, "in all", total)
ok = 0.02 < seconds < 0.05 and rate > 4 / seconds and found["flops"] == 1024**2 == found["params"] and frozen == 0
ok = ok and 0.02 < total[0] < 0.05 and -1050 < device[0] / total[0] < -900 and device[1] < 0
sys.exit(not ok)
PYTHON
"$folder/venv/bin/python" -W ignore "$folder/try.py" 2>"$folder/log" ||
    { cat "$folder/log"; echo "what pytorch-benchmark tells has changed" >&2; exit 1; }
