set -euo pipefail
bin=$(echo /usr/lib/postgresql/*/bin)
data=/var/lib/postgresql/data/main
mkdir -p "$data" /run/postgresql
cp "$POSTGRES_PASSWORD_FILE" /tmp/password
chown postgres "$data" /run/postgresql /tmp/password
as() { setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; }
if [ ! -e "$data/PG_VERSION" ]; then
  as "$bin/initdb" -D "$data" -U "$POSTGRES_USER" --auth=scram-sha-256 --pwfile=/tmp/password -E UTF8 --locale=C
  echo "host all all all scram-sha-256" >> "$data/pg_hba.conf"
  as "$bin/pg_ctl" -D "$data" -w -o "-c listen_addresses=''" start
  PGPASSWORD=$(cat /tmp/password) as "$bin/createdb" -U "$POSTGRES_USER" "$POSTGRES_DB"
  as "$bin/pg_ctl" -D "$data" -w stop
fi
exec setpriv --reuid=postgres --regid=postgres --clear-groups "$bin/postgres" -D "$data" -c listen_addresses='*'
