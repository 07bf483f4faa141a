#!/bin/sh
# compress.sh FROM TO: compresses the files of a folder, one after another. As a task of kind command it resumes after
# the last file that an earlier attempt finished, on whichever node the next attempt runs:
#
#   name: compress-logs
#   kind: command
#   params: {argv: [/srv/scripts/compress.sh, /srv/logs, /srv/archive]}
set -eu
from=$1 to=$2

finished=0 # files done by earlier attempts; the checkpoint file is empty if there is no checkpoint
[ ! -s "$ROTA_CHECKPOINT_FILE" ] || finished=$(cat "$ROTA_CHECKPOINT_FILE")
resumed_at=$finished

set -- "$from"/*
number=0
for file in "$@"; do
    number=$((number + 1))
    [ "$number" -gt "$finished" ] || continue
    # Every attempt has its own fencing number, so an old attempt never writes to the file of a newer one.
    part=$to/${file##*/}.$ROTA_FENCING_NUMBER.part
    gzip -c <"$file" >"$part"
    mv "$part" "$to/${file##*/}.gz"
    # Fails, and so ends this script (set -e), if a newer attempt has taken over.
    echo "$number" | rota ctx checkpoint -
    echo "compressed $file"
    rota ctx progress "$number" "$#" files
done
rota ctx result files="$#" resumed_at="$resumed_at"
