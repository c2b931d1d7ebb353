#!/bin/sh
# With gloo, torch 2.7.1 has the collectives of one tensor, and refuses the same ones of lists of tensors.
#
# Seen with Python 3.11, two processes on CPUs, the same with torch 2.5.1: all_to_all_single and reduce_scatter_tensor give the
# right numbers; all_to_all raises "Backend gloo does not support alltoall", reduce_scatter "ProcessGroupGloo does not support
# reduce_scatter", and an all_reduce with ReduceOp.AVG "Cannot use ReduceOp.AVG with Gloo". torch 2.15.0 has all five. So a
# program that looks whether gloo "has" all_to_all by the list form finds none where the tensor form works.
# Exits with 1 if any of that has changed. Takes 6 GB below TMPDIR.
set -eu
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.7.1 numpy
cat >"$folder/try.py" <<'PYTHON'
import os

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
dist.init_process_group("gloo")
own, into = torch.arange(4.0) + 10 * rank, torch.empty(4)
parts, places, half = list(own.chunk(2)), [torch.empty(2), torch.empty(2)], torch.empty(2)
calls = {
    "all_to_all_single": lambda: dist.all_to_all_single(into, own),
    "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(half, own),
    "all_to_all": lambda: dist.all_to_all(places, parts),
    "reduce_scatter": lambda: dist.reduce_scatter(torch.empty(2), parts),
    "all_reduce with AVG": lambda: dist.all_reduce(own.clone(), dist.ReduceOp.AVG),
}
raised = {}
for name, call in calls.items():
    try:
        call()
    except RuntimeError as error:
        raised[name] = str(error).split("\n")[0]
if rank == 0:
    for name in calls:
        print(name, "raises " + raised[name] if name in raised else "works", flush=True)
right = into.tolist() == [2 * rank, 2 * rank + 1, 2 * rank + 10, 2 * rank + 11]
right = right and half.tolist() == [4 * rank + 10, 4 * rank + 12]
refused = {"all_to_all", "reduce_scatter", "all_reduce with AVG"}
dist.barrier()
os._exit(0 if right and set(raised) == refused else 1)
PYTHON
export MASTER_ADDR=127.0.0.1 MASTER_PORT=29571 WORLD_SIZE=2
RANK=1 "$folder/venv/bin/python" "$folder/try.py" &
second=$!
RANK=0 "$folder/venv/bin/python" "$folder/try.py"
wait "$second"
echo "as seen: one tensor works, lists don't"
