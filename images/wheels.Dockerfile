# A Python image plus torch wheels from a package index (CPU, CUDA or ROCm); every stack of wheels is built from this file.
# Arguments come from runner/torchmatrix/images.py; the workload is the last layer, so that editing it rebuilds in a second.
ARG BASE
FROM ${BASE}

# torch.compile needs a C++ compiler at run time (Triton builds a launcher, the CPU backend its kernels).
RUN command -v g++ >/dev/null || { apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*; }

ENV SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt \
    PATH=/opt/stack/bin:$PATH
RUN python3 -m venv /opt/stack && python -m pip install --no-cache-dir --disable-pip-version-check uv

ARG INDEX_URL
ARG TORCH
ARG PACKAGES
# First torch with its pins from its own index, then the rest from PyPI, where a local version (+cu124) is not known.
RUN pins=$(printf '%s\n' ${PACKAGES} | grep -v '^transformers') || true; \
    uv pip install --no-cache --python /opt/stack/bin/python --index-url "${INDEX_URL}" ${TORCH} ${pins}
RUN uv pip install --no-cache --python /opt/stack/bin/python $(printf '%s\n' ${TORCH} | grep -v '+') ${PACKAGES}

RUN mkdir -p /cache && chown 65532:65532 /cache
COPY workload/ /opt/workload/
USER 65532:65532
ENV HOME=/tmp
WORKDIR /tmp
