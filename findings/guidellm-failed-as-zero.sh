#!/bin/sh
# guidellm 0.8.1: a report's metrics.request_latency.total averages every failed request in as 0.0 s, so the more requests fail the faster
# the server looks there.
#
# Seen with Python 3.11, torch 2.13.0, guidellm's own mock server, which answers 500 after 10 of 40 requests. request_latency.successful has
# count 10 and a mean of 0.049 s; errored has count 30, mean, median and min of 0.0; total has count 40, a mean of 0.012 s, a quarter, and
# a median of 0.0. The record of each failed request has null. Five other metrics have such zeros (time_to_last_round_trip_ms,
# avg_round_trip_time_ms and three of tokens and events); time_to_first_token_ms leaves the failed ones out. The command ends with 0.
# So to a reader who takes "total" for the figure of all requests a server that fails is the best one, and one who takes errored's mean
# for a latency reads 0. Only "successful" is of latencies, and it needs request_totals beside it.
# Exits with 1 if any of that has changed. Takes 2 GB below TMPDIR with a torch for CPUs, 6 GB with one for CUDA, and two minutes.
set -eu
folder=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" || true; wait; rm -r "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check guidellm==0.8.1 torch==2.13.0 transformers==5.24.0
cat >"$folder/tokenizer.py" <<'PYTHON'
import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

vocabulary = {sign: place for place, sign in enumerate(["</s>", *sorted(pre_tokenizers.ByteLevel.alphabet())])}
tokenizer = Tokenizer(models.BPE(vocabulary, []))
tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>").save_pretrained(sys.argv[1])
PYTHON
cat >"$folder/wait.py" <<'PYTHON'
import sys
import time
import urllib.request

for _ in range(240):
    try:
        sys.exit(urllib.request.urlopen(sys.argv[1], timeout=5).status != 200)
    except OSError:
        time.sleep(0.5)
sys.exit("the mock server doesn't answer")
PYTHON
cat >"$folder/look.py" <<'PYTHON'
import json
import sys
from pathlib import Path

report = json.loads(Path(sys.argv[1]).read_text())["benchmarks"][0]
metrics, requests = report["metrics"], report["requests"]
print("requests:", metrics["request_totals"])
kinds = {name: metric.get("errored") for name, metric in metrics.items() if isinstance(metric, dict)}
failed = [name for name, found in kinds.items() if isinstance(found, dict) and (found["count"], found["mean"]) == (30, 0)]
print("metrics with errored.count 30 and errored.mean 0: " + ", ".join(failed))
good, bad, whole = (metrics["request_latency"][kind] for kind in ("successful", "errored", "total"))
for kind in ("successful", "errored", "total"):
    found = metrics["request_latency"][kind]
    print("request_latency.%s: count %d, mean %.4f s, median %.4f s" % (kind, found["count"], found["mean"], found["median"]))
own = {request["request_latency"] for request in requests["errored"]}
print("request_latency of each failed request:", own)
right = metrics["request_totals"] == {"successful": 10, "errored": 30, "incomplete": 0, "total": 40} and own == {None}
right = right and (good["count"], bad["count"], bad["mean"], whole["count"], whole["median"]) == (10, 30, 0, 40, 0)
right = right and "time_to_first_token_ms" not in failed
sys.exit(not (right and good["mean"] > 0.03 and abs(whole["mean"] / good["mean"] - 0.25) < 1e-6))
PYTHON
"$folder/venv/bin/python" "$folder/tokenizer.py" "$folder/tokenizer" 2>/dev/null
port=$(python3 -c "import socket; one = socket.socket(); one.bind(('127.0.0.1', 0)); print(one.getsockname()[1])")
"$folder/venv/bin/guidellm" mock-server --host 127.0.0.1 --port "$port" --model tiny --ttft-ms 20 --itl-ms 5 --output-tokens 4 \
    --fail-after-requests 10 >"$folder/server.txt" 2>&1 &
server=$!
python3 "$folder/wait.py" "http://127.0.0.1:$port/v1/models"
HF_HUB_OFFLINE=1 "$folder/venv/bin/guidellm" run --profile kind=concurrent,streams=2 \
    --backend "kind=openai_http,target=http://127.0.0.1:$port,model=tiny,request_format=/v1/completions" \
    --constraint kind=max_requests,count=40 --tokenizer "kind=hf_auto,model=$folder/tokenizer" \
    --data kind=synthetic_text,prompt_tokens=16,output_tokens=4 --output "kind=json,path=$folder/report.json" --disable-progress \
    >"$folder/client.txt" 2>&1 || { cat "$folder/client.txt"; exit 1; }
"$folder/venv/bin/python" "$folder/look.py" "$folder/report.json"
echo "as seen: 30 failures of 40 make the total's mean latency a quarter and its median 0"
