#!/bin/sh
# guidellm 0.8.1: a load of `--profile kind=poisson` doesn't come at the rate asked, and isn't Poisson: each gap between requests comes
# about ten times, once from every worker process.
#
# Seen with Python 3.11, torch 2.13.0, guidellm's own mock server, 100 requests, 20 requests a second asked, the default seed. The times at
# which the requests are due (targeted_start) have 11 different gaps in 99 with the default ten worker processes, which all draw from the
# same seed. They come to 28.7 a second, and requests_per_second says 27.4 to 28.4; the report's strategy.rate stays at 20. With
# GUIDELLM__MAX_WORKER_PROCESSES=1 all 99 gaps differ, and 20.2 a second are due. kind=constant has the rate asked, with ten processes.
# So a figure of poisson at rate R is one of another rate: that of 100 requests hangs on 11 draws. And the load comes in bursts and lulls of
# ten requests. A curve over R, or a comparison with another client at R, is off by that much. Read requests_per_second, not strategy.rate.
# Exits with 1 if any of that has changed. Takes 2 GB below TMPDIR with a torch for CPUs, 6 GB with one for CUDA, and five minutes.
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

found = {}
for name in ("poisson", "poisson of one process", "constant"):
    report = json.loads(Path(sys.argv[1], name + ".json").read_text())["benchmarks"][0]
    due = sorted(request["info"]["timings"]["targeted_start"] for request in report["requests"]["successful"])
    gaps = [later - earlier for earlier, later in zip(due, due[1:])]
    ordered, strategy = sorted(gaps), report["config"]["strategy"]
    different = 1 + sum(longer - shorter > 2e-6 for shorter, longer in zip(ordered, ordered[1:]))
    rate, measured = len(gaps) / (due[-1] - due[0]), report["metrics"]["requests_per_second"]["successful"]["mean"]
    found[name] = (strategy["rate"], strategy["worker_count"], len(due), different, rate)
    print("%s: rate %g, %d processes" % (name, strategy["rate"], strategy["worker_count"]))
    print("  %d gaps, %d different: %s ..." % (len(gaps), different, [round(gap, 4) for gap in gaps[:24]]))
    print("  due at %.1f a second, measured %.1f a second" % (rate, measured))
asked, workers, requests, different, rate = found["poisson"]
right = (asked, workers, requests) == (20, 10, 100) and different <= 25 and rate > 24
asked, workers, requests, different, rate = found["poisson of one process"]
right = right and (asked, workers, requests) == (20, 1, 100) and different >= 90 and 18 < rate < 22
asked, workers, requests, different, rate = found["constant"]
right = right and (asked, workers, requests) == (20, 10, 100) and 19.5 < rate < 20.5
sys.exit(not right)
PYTHON
"$folder/venv/bin/python" "$folder/tokenizer.py" "$folder/tokenizer" 2>/dev/null
port=$(python3 -c "import socket; one = socket.socket(); one.bind(('127.0.0.1', 0)); print(one.getsockname()[1])")
"$folder/venv/bin/guidellm" mock-server --host 127.0.0.1 --port "$port" --model tiny --ttft-ms 5 --itl-ms 1 --output-tokens 4 \
    >"$folder/server.txt" 2>&1 &
server=$!
python3 "$folder/wait.py" "http://127.0.0.1:$port/v1/models"
load() {
    GUIDELLM__MAX_WORKER_PROCESSES="$3" HF_HUB_OFFLINE=1 "$folder/venv/bin/guidellm" run --profile "kind=$2,rate=20" \
        --backend "kind=openai_http,target=http://127.0.0.1:$port,model=tiny,request_format=/v1/completions" \
        --constraint kind=max_requests,count=100 --tokenizer "kind=hf_auto,model=$folder/tokenizer" \
        --data kind=synthetic_text,prompt_tokens=16,output_tokens=4 --output "kind=json,path=$folder/$1.json" --disable-progress \
        >"$folder/client.txt" 2>&1 || { cat "$folder/client.txt"; exit 1; }
}
load poisson poisson 10
load "poisson of one process" poisson 1
load constant constant 10
"$folder/venv/bin/python" "$folder/look.py" "$folder"
echo "as seen: ten processes repeat each gap of the Poisson load, which comes faster than asked; one process doesn't; constant is right"
