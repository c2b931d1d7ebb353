# torchmatrix itself, for clusters that should need no installation: in the repository, docker build -f images/torchmatrix.Dockerfile
# -t torchmatrix . builds it. Launches are virtualenvs inside (the local engine), so it holds a compiler for torch.compile.
ARG BASE=python:3.12-slim-bookworm
FROM ${BASE}

RUN command -v g++ >/dev/null || { apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*; }

# INDEX_URL: a package index of this site; left out, it is pip's own.
ARG INDEX_URL
COPY pyproject.toml README.md matrix.toml /src/
COPY images /src/images
COPY reports/templates /src/reports/templates
COPY reports/published /src/reports/published
COPY runner /src/runner
RUN python3 -m venv /opt/torchmatrix && /opt/torchmatrix/bin/pip install --no-cache-dir --disable-pip-version-check \
    ${INDEX_URL:+--index-url ${INDEX_URL}} /src && rm -r /src \
    && useradd --uid 1000 --create-home torchmatrix && mkdir /results /cache && chown 1000:1000 /results /cache

ENV PATH=/opt/torchmatrix/bin:$PATH TORCHMATRIX_CACHE=/cache/torchmatrix
USER 1000:1000
WORKDIR /results
ENTRYPOINT ["torchmatrix"]
