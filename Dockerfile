# Two images from one file: `rota` runs tasks of kind command and backup, `rota-spark` also ingest, etl and maintain.
#   docker build --target rota .
# BASE may be any Debian with Python 3.11 or later and venv. Its release decides which PostgreSQL can be backed up:
# pg_dump refuses a server newer than itself (trixie has 17, bookworm 15).
ARG BASE=python:3.12-slim-trixie

FROM ${BASE} AS build
RUN python3 -m venv /opt/rota
ENV PATH=/opt/rota/bin:$PATH PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
COPY requirements/rota.lock /src/requirements/rota.lock
RUN pip install --quiet --require-hashes --requirement /src/requirements/rota.lock

FROM build AS build-rota
COPY pyproject.toml README.md LICENSE /src/
COPY hashing /src/hashing
COPY tasks /src/tasks
COPY spark_tasks /src/spark_tasks
COPY node /src/node
# Which commit this is, for the version. README.md is there for sources without .git: COPY refuses a pattern alone.
COPY README.md .gi[t] /src/.git/
RUN pip install --quiet --no-deps /src

FROM build-rota AS build-spark
COPY requirements/rota-spark.lock /src/requirements/rota-spark.lock
RUN pip install --quiet --require-hashes --requirement /src/requirements/rota-spark.lock

FROM ${BASE} AS runtime
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql-client \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 10001 rota && useradd --uid 10001 --gid 10001 --create-home rota \
    && install -d -o rota -g rota /data /backups /srv/data /exchange
ENV PATH=/opt/rota/bin:$PATH PYTHONUNBUFFERED=1 LANG=C.UTF-8 ROTA_DATA=/data
USER rota
VOLUME /data
STOPSIGNAL SIGTERM
# Unhealthy means that the node is not ready (GET /readyz), for example without a quorum; the engine does not restart it
# for that. The start period covers the founding of a cluster, or joining one.
HEALTHCHECK --interval=5s --timeout=5s --start-period=120s --retries=3 CMD ["python3", "-I", "-m", "node.cli.ready"]
CMD ["rota", "node", "--log-format", "json"]

FROM runtime AS rota-spark
COPY --from=build-spark /opt/rota /opt/rota
# Spark starts in half the time with it. Here, as it fits only files with these times.
USER root
RUN python3 -m spark_tasks.spark.make_class_cache
USER rota

FROM runtime AS rota
COPY --from=build-rota /opt/rota /opt/rota
