#!/bin/sh
# kubernetes (Python client): the file that a kubeconfig's `tokenFile` names is taken with its line break.
#
# Seen with kubernetes 37.0.2 and 29.0.0, Python 3.11. A token's file that ends with a line break, as editors and `echo` write it, loads
# without a word; then every request ends in a ValueError of http.client ("Invalid header value"), which is none of the client's own
# exceptions and reaches no server. The same file without the line break works. kubectl takes both: client-go trims what it reads.
# Exits with 1 if that has changed. Takes 100 MB below TMPDIR and a minute.
set -eu
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
cat >"$folder/look.py" <<'PYTHON'
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from kubernetes import client, config

seen = []


class Server(BaseHTTPRequestHandler):
    def do_GET(self):
        seen.append(self.headers["Authorization"])
        answer = b'{"major": "1", "minor": "34", "gitVersion": "v1.34.1"}'
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *words):
        pass


server = HTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
folder = Path(sys.argv[1])
for end in ("", "\n"):
    (folder / "token").write_text("a-token-for-this-test" + end)
    (folder / "config").write_text(json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:%d" % server.server_port}}],
        "users": [{"name": "u", "user": {"tokenFile": str(folder / "token")}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
    }))
    options = client.Configuration()
    config.load_kube_config(str(folder / "config"), client_configuration=options)
    options.retries = False
    with client.ApiClient(options) as api:
        try:
            client.VersionApi(api).get_code(_preload_content=False)
            print(repr(end), "sent:", seen[-1])
        except Exception as error:
            print(repr(end), type(error).__name__, "Invalid header value" in str(error), len(seen))
PYTHON
for version in 29.0.0 37.0.2; do
    python3 -m venv --clear "$folder/venv"
    "$folder/venv/bin/pip" install -q --disable-pip-version-check "kubernetes==$version"
    "$folder/venv/bin/python" "$folder/look.py" "$folder" | tee "$folder/seen"
    cmp "$folder/seen" - <<'SEEN'
'' sent: Bearer a-token-for-this-test
'\n' ValueError True 1
SEEN
done
