#!/usr/bin/env bash
# Installs what the rig needs beside Go, from Debian's packages, if it is missing.
set -euo pipefail
missing=()
need() { command -v "$1" >/dev/null || missing+=("$2"); }
need containerd containerd
need runc runc
need etcd etcd-server
need iptables iptables
need conntrack conntrack
need ip iproute2
need buildah buildah
need busybox busybox-static
[ -x /usr/lib/cni/ptp ] || missing+=(containernetworking-plugins)
[ ${#missing[@]} = 0 ] && exit 0
echo "installing ${missing[*]}"
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
