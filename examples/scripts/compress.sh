#!/bin/sh
# compress.sh FROM TO: compresses the files of a folder, one after another. Run as a task of kind command, it goes on
# after the last file that it finished, on whichever node it is tried again:
#
#   name: compress-logs
#   kind: command
#   params: {argv: [/srv/scripts/compress.sh, /srv/logs, /srv/archive]}
set -eu
from=$1 to=$2

finished=0 # of the attempts before this one; the file is empty where there is no checkpoint
[ ! -s "$ROTA_CHECKPOINT_FILE" ] || finished=$(cat "$ROTA_CHECKPOINT_FILE")
resumed_at=$finished

set -- "$from"/*
number=0
for file in "$@"; do
    number=$((number + 1))
    [ "$number" -gt "$finished" ] || continue
    # No two attempts have one fencing number: an old one cannot write into the file of the one that took over.
    part=$to/${file##*/}.$ROTA_FENCING_NUMBER.part
    gzip -c <"$file" >"$part"
    mv "$part" "$to/${file##*/}.gz"
    # Ends this script (set -e) if another attempt runs by now.
    echo "$number" | rota ctx checkpoint -
    echo "compressed $file"
    rota ctx progress "$number" "$#" files
done
rota ctx result files="$#" resumed_at="$resumed_at"
