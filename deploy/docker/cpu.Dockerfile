# quire on CPUs. From the root of the repository:
#   docker build -f deploy/docker/cpu.Dockerfile -t quire .
#   docker run --rm --read-only --tmpfs /tmp -v models:/models -p 127.0.0.1:8000:8000 quire serve smollm2
# A release fixes its base by digest: --build-arg BASE=debian@sha256:…
ARG BASE=debian:trixie-slim

FROM ${BASE} AS build
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates g++ python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/quire
# torch first, in the range of pyproject.toml, and from its own index: its builds for CPUs are a tenth of those with CUDA.
ARG TORCH="torch>=2.9,<2.14"
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN /opt/quire/bin/pip install --no-cache-dir --index-url "$TORCH_INDEX" "$TORCH"
COPY pyproject.toml CMakeLists.txt README.md LICENSE /src/
COPY quire /src/quire
ARG EXTRAS=media,otel
RUN /opt/quire/bin/pip install --no-cache-dir "/src[$EXTRAS]" \
    && /opt/quire/bin/python -c 'import quire.ops.cpu._core'
# What only building needs: headers and static libraries. pip stays: the default model comes from its index.
RUN (cd /opt/quire/lib/python3*/site-packages/torch && rm -rf include share test) \
    && find /opt/quire -name '*.a' -delete

FROM ${BASE}
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates python3 tini \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 10001 quire \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin quire \
    && install --directory --owner quire --group quire /models /data
COPY --from=build /opt/quire /opt/quire
# All that quire writes lies in /models, /data and /tmp, so the rest may be read-only.
ENV PATH=/opt/quire/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/tmp \
    XDG_CACHE_HOME=/models \
    XDG_DATA_HOME=/data \
    HF_HOME=/models/huggingface \
    QUIRE_HOST=0.0.0.0 \
    QUIRE_PORT=8000
USER 10001:10001
VOLUME ["/models", "/data"]
EXPOSE 8000
# /health wants no key, and says whether steps complete.
HEALTHCHECK --interval=15s --timeout=10s --start-period=10m --retries=4 \
    CMD ["python", "-c", "import os, urllib.request as u; u.urlopen(f'http://127.0.0.1:{os.environ[\"QUIRE_PORT\"]}/health', timeout=8)"]
ENTRYPOINT ["tini", "--", "quire"]
CMD ["serve"]
