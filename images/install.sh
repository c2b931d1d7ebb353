#!/bin/sh
# Installs one requirements file of /opt/build into the stack's virtualenv; the file is complete and holds hashes, so that nothing
# is resolved here. Called by the Dockerfiles: install.sh FILE. Without a network it installs from /opt/build/wheelhouse.
set -eu
cd /opt/build
[ -s "requirements/$1" ] || exit 0
[ ! -f site.crt ] || export SSL_CERT_FILE=/opt/build/site.crt PIP_CERT=/opt/build/site.crt
: "${SSL_CERT_FILE:=/etc/ssl/certs/ca-certificates.crt}"
export SSL_CERT_FILE
options="--no-deps --requirement requirements/$1"
if [ "$1" = uv.txt ]; then
    python3 -m venv /opt/uv
    if [ -d wheelhouse ]; then from="--no-index --find-links wheelhouse"; else from="--index-url ${DEFAULT_INDEX_URL}"; fi
    case "${DEFAULT_INDEX_URL:-}" in    # a mirror without TLS: uv takes it, pip only by name; what comes from it is checked by hash
        http://*) host=${DEFAULT_INDEX_URL#http://}; from="$from --trusted-host ${host%%/*}" ;;
    esac
    /opt/uv/bin/python -m pip install --no-cache-dir --no-compile --disable-pip-version-check --require-hashes $from $options
    # Compiled modules hold the times of their sources, which differ from build to build.
    exec /opt/uv/bin/python -B -c 'import pathlib; [path.unlink() for path in pathlib.Path("/opt/uv").rglob("*.pyc")]'
fi
[ -d /opt/stack ] || python3 -m venv --without-pip /opt/stack
[ -d /root/.cache/uv ] || export UV_NO_CACHE=1      # a builder that keeps packages between builds mounts it
if [ -d wheelhouse ]; then
    from="--no-index --find-links wheelhouse"
else
    from="--index ${INDEX_URL} --default-index ${DEFAULT_INDEX_URL} --index-strategy unsafe-best-match"
fi
/opt/uv/bin/uv pip install --python /opt/stack/bin/python --link-mode copy $from $options
exec /opt/stack/bin/python -B /opt/build/compile_bytecode.py /opt/stack
