# quire on NVIDIA's GPUs. From the root of the repository:
#   docker build -f deploy/docker/cuda.Dockerfile -t quire-cuda .
#   docker run --rm --gpus all --shm-size 8g --read-only --tmpfs /tmp -v models:/models -p 127.0.0.1:8000:8000 quire-cuda serve MODEL
# torch brings CUDA's libraries and NVIDIA's container toolkit the driver, so the base is as small as that of cpu.Dockerfile.
# A release fixes its base by digest: --build-arg BASE=debian@sha256:…
ARG BASE=debian:trixie-slim

FROM ${BASE} AS build
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates g++ python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/quire
# PyPI's torch for Linux is a build with CUDA; https://download.pytorch.org/whl/cu126 and its like have older ones.
ARG TORCH="torch>=2.9,<2.14"
ARG TORCH_INDEX=https://pypi.org/simple
RUN /opt/quire/bin/pip install --no-cache-dir --index-url "$TORCH_INDEX" "$TORCH" \
    && /opt/quire/bin/python -c 'import torch, triton; assert torch.version.cuda, "this torch is a build without CUDA"'
COPY pyproject.toml CMakeLists.txt README.md LICENSE /src/
COPY quire /src/quire
ARG EXTRAS=media,otel
RUN /opt/quire/bin/pip install --no-cache-dir "/src[$EXTRAS]" \
    && /opt/quire/bin/python -c 'import quire.ops.cpu._core'
RUN find /opt/quire -name '*.a' -delete

FROM ${BASE}
# Triton compiles a small launcher in C for every kernel: it needs a compiler and Python's headers when quire runs.
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates gcc libc6-dev python3-dev tini \
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
    TRITON_CACHE_DIR=/models/triton \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
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
