#!/bin/sh
# inference-perf 0.7.0: a load of `type: constant` is sent at random gaps, not at even ones, and other ones each time; and
# output_tokens_per_sec is of the client's tokenizer, beside output_tokens.total, which is the server's count.
#
# Seen with Python 3.12 (it needs that), transformers 5.13.0, a small server on loopback that streams 4 events of two words each and gives
# 4 as usage's completion_tokens, where the client's tokenizer has a token a word; two stages of 3 s, each of rate 20. Each sends 60
# requests, and even gaps would be of 50 ms: they went from 0.5 to 154 ms in one stage and from 0.4 to 284 in the other, with standard
# deviations of 40 and 49 ms, nearly their mean, as a Poisson load has. output_tokens.total is 240 in 3.0 s, 80 a second, and
# output_tokens_per_sec 160. inter_token_latency.median is 0: an event's second token has no gap to the first.
# So a latency at a "constant" rate holds the queueing of random arrivals, and repeats differ in their loads; figures don't compare with
# those of a client that sends evenly. Tokens a second and gaps between tokens hang on the tokenizer in the configuration.
# Exits with 1 if any of that has changed. Calls python3.12. Takes 1 GB below TMPDIR and a minute.
set -eu
folder=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" || true; wait; rm -r "$folder"' EXIT
python3.12 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check inference-perf==0.7.0 transformers==5.13.0
cat >"$folder/tokenizer.py" <<'PYTHON'
import sys

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

words = {"</s>": 0, **{"w%d" % place: place for place in range(1, 256)}}
tokenizer = Tokenizer(models.WordLevel(words, unk_token="</s>"))
tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>").save_pretrained(sys.argv[1])
PYTHON
cat >"$folder/server.py" <<'PYTHON'
import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Server(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        content = b'{"object": "list", "data": [{"id": "tiny", "object": "model"}]}'
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def event(self, **fields):
        event = {"id": "one", "object": "text_completion", "created": 1, "model": "tiny", **fields}
        self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
        self.wfile.flush()

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for place in range(4):
            time.sleep(0.01)
            self.event(choices=[{"index": 0, "text": " w1 w2", "finish_reason": "length" if place == 3 else None}])
        self.event(choices=[], usage={"prompt_tokens": 16, "completion_tokens": 4, "total_tokens": 20})
        self.wfile.write(b"data: [DONE]\n\n")


server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
Path(sys.argv[1]).write_text(str(server.server_port))
server.serve_forever()
PYTHON
cat >"$folder/look.py" <<'PYTHON'
import json
import statistics
import sys
from pathlib import Path

folder = Path(sys.argv[1])
sent = sorted(request["start_time"] for request in json.loads((folder / "per_request_lifecycle_metrics.json").read_text()))
right = len(sent) == 120
for stage in (0, 1):
    times = sent[60 * stage : 60 * stage + 60]
    gaps = [1e3 * (later - earlier) for earlier, later in zip(times, times[1:])]
    mean, spread = statistics.mean(gaps), statistics.stdev(gaps)
    report = json.loads((folder / ("stage_%d_lifecycle_metrics.json" % stage)).read_text())
    asked, good, took = report["load_summary"]["requested_rate"], report["successes"], report["benchmark_time_seconds"]
    rate, total = good["throughput"]["output_tokens_per_sec"], good["output_tokens"]["total"]
    median, by_server = good["latency"]["inter_token_latency"]["median"], total / took
    print("stage %d, requested_rate %g: %d requests" % (stage, asked, good["count"]))
    print("  gaps: mean %.1f ms, standard deviation %.1f ms, from %.1f to %.1f ms" % (mean, spread, min(gaps), max(gaps)))
    print("  in ms: %s ..." % " ".join("%.0f" % gap for gap in gaps[:24]))
    print("  output_tokens.total %d in %.3f s: %.1f a second; output_tokens_per_sec %.1f" % (total, took, by_server, rate))
    print("  inter_token_latency.median %g s" % median)
    right = right and (asked, good["count"], total, median) == (20, 60, 240, 0) and 1.9 < rate / by_server < 2.1
    right = right and 40 < mean < 60 and spread > mean / 2 and min(gaps) < mean / 4 and max(gaps) > 2 * mean
sys.exit(not right)
PYTHON
"$folder/venv/bin/python" "$folder/tokenizer.py" "$folder/tokenizer" 2>/dev/null
python3.12 "$folder/server.py" "$folder/port" &
server=$!
for _ in $(seq 100); do [ -s "$folder/port" ] || sleep 0.2; done
cat >"$folder/load.yaml" <<YAML
load:
  type: constant
  stages: [{rate: 20, duration: 3}, {rate: 20, duration: 3}]
  num_workers: 1
  worker_max_concurrency: 50
api: {type: completion, streaming: true}
server: {type: vllm, model_name: tiny, base_url: "http://127.0.0.1:$(cat "$folder/port")", ignore_eos: true}
tokenizer: {pretrained_model_name_or_path: $folder/tokenizer}
data:
  type: random
  input_distribution: {min: 16, max: 16, mean: 16, std_dev: 0, total_count: 120}
  output_distribution: {min: 4, max: 4, mean: 4, std_dev: 0, total_count: 120}
report: {request_lifecycle: {summary: true, per_stage: true, per_request: true}}
storage: {local_storage: {path: $folder/reports}}
YAML
HF_HUB_OFFLINE=1 "$folder/venv/bin/inference-perf" -c "$folder/load.yaml" >"$folder/log.txt" 2>&1 || { cat "$folder/log.txt"; exit 1; }
python3.12 "$folder/look.py" "$folder/reports"
echo "as seen: a constant load has random gaps, and the client's tokens are in one figure, the server's in the other"
