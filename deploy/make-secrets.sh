#!/bin/sh
# Makes what compose.yaml reads from secrets/, once: what exists stays. The folder is closed to
# others; the files in it are not, since the containers' user is not the one who runs this.
set -eu
cd "$(dirname "$0")"
mkdir -p secrets
chmod 700 secrets
random() { python3 -c 'import secrets; print(secrets.token_urlsafe(48))'; }
[ -s secrets/secret_key ] || random > secrets/secret_key
if [ ! -s secrets/postgres_password ]; then
  random > secrets/postgres_password
  printf 'postgresql://switchback:%s@postgres:5432/switchback\n' "$(cat secrets/postgres_password)" \
    > secrets/database_url
fi
