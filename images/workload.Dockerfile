# An environment plus the workload: editing the workload makes only this again, also where no index can be reached.
ARG ENVIRONMENT
FROM ${ENVIRONMENT}
COPY workload/ /opt/workload/
USER 65532:65532
ENV HOME=/tmp
WORKDIR /tmp
ENTRYPOINT []
