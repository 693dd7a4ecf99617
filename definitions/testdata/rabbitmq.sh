#!/usr/bin/env bash
# rabbitmq.sh [4] OUT [IMPORT]: starts Debian's RabbitMQ, or with 4 the one of a newer Debian (which needs root), as
# jepsen/rabbitmq.sh and docs/benchmarks/peers/rabbitmq4.sh fetch them, gives it what teams have, and writes its
# definitions to OUT, as the management API does or, if RABBITMQ_EXPORT is ctl, rabbitmqctl. With IMPORT that file is loaded in place of what is made here, and must load. Nothing is
# installed; everything is in a temporary folder, or in RABBITMQ_PACKAGES, which is kept.
set -euo pipefail
set -m # what runs in the background is a group of its own, which ends as a whole

here=$(cd "$(dirname "$0")/../.." && pwd)
newer=
if [ "$1" = 4 ]; then newer=4; shift; fi
out=$(realpath -m "$1")
import=${2:+$(realpath "$2")}
work=$(mktemp -d)
packages=${RABBITMQ_PACKAGES:-$work/packages}
data=$work/data
mkdir -p "$data" "$packages"
if [ "$newer" ]; then
  root=$("$here/docs/benchmarks/peers/rabbitmq4.sh" "$packages" | tail -n 1)
  seen=/data
else
  root=$("$here/jepsen/rabbitmq.sh" "$packages" | tail -n 1)
  seen=$data
fi
in_root() { # runs a program of the packages
  if [ "$newer" ]; then
    # shellcheck disable=SC2016
    unshare -m --propagation private bash -c 'mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" && mkdir -p "$1/data" &&
      mount --bind "$2" "$1/data" && exec chroot "$1" "${@:3}"' enter "$root" "$data" "$@"
  else
    local program=$1
    shift
    "${root%/}$program" "$@"
  fi
}
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
epmd=$(free_port) dist=$(free_port) amqp=$(free_port) http=$(free_port)
erlang=/usr/lib/erlang/bin
[ "$newer" ] || erlang=${root%/}$erlang
export PATH=$erlang:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 HOME=$seen ERL_EPMD_ADDRESS=127.0.0.1 ERL_EPMD_PORT=$epmd
export RABBITMQ_CONF_ENV_FILE=/dev/null RABBITMQ_CTL_ERL_ARGS="-kernel inet_dist_use_interface {127,0,0,1}"
export RABBITMQ_NODENAME=definitions@localhost RABBITMQ_DIST_PORT=$dist
export RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="-kernel inet_dist_use_interface {127,0,0,1}"
export RABBITMQ_CONFIG_FILE=$seen/rabbitmq.conf RABBITMQ_ENABLED_PLUGINS_FILE=$seen/enabled_plugins
export RABBITMQ_MNESIA_BASE=$seen/mnesia RABBITMQ_LOG_BASE=$seen/logs RABBITMQ_PID_FILE=$seen/pid RABBITMQ_GENERATED_CONFIG_DIR=$seen/generated
printf 'listeners.tcp.default = 127.0.0.1:%s\nmanagement.tcp.port = %s\nmanagement.tcp.ip = 127.0.0.1\nlog.file = false\nlog.console = true\nlog.console.level = warning\n' "$amqp" "$http" > "$data/rabbitmq.conf"
echo '[rabbitmq_management,rabbitmq_shovel,rabbitmq_federation,rabbitmq_consistent_hash_exchange].' > "$data/enabled_plugins"
python3 -c 'import secrets; print(secrets.token_hex(16), end="")' > "$data/.erlang.cookie"
chmod 400 "$data/.erlang.cookie"

in_root /usr/lib/erlang/bin/epmd > "$work/epmd.log" 2>&1 &
helper=$!
in_root /usr/lib/rabbitmq/bin/rabbitmq-server > "$work/server.log" 2>&1 &
server=$!
finish() {
  status=$?
  [ "$status" = 0 ] || tail -n 40 "$work/server.log" >&2
  kill -- "-$server" 2> /dev/null || true
  wait "$server" 2> /dev/null || true
  kill -- "-$helper" 2> /dev/null || true
  rm -rf "$work"
}
trap finish EXIT
ctl() { in_root /usr/lib/rabbitmq/bin/rabbitmqctl -q "$@"; }
api() { # METHOD PATH [BODY]
  curl -sS -f -u guest:guest -H 'content-type: application/json' -X "$1" "http://127.0.0.1:$http/api/$2" ${3:+-d "$3"}
}
for _ in $(seq 120); do
  if curl -s -o /dev/null "http://127.0.0.1:$http/api/overview"; then break; fi
  kill -0 "$server"
  sleep 1
done

