# The same as wheels.Dockerfile, but from a folder of wheels and without a network. The wheels stay in the first stage. The
# environment is copied as a whole, so stacks share only the layers of the base.
ARG BASE
FROM ${BASE} AS base
RUN command -v g++ >/dev/null || { apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*; }
COPY compile_bytecode.py /opt/build/
RUN python3 -B /opt/build/compile_bytecode.py

FROM base AS build
COPY install.sh /opt/build/
COPY wheelhouse/ /opt/build/wheelhouse/
COPY requirements/ /opt/build/requirements/
RUN for file in uv toolkit libraries rest torch; do sh /opt/build/install.sh $file.txt || exit 1; done

FROM base
COPY --from=build /opt/stack /opt/stack
COPY requirements/ /opt/build/requirements/
ENV PATH=/opt/stack/bin:$PATH
RUN mkdir -p /cache && chown 65532:65532 /cache
