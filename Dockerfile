# Two images from one file: `rota` runs commands and backups, `rota-spark` ingests as well.
#   docker build --target rota .        BASE may be any image with Python 3.11 or later and venv.
ARG BASE=python:3.12-slim-bookworm

FROM ${BASE} AS build
RUN python3 -m venv /opt/rota
ENV PATH=/opt/rota/bin:$PATH PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
COPY requirements/rota.lock /src/requirements/rota.lock
RUN pip install --quiet --requirement /src/requirements/rota.lock

FROM build AS build-rota
COPY pyproject.toml README.md /src/
COPY hashing /src/hashing
COPY tasks /src/tasks
COPY spark_tasks /src/spark_tasks
COPY node /src/node
RUN pip install --quiet --no-deps /src

FROM build-rota AS build-spark
COPY requirements/rota-spark.lock /src/requirements/rota-spark.lock
RUN pip install --quiet --requirement /src/requirements/rota-spark.lock

FROM ${BASE} AS runtime
RUN groupadd --gid 10001 rota && useradd --uid 10001 --gid 10001 --create-home rota \
    && install -d -o rota -g rota /data /backups
ENV PATH=/opt/rota/bin:$PATH PYTHONUNBUFFERED=1 LANG=C.UTF-8 ROTA_DATA=/data
USER rota
VOLUME /data
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=3s --start-period=20s \
    CMD ["python3", "-c", "import os, urllib.request as r; r.urlopen(f\"http://127.0.0.1:{os.environ.get('ROTA_HTTP_PORT', '8101')}/healthz\", timeout=2)"]
CMD ["rota", "node", "--log-format", "json"]

FROM runtime AS rota-spark
COPY --from=build-spark /opt/rota /opt/rota

FROM runtime AS rota
COPY --from=build-rota /opt/rota /opt/rota
