# An image that already contains torch (NVIDIA NGC, rocm/pytorch, pytorch/pytorch), kept as it is: only packages that the workload
# lacks are added, and nothing may replace the vendor's own packages. vendor_guard.py enforces this.
ARG BASE
FROM ${BASE}
USER root
WORKDIR /tmp

# From here on, `python3` is the Python that has torch; in many images it is in a conda environment or a virtualenv. It is a script,
# since Python would not find its virtualenv through a link.
ENV PATH=/opt/torchmatrix/bin:$PATH
RUN export PYTHONDONTWRITEBYTECODE=1 PYTHONNOUSERSITE=1; python=""; tried=""; \
    for candidate in python3 python /opt/venv/bin/python3 /opt/conda/bin/python /opt/conda/envs/*/bin/python; do \
      command -v "${candidate}" >/dev/null || continue; \
      if words="$("${candidate}" -c 'import torch' 2>&1)"; then \
        python="$("${candidate}" -c 'import sys; print(sys.executable)')"; break; \
      fi; \
      tried="${tried} ${candidate}: $(echo "${words}" | tail -n 1);"; \
    done; \
    if [ -z "${python}" ]; then echo "error: no Python of this image can import torch;${tried}"; exit 1; fi; \
    mkdir -p /opt/torchmatrix/bin && printf '#!/bin/sh\nexec "%s" "$@"\n' "${python}" > /opt/torchmatrix/bin/python3 \
    && chmod 755 /opt/torchmatrix/bin/python3

# vendor.txt exists if matrix.lock lists the packages to add.
COPY vendor_guard.py requirements/vendor.tx[t] /opt/torchmatrix/
ARG PACKAGES
ARG USUAL_PACKAGES
RUN export PYTHONDONTWRITEBYTECODE=1 PYTHONNOUSERSITE=1 guard=/opt/torchmatrix/vendor_guard.py; \
    python3 "${guard}" record 2>&1 \
    && python3 "${guard}" install --packages "${PACKAGES}" --usual "${USUAL_PACKAGES}" \
      --locked /opt/torchmatrix/vendor.txt 2>&1 \
    && python3 "${guard}" check 2>&1

RUN mkdir -p /cache && chown 65532:65532 /cache
