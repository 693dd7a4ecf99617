#!/usr/bin/env bash
# Checks an AMQP broker through amqp-tools, the commands of librabbitmq, as a shell
# script would use them.
#
# Usage: check.sh URL [URL-AFTER]
#
# Prints a line for each promise that holds and ends with exit code 1 at the
# first that does not. With a second URL it then waits for a line on standard
# input (the caller kills the first node) and goes on over there. The commands set
# no queue arguments: check.c does what needs them.
set -euo pipefail

# The commands take amqp://host:port/ as the empty vhost.
vhost() { printf '%s%s' "${1%/}" "/${2:-%2f}"; }
url=$(vhost "$1")
run=amqp-tools.$$

ok() { echo "ok $*"; }
fail() { echo "not ok $*"; exit 1; }

# refused TEXT COMMAND...: the command fails and says TEXT.
refused() {
  local text=$1 said
  shift
  if said=$("$@" 2>&1 < /dev/null); then fail "$* is not refused"; fi
  [[ $said == *"$text"* ]] || fail "$*: $said"
}

q=$run.q
[[ $(amqp-declare-queue -u "$url" -d -q "$q") == "$q" ]] || fail "declare"
seq 1 30 | amqp-publish -u "$url" -r "$q" -p -l -C text/plain -H "mine: yes"
[[ $(amqp-get -u "$url" -q "$q") == 1 ]] || fail "get"
ok "declare, publish and get"

# amqp-consume acknowledges each message when its command ends well.
got=$(amqp-consume -u "$url" -q "$q" -p 5 -c 29 cat | tr '\n' ' ')
[[ ${got// /} == "$(seq -s '' 2 30)" ]] || fail "consume: $got"
ok "consuming with prefetch"

server=$(amqp-declare-queue -u "$url" -q "")
[[ $server == amq.gen-* ]] || fail "a server-named queue: $server"
amqp-delete-queue -u "$url" -q "$server" > /dev/null
ok "a server-named queue"

refused "ACCESS_REFUSED" amqp-get -u "${url/guest:guest/guest:wrong}" -q "$q"
refused "vhost nowhere not found" amqp-get -u "$(vhost "$1" nowhere)" -q "$q"
refused "NOT_FOUND - no queue '$run.none' in vhost '/'" amqp-get -u "$url" -q "$run.none"
refused "inequivalent arg 'durable' for queue '$q'" amqp-declare-queue -u "$url" -q "$q"
refused "PRECONDITION_FAILED - queue '$q' in vhost '/' not empty" \
  sh -c "amqp-publish -u '$url' -r '$q' -b one; amqp-delete-queue -e -u '$url' -q '$q'"
amqp-get -u "$url" -q "$q" > /dev/null
ok "errors"

if [[ $# -gt 1 ]]; then
  after=$(vhost "$2")
  seq 1 20 | amqp-publish -u "$url" -r "$q" -p -l
  # It holds its first message for as long as its node lives.
  amqp-consume -u "$url" -q "$q" -p 3 sh -c 'cat > /dev/null; sleep 600' 2> /dev/null &
  consumer=$!
  sleep 1
  echo "kill $url"
  read -r _
  kill "$consumer" 2> /dev/null || true
  got=$(timeout 40 amqp-consume -u "$after" -q "$q" -p 5 -c 20 cat | sort -n | tr '\n' ' ')
  [[ $got == "$(seq -s ' ' 1 20) " ]] || fail "after the death of a node: $got"
  url=$after
  ok "the death of a node"
fi
amqp-delete-queue -u "$url" -q "$q" > /dev/null
echo done
