#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds the Debian package of the daemons and the command, for Debian 12 on this machine's
# architecture. The last line of output is the path of the package.
#
#   deploy/debian/build.sh --out=FOLDER [--programs=FOLDER]
#
# --programs names a folder with holdfast, ps_server and ps_worker, built on Debian 12; without
# it they are built here.
set -euo pipefail

usage() {
  sed -n '3,/^set/ { /^#/ s/^# \{0,1\}//p }' "${BASH_SOURCE[0]}" >&2
  exit 2
}

out=
programs=
for argument in "$@"; do
  case "$argument" in
    --out=?*) out="$(realpath --canonicalize-missing "${argument#*=}")" ;;
    --programs=?*) programs="$(realpath "${argument#*=}")" ;;
    *) usage ;;
  esac
done
[[ -n "$out" ]] || usage

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
if [[ -z "$programs" ]]; then
  deploy/local/setup.sh
  /usr/bin/bazel build //cli:holdfast //ps_server //worker:ps_worker </dev/null >&2
  bin="$(/usr/bin/bazel info bazel-bin 2>/dev/null)"
  sources=("$bin/cli/holdfast" "$bin/ps_server/ps_server" "$bin/worker/ps_worker")
else
  sources=("$programs/holdfast" "$programs/ps_server" "$programs/ps_worker")
fi

version="$(sed -nE 's/^inline constexpr char kVersion\[\] = "([0-9.]+)";$/\1/p' \
  common/process/version.h)"
architecture="$(dpkg --print-architecture)"
[[ -n "$version" ]] || {
  echo "build.sh: common/process/version.h has no kVersion" >&2
  exit 1
}

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
root="$work/root"
here=deploy/debian

install -D -m 755 --strip -t "$root/usr/bin" "${sources[@]}"
install -D -m 644 -t "$root/usr/lib/systemd/system" \
  "$here/holdfast-ps@.service" "$here/holdfast-worker@.service"
install -D -m 644 "$here/holdfast.sysusers" "$root/usr/lib/sysusers.d/holdfast.conf"
install -D -m 644 -t "$root/etc/holdfast" "$here/ps.env" "$here/worker.env"
install -D -m 644 "$here/copyright" "$root/usr/share/doc/holdfast/copyright"
install -D -m 644 CHANGELOG.md "$root/usr/share/doc/holdfast/changelog"
gzip --best --no-name "$root/usr/share/doc/holdfast/changelog"
install -D -m 644 -t "$root/usr/share/doc/holdfast/examples" examples/*.textproto
install -d "$root/usr/share/bash-completion/completions"
"${sources[0]}" completion bash >"$root/usr/share/bash-completion/completions/holdfast"

# dpkg-shlibdeps wants a source package around it.
install -D -m 644 /dev/null "$work/debian/control"
printf 'Source: holdfast\n\nPackage: holdfast\nArchitecture: any\n' >"$work/debian/control"
depends="$(cd "$work" && dpkg-shlibdeps -O root/usr/bin/* 2>/dev/null |
  sed -n 's/^shlibs:Depends=//p')"
[[ -n "$depends" ]] || {
  echo "build.sh: dpkg-shlibdeps found no libraries; is dpkg-dev installed?" >&2
  exit 1
}

install -D -m 755 -t "$root/DEBIAN" "$here/postinst" "$here/prerm" "$here/postrm"
printf '/etc/holdfast/%s\n' ps.env worker.env >"$root/DEBIAN/conffiles"
cat >"$root/DEBIAN/control" <<CONTROL
Package: holdfast
Version: $version
Architecture: $architecture
Maintainer: The Holdfast authors <holdfast@localhost>
Installed-Size: $(du --summarize --block-size=1K "$root/usr" | cut -f1)
Depends: $depends, systemd | systemd-sysusers
Recommends: bash-completion
Suggests: dataset-fashion-mnist
Section: science
Priority: optional
Description: parameter server for training machine learning models
 ps_server shards and stores the variables of a model; ps_worker computes
 gradients, pushes them and pulls values over gRPC, synchronously or not; and
 holdfast starts, watches and inspects jobs.
 .
 The package brings units of systemd for clusters that run without Kubernetes.
CONTROL

mkdir -p "$out"
package="$out/holdfast_${version}_${architecture}.deb"
# The same programs give the same bytes, whenever the package is built.
SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}"
export SOURCE_DATE_EPOCH
find "$root" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
dpkg-deb --root-owner-group --build "$root" "$package" >&2
echo "$package"
