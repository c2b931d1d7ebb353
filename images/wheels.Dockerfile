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
# torch and torchvision are pinned to their very build (+cu124), which only the stack's own index has; the rest may come
# from PyPI, since PyTorch's index holds few versions of other packages.
RUN uv pip install --no-cache --python /opt/stack/bin/python --index "${INDEX_URL}" \
    --default-index https://pypi.org/simple --index-strategy unsafe-best-match ${TORCH} ${PACKAGES}

RUN mkdir -p /cache && chown 65532:65532 /cache
COPY workload/ /opt/workload/
USER 65532:65532
ENV HOME=/tmp
WORKDIR /tmp
