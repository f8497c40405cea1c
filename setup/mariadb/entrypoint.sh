#!/bin/sh
# Makes the database and its user when the container starts for the first time, and becomes MariaDB.
set -eu

first=
if [ ! -d /var/lib/mysql/mysql ]; then
    chown mysql:mysql /var/lib/mysql
    mariadb-install-db --user=mysql --auth-root-authentication-method=socket --skip-test-db >/dev/null
    first=/run/mysqld/first.sql
    cat >"$first" <<SQL
CREATE DATABASE \`$MARIADB_DATABASE\`;
CREATE USER '$MARIADB_USER'@'%' IDENTIFIED BY '$MARIADB_PASSWORD';
GRANT ALL ON \`$MARIADB_DATABASE\`.* TO '$MARIADB_USER'@'%';
SQL
    chown mysql "$first"
fi
exec mariadbd --user=mysql --bind-address=0.0.0.0 ${first:+"--init-file=$first"}
