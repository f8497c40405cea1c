#!/bin/sh
# Whether the database takes connections. The image of Docker has this program, with more options.
exec mariadb --host=127.0.0.1 --user="$MARIADB_USER" --password="$MARIADB_PASSWORD" --execute='SELECT 1' "$MARIADB_DATABASE"
