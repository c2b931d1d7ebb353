# An image that already holds torch (NVIDIA NGC, rocm/pytorch, pytorch/pytorch), kept as it is: only what the workload needs
# besides is added, and nothing may replace the vendor's own packages.
ARG BASE
FROM ${BASE}
USER root

ARG PACKAGES
# What is installed already becomes a constraint, so that pip can add transformers but not change torch or numpy. The
# image's own constraints (NGC sets PIP_CONSTRAINT) stay in force unless they forbid the addition itself.
RUN set -e; if [ -n "${PACKAGES}" ] || ! python3 -c 'import transformers' 2>/dev/null; then \
      python3 -m pip list --format=freeze --disable-pip-version-check | grep -E '^(torch|torchvision|triton|numpy|nvidia-|pytorch-triton)' > /tmp/keep.txt || true; \
      python3 -m pip install --no-cache-dir --disable-pip-version-check --constraint /tmp/keep.txt ${PACKAGES:-transformers}; \
      rm -f /tmp/keep.txt; \
    fi

RUN mkdir -p /cache && chown 65532:65532 /cache
COPY workload/ /opt/workload/
USER 65532:65532
ENV HOME=/tmp
WORKDIR /tmp
ENTRYPOINT []
