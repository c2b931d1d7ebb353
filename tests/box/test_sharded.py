"""FSDP with real ranks on a CPU, by the newest torch: older ones shard on GPUs only."""

from pathlib import Path

import pytest

from support.boxes import NET, bench, only, own_model
from support.sabotaged import NOT_REDUCED, Sabotage

pytestmark = pytest.mark.thorough

RESNET = ("--model", "resnet18", "--image-size", "32", "--batch", "4")
BERT = ("--model", "bert-tiny", "--sequence-length", "16", "--batch", "4", "--optimizer", "adamw")
SHARDED = ("--parallel", "fsdp")
FIRST_VERSION = "import sharded; sharded.find_fully_shard = lambda: None"
"""Before torch 2.4 FSDP's first version is all there is, on GPUs; newer ones have it on CPUs, too."""


@pytest.mark.parametrize("words", [(*BERT, "--precision", "amp-bf16"), RESNET, BERT], ids=["bert in bf16", "resnet18", "bert"])
def test_sharded_ranks_train_the_model_that_ddp_trains_and_prove_it(newest_python: str, words: tuple[str, ...]) -> None:
    fingerprints = []
    for parallel, before in (("ddp", ""), ("fsdp", ""), ("fsdp", FIRST_VERSION)):
        code, events, stderr = bench(newest_python, *words, "--parallel", parallel, processes=2, before=before)
        assert code == 0 and only(events, "reference")["agrees"] is True, stderr
        assert only(events, "setup")["parallel"] == parallel and events[-1]["event"] == "done"
        fingerprints.append(only(events, "reference")["fingerprint"])
    rounding = 1e-4 if "amp-bf16" not in words else 5e-2
    assert fingerprints[1] == pytest.approx(fingerprints[0], rel=rounding) and fingerprints[2] == pytest.approx(
        fingerprints[0], rel=rounding
    )


@pytest.mark.parametrize(
    ("name", "message"), [("unsynchronized_shards", "gradient"), ("no_all_reduce", NOT_REDUCED), ("no_optimizer", "change")]
)
def test_a_launch_that_shards_but_does_not_do_its_work_gives_no_number(newest_python: str, name: str, message: str) -> None:
    launch = Sabotage(name, (*RESNET, *SHARDED), 2, message)
    code, events, stderr = launch.launch(newest_python)
    assert launch.is_caught(code, events), (code, events, stderr)


@pytest.mark.parametrize(("name", "message"), [("half_a_batch", "away from eager fp32"), ("no_optimizer", "change")])
@pytest.mark.sweep
def test_the_first_version_of_fsdp_that_does_not_do_its_work_gives_no_number(
    newest_python: str, name: str, message: str
) -> None:
    launch = Sabotage(name, (*RESNET, *SHARDED), 2, message)
    code, events, stderr = launch.launch(newest_python, FIRST_VERSION)
    assert launch.is_caught(code, events), (code, events, stderr)


def test_ranks_that_have_the_whole_model_are_not_called_sharded(newest_python: str) -> None:
    whole = "import torch, sharded; sharded.shard = lambda model, device: torch.nn.parallel.DistributedDataParallel(model)"
    code, events, _ = bench(newest_python, *RESNET, *SHARDED, processes=2, before=whole)
    assert code and "each rank has the whole model, which was to be split" in next(
        event["message"] for event in events if event["event"] == "failure"
    )


@pytest.mark.parametrize("before", ["", FIRST_VERSION], ids=["fully_shard", "first version"])
def test_what_a_user_froze_has_no_gradient(newest_python: str, tmp_path: Path, before: str) -> None:
    frozen = "self.last = nn.Linear(8, 10)\n        self.first[0].weight.requires_grad_(False)"
    words = own_model(tmp_path, NET.replace("self.last = nn.Linear(8, 10)", frozen))
    code, events, stderr = bench(newest_python, *words, *SHARDED, processes=2, before=before)
    assert code == 0 and only(events, "reference")["agrees"] is True, stderr
    assert only(events, "setup")["frozen"] == 1


def test_a_torch_that_can_not_shard_is_unsupported_not_a_crash(real_python: str) -> None:
    code, events, _ = bench(real_python, *RESNET, *SHARDED, processes=2)
    assert code and {event["kind"] for event in events if event["event"] == "failure"} == {"unsupported"}


SUMS = (
    "import torch.distributed as d; keep = d.reduce_scatter_tensor;"
    " d.reduce_scatter_tensor = lambda out, given, op: keep(out, given, op=d.ReduceOp.SUM)"
)
"""What gloo does in torch 2.7.1 when it is asked for a mean."""


def test_a_backend_that_adds_up_where_it_should_average_is_unsupported(newest_python: str) -> None:
    code, events, _ = bench(newest_python, *RESNET, *SHARDED, processes=2, before=SUMS)
    messages = {event["message"] for event in events if event["event"] == "failure"}
    assert code and all("adds up the gradients of ranks with gloo" in message for message in messages) and messages
