#!/bin/sh
# AIPerf 0.13.0: request_throughput isn't request_count / benchmark_duration, though one report has all three; and completed_request_count
# counts failed requests, which request_count doesn't.
#
# Seen with Python 3.11, a small server on loopback that streams 4 events in 80 ms, 21 requests, 2 at a time. Without failures:
# request_count 21, benchmark_duration 1.085 s, so 19.36 a second; request_throughput is 19.25, over end_time - start_time (1.091 s). With
# a server that answers 500, after 0.2 s, from the eighth request on: request_count 7, benchmark_duration 0.424 s (of the good requests
# alone), so 16.5 a second; request_throughput is 3.67, over the whole 1.908 s. completed_request_count is 21, is_complete true, and the
# command ends with 0.
# So a rate worked out from count and duration was 3.9 to 5.0 times the one reported, where the requests failed late in the run, and
# completed_request_count doesn't tell how many answers there were: error_request_count has to come off.
# Exits with 1 if any of that has changed. Takes 1.4 GB below TMPDIR and three minutes.
set -eu
folder=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" || true; wait; rm -r "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check aiperf==0.13.0 transformers==5.24.0
cat >"$folder/tokenizer.py" <<'PYTHON'
import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

vocabulary = {sign: place for place, sign in enumerate(["</s>", *sorted(pre_tokenizers.ByteLevel.alphabet())])}
tokenizer = Tokenizer(models.BPE(vocabulary, []))
tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>").save_pretrained(sys.argv[1])
PYTHON
cat >"$folder/server.py" <<'PYTHON'
import itertools
import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

number = itertools.count(1)


class Server(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        self.answer(200, b'{"object": "list", "data": [{"id": "tiny", "object": "model"}]}')

    def answer(self, status, content):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if asked["model"] == "failing" and next(number) > 7:
            time.sleep(0.2)
            self.answer(500, b'{"error": {"message": "as asked"}}')
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for place in range(4):
            time.sleep(0.02)
            choice = {"index": 0, "text": "a", "finish_reason": "length" if place == 3 else None}
            event = {"id": "one", "object": "text_completion", "created": 1, "model": asked["model"], "choices": [choice]}
            self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
            self.wfile.flush()
        self.wfile.write(b"data: [DONE]\n\n")


server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
Path(sys.argv[1]).write_text(str(server.server_port))
server.serve_forever()
PYTHON
cat >"$folder/look.py" <<'PYTHON'
import json
import sys
from datetime import datetime
from pathlib import Path

found = {}
for name in ("tiny", "failing"):
    report = json.loads(Path(sys.argv[1], name, "profile_export_aiperf.json").read_text())
    rate, good, over, took = (
        report[key]["avg"] for key in ("request_throughput", "request_count", "completed_request_count", "benchmark_duration")
    )
    window = (datetime.fromisoformat(report["end_time"]) - datetime.fromisoformat(report["start_time"])).total_seconds()
    print("%s: request_count %d, completed_request_count %d, is_complete %s" % (name, good, over, report["is_complete"]))
    print("  benchmark_duration %.3f s, end_time - start_time %.3f s" % (took, window))
    print("  request_throughput %.3f; %.3f and %.3f by the two times" % (rate, good / took, good / window))
    found[name] = (good, over, abs(rate * window / good - 1) < 0.002, rate * took / good)
good, over, by_window, part = found["tiny"]
right = (good, over, by_window) == (21, 21, True) and part < 1
good, over, by_window, part = found["failing"]
sys.exit(not (right and (good, over, by_window) == (7, 21, True) and part < 0.5))
PYTHON
"$folder/venv/bin/python" "$folder/tokenizer.py" "$folder/tokenizer" 2>/dev/null
python3 "$folder/server.py" "$folder/port" &
server=$!
for _ in $(seq 100); do [ -s "$folder/port" ] || sleep 0.2; done
port=$(cat "$folder/port")
for model in tiny failing; do
    TMPDIR="$folder" "$folder/venv/bin/aiperf" profile --model "$model" --url "http://127.0.0.1:$port" --streaming \
        --endpoint-type completions --tokenizer "$folder/tokenizer" --isl 16 --osl 4 --concurrency 2 --request-count 21 --random-seed 7 \
        --ui none --no-auto-plot --artifact-dir "$folder/$model" >"$folder/log.txt" 2>&1 || { cat "$folder/log.txt"; exit 1; }
done
python3 "$folder/look.py" "$folder"
echo "as seen: throughput is of the whole run, duration of the good requests, and completed ones are good or failed"
