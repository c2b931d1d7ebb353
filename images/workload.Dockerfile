# An environment plus the workload: after an edit of the workload only this is rebuilt, even without access to an index.
ARG ENVIRONMENT
FROM ${ENVIRONMENT}
COPY workload/ /opt/workload/
USER 65532:65532
ENV HOME=/tmp
WORKDIR /tmp
ENTRYPOINT []
