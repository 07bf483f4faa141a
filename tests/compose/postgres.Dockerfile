# Stands in for the official PostgreSQL image where no image registry can be reached: the distribution's server, of the
# same release as the client in the nodes' image.
ARG BASE
FROM ${BASE}
RUN mkdir -p /etc/postgresql-common && echo "create_main_cluster = false" > /etc/postgresql-common/createcluster.conf \
    && apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql >/dev/null \
    && rm -rf /var/lib/apt/lists/*
COPY postgres-entry.sh /usr/local/bin/postgres-entry
CMD ["bash", "/usr/local/bin/postgres-entry"]
