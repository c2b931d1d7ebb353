# A Python image plus torch wheels from a package index (CPU, CUDA or ROCm): the environment of every stack of wheels. The runner
# writes the files of requirements/: every package with its version and hashes, one file per layer (catalog.toml, [layers]).
ARG BASE
FROM ${BASE}

# torch.compile needs a C++ compiler at run time (Triton builds a launcher, the CPU backend its kernels).
RUN command -v g++ >/dev/null || { apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*; }

ARG INDEX_URL
ARG DEFAULT_INDEX_URL
# site.crt exists only if this site has its own certificate authorities; they are used here and not trusted later.
COPY install.sh compile_bytecode.py site.cr[t] /opt/build/
RUN python3 -B /opt/build/compile_bytecode.py
COPY requirements/uv.txt /opt/build/requirements/
RUN sh /opt/build/install.sh uv.txt
COPY requirements/toolkit.txt /opt/build/requirements/
RUN sh /opt/build/install.sh toolkit.txt
COPY requirements/libraries.txt /opt/build/requirements/
RUN sh /opt/build/install.sh libraries.txt
COPY requirements/rest.txt /opt/build/requirements/
RUN sh /opt/build/install.sh rest.txt
COPY requirements/torch.txt /opt/build/requirements/
RUN sh /opt/build/install.sh torch.txt

ENV PATH=/opt/stack/bin:$PATH
RUN mkdir -p /cache && chown 65532:65532 /cache
