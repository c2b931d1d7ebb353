# An image that already holds torch (NVIDIA NGC, rocm/pytorch, pytorch/pytorch), kept as it is: only what the workload needs
# besides is added, and nothing may replace the vendor's own packages.
ARG BASE
FROM ${BASE}
USER root

ARG PACKAGES
ARG USUAL_PACKAGES
# Without PACKAGES the image's own transformers stays; only where there is none, the usual ones come. What is installed
# already becomes a constraint, so that pip can't change the vendor's torch or numpy.
RUN set -e; export PIP_BREAK_SYSTEM_PACKAGES=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1; \
    wanted="${PACKAGES}"; \
    if [ -z "${wanted}" ] && ! python3 -c 'import transformers' 2>/dev/null; then wanted="${USUAL_PACKAGES}"; fi; \
    if [ -n "${wanted}" ]; then \
      python3 -m pip list --format=freeze | grep -E '^(torch|torchvision|triton|numpy|nvidia-|pytorch-triton)' > /tmp/keep.txt || true; \
      python3 -m pip install --constraint /tmp/keep.txt ${wanted}; \
      rm -f /tmp/keep.txt; \
    fi

RUN mkdir -p /cache && chown 65532:65532 /cache
COPY workload/ /opt/workload/
USER 65532:65532
ENV HOME=/tmp
WORKDIR /tmp
ENTRYPOINT []
