#!/usr/bin/env bash
# rabbitmq4.sh DIR [SUITE]: fetches a current RabbitMQ with the small system that it needs from the packages of a newer
# Debian (SUITE, default sid), and unpacks them into DIR, which it prints. Nothing is installed. The mirror is the
# machine's own. Servers run in it by chroot, which needs root.
set -euo pipefail

mkdir -p "$1"
root=$(cd "$1" && pwd)
suite=${2:-sid}
if [ ! -e "$root/complete" ]; then
  mirror=$(grep -rhoE 'https?://[^] ]+/debian/?( |$)' /etc/apt/sources.list /etc/apt/sources.list.d 2> /dev/null | head -n 1 | tr -d ' ' || true)
  if [ -z "$mirror" ]; then
    mirror=$(sed -nE 's|^URIs:[[:space:]]*([^ ]+/debian/?)([[:space:]].*)?$|\1|p' /etc/apt/sources.list.d/*.sources 2> /dev/null | head -n 1)
  fi
  [ -n "$mirror" ] || { echo "rabbitmq4.sh: apt's sources name no mirror of Debian" >&2; exit 1; }
  apt=$root/apt
  mkdir -p "$apt/lists/partial" "$apt/archives/partial" "$apt/none"
  : > "$apt/status"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" > "$apt/sources.list"
  cat > "$apt/apt.conf" << CONF
Dir::Etc::sourcelist "$apt/sources.list";
Dir::Etc::sourceparts "$apt/none";
Dir::State::lists "$apt/lists";
Dir::State::status "$apt/status";
Dir::State::extended_states "$apt/extended_states";
Dir::Cache::archives "$apt/archives";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
APT::Sandbox::User "";
APT::Install-Recommends "false";
CONF
  export APT_CONFIG=$apt/apt.conf
  apt-get -qq update >&2
  apt-get -qq -y --download-only install rabbitmq-server bash dash coreutils base-files util-linux sed grep gawk findutils hostname libc-bin >&2
  # The layout of directories first: other packages unpack into its links.
  dpkg -x "$apt"/archives/base-files_*.deb "$root"
  for package in "$apt"/archives/*.deb; do dpkg -x "$package" "$root"; done
  echo 'root:x:0:0:root:/root:/bin/sh' > "$root/etc/passwd"
  echo 'root:x:0:' > "$root/etc/group"
  echo '127.0.0.1 localhost' > "$root/etc/hosts"
  ldconfig -r "$root"
  rm -rf "$apt/archives"
  touch "$root/complete"
fi
echo "$root"
