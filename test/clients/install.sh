#!/usr/bin/env bash
# Installs the foreign AMQP clients that the process tests drive, from Debian's
# packages and, in the versions of package-lock.json, from npm. Does nothing when
# they are there.
set -euo pipefail
cd "$(dirname "$0")"

# What to look for, and the packages that bring it.
wanted=(
  "$(command -v gcc)" "gcc libc6-dev" # for the race detector and librabbitmq
  "$(command -v npm)" "nodejs npm"
  /usr/lib/python3/dist-packages/pika python3-pika
  /usr/lib/python3/dist-packages/amqp python3-amqp
  /usr/lib/python3/dist-packages/kombu python3-kombu
  /usr/lib/python3/dist-packages/celery python3-celery
  /usr/bin/php php-cli
  /usr/share/php/PhpAmqpLib/autoload.php php-amqplib
  /usr/share/rubygems-integration/all/gems/bunny-* ruby-bunny
  /usr/bin/amqp-publish amqp-tools
  /usr/include/amqp.h librabbitmq-dev
)
packages=()
for ((i = 0; i < ${#wanted[@]}; i += 2)); do
  [ -e "${wanted[i]}" ] || read -ra more <<< "${wanted[i + 1]}"
  packages+=("${more[@]}")
  more=()
done
if [ ${#packages[@]} -gt 0 ]; then
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends "${packages[@]}" > /dev/null
fi

if ! cmp -s node/package-lock.json node/node_modules/.warren-lock; then
  (cd node && npm ci --no-audit --no-fund --loglevel=error)
  cp node/package-lock.json node/node_modules/.warren-lock
fi
