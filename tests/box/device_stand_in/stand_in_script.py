"""Script of the stand-in, what it is to be and to do: the JSON object in STAND_IN.

`kind`: cuda or xpu. `folder`: where it records calls. `below`: the folder whose executed lines are recorded (slow), or none.
`devices`, `memory_bytes`, `capability`, `uuids`, `name`: of the invented GPUs. `clock`: how many seconds of the device's events
a second of the host lasts. `peers`: false if the devices can't read each other's memory. `no_tf32`: the devices ignore the
settings for TF32. `no_xccl`: this torch has no backend for ranks on Intel's GPUs.
`fail`: {"kind": …, "step": k, "rank": r}: what goes wrong in forward pass k, counting from 1 (in every rank if there is no
"rank").
"""

import json
import os
import time

_GIVEN = json.loads(os.environ["STAND_IN"])
_FACTS = {
    "devices": 2, "memory_bytes": 80 << 30, "capability": [9, 0], "name": "NVIDIA H100 80GB HBM3", "uuids": None, "clock": 1.0,
    "peers": True, "fail": None, "kind": "cuda", "no_tf32": False, "below": None, "no_xccl": False,
}  # fmt: skip
SCRIPT = {**_FACTS, **_GIVEN}
RANK = int(os.environ.get("RANK", "0"))
UNCORRECTABLE = (
    "CUDA error: uncorrectable ECC error encountered\n"
    "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.\n"
    "For debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
)
"""As torch words it."""


def uuid(index):
    return (SCRIPT["uuids"] or ["%08d-0000-0000-0000-000000000000" % i for i in range(SCRIPT["devices"])])[index]


def tell(call, **facts):
    """Record a call of the device's API."""
    with open(os.path.join(SCRIPT["folder"], "calls-%d.jsonl" % os.getpid()), "a", encoding="utf-8") as file:
        file.write(json.dumps(dict(facts, call=call, rank=RANK, monotonic_seconds=time.monotonic())) + "\n")


def wait_forever():
    while True:
        time.sleep(3600)