if [ "$import" ]; then
  curl -sS --fail-with-body -u guest:guest -H 'content-type: application/json' --data-binary "@$import" "http://127.0.0.1:$http/api/definitions"
  api GET definitions > "$out"
  exit
fi

ctl add_user sha256 'pass of sha256'
ctl set_user_tags sha256 management policymaker
ctl set_permissions -p / sha256 '^app\.' '^app\.' '.*'
ctl set_user_limits sha256 '{"max-connections": 10, "max-channels": 50}'
ctl add_user nopass x
ctl clear_password nopass
# Passwords from before 3.6, and of those who have chosen another hash: salt and digest are made by hand.
hash() { python3 -c 'import base64, hashlib, sys; salt = b"salt"; print(base64.b64encode(salt + hashlib.new(sys.argv[1], salt + sys.argv[2].encode()).digest()).decode())' "$1" "$2"; }
api PUT users/sha512 "{\"password_hash\": \"$(hash sha512 'pass of sha512')\", \"hashing_algorithm\": \"rabbit_password_hashing_sha512\", \"tags\": \"monitoring\"}"
api PUT users/md5 "{\"password_hash\": \"$(hash md5 'pass of md5')\", \"hashing_algorithm\": \"rabbit_password_hashing_md5\", \"tags\": \"\"}"
ctl set_permissions -p / sha512 '.*' '.*' '.*'
ctl set_permissions -p / md5 '' '.*' '.*'
api PUT vhosts/a%2Fb '{"description": "a virtual host", "tags": "prod,eu"}'
ctl set_permissions -p a/b sha256 '.*' '.*' '.*'
ctl set_vhost_limits -p a/b '{"max-connections": 100, "max-queues": 50}'
api PUT exchanges/%2F/app.events '{"type": "topic", "durable": true}'
api PUT exchanges/%2F/app.spread '{"type": "x-consistent-hash", "durable": true, "arguments": {"hash-header": "customer"}}'
api PUT exchanges/%2F/app.dead '{"type": "fanout", "durable": true}'
api PUT exchanges/%2F/app.inside '{"type": "direct", "durable": true, "internal": true}'
api PUT exchanges/a%2Fb/ae '{"type": "headers", "durable": true, "arguments": {"alternate-exchange": "amq.fanout"}}'
ctl set_topic_permissions -p / sha256 app.events '^app\.' '.*'
api PUT queues/%2F/app.quorum '{"durable": true, "arguments": {"x-queue-type": "quorum", "x-dead-letter-exchange": "app.dead", "x-delivery-limit": 5}}'
api PUT queues/%2F/app.classic '{"durable": true, "arguments": {"x-max-length": 1000, "x-overflow": "reject-publish"}}'
api PUT queues/%2F/app.gone '{"durable": true, "auto_delete": true, "arguments": {"x-expires": 3600000}}'
[ "$newer" ] || api PUT queues/%2F/app.transient '{"durable": false}'
api PUT queues/a%2Fb/by%20header '{"durable": true}'
api POST bindings/%2F/e/app.events/q/app.quorum '{"routing_key": "app.#"}'
api POST bindings/%2F/e/app.dead/q/app.classic '{"routing_key": ""}'
api POST bindings/%2F/e/app.spread/q/app.classic '{"routing_key": "2"}'
api POST bindings/%2F/e/app.events/e/app.dead '{"routing_key": "*.late"}'
api POST bindings/%2F/e/app.inside/q/app.classic '{"routing_key": "in"}'
api POST bindings/a%2Fb/e/ae/q/by%20header '{"routing_key": "", "arguments": {"x-match": "all", "kind": "order", "size": 3}}'
ctl set_policy -p / TTL '^app\.' '{"message-ttl": 60000}' --priority 3 --apply-to queues
ctl set_policy -p a/b AE '.*' '{"alternate-exchange": "amq.fanout"}' --apply-to exchanges
[ "$newer" ] || ctl set_policy -p / mirrored '^old\.' '{"ha-mode": "nodes", "ha-params": ["rabbit@a", "rabbit@b"], "ha-sync-mode": "automatic", "max-length": 9}'
ctl set_operator_policy -p / bounds '.*' '{"max-length": 100000, "expires": 86400000}' --priority 1 --apply-to queues
ctl set_parameter -p / shovel move '{"src-protocol": "amqp091", "src-uri": "amqp://", "src-queue": "app.classic", "dest-protocol": "amqp091", "dest-uri": "amqp://", "dest-queue": "elsewhere"}'
ctl set_parameter -p / federation-upstream other '{"uri": "amqp://other.example"}'
ctl set_global_parameter mqtt_port_to_vhost_mapping '{"1883": "/"}'
sleep 1
if [ "${RABBITMQ_EXPORT:-}" = ctl ]; then
  ctl export_definitions - | python3 -m json.tool > "$out"
else
  api GET definitions | python3 -m json.tool > "$out"
fi
