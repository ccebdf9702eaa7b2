#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Packs the files listed in a manifest of cc_sdk (sdk.bzl).
#
#   pack_sdk.sh MANIFEST TAR
set -euo pipefail

manifest="$1"
tar="$2"
tree="$(mktemp -d)"
trap 'rm -rf "$tree"' EXIT

package="$(sed -n 's/^package //p' "$manifest")"
mkdir -p "$tree/include" "$tree/lib/pkgconfig"
while read -r name path; do
  install -D -m 644 "$path" "$tree/include/$name"
done < <(sed -n 's/^header //p' "$manifest")

# Merges the archives that the manifest lists under `word` into one.
merge() {
  local word="$1" library="$2"
  {
    echo "CREATE $library"
    sed -n "s/^$word /ADDLIB /p" "$manifest"
    echo SAVE
    echo END
  } | ar -M
}
# An MRI script cannot contain paths with a plus or a space, so it is run in a
# folder without one.
merge archive lib.a
mv lib.a "$tree/lib/lib$package.a"
libraries="-l$package"
if grep -q '^whole ' "$manifest"; then
  merge whole whole.a
  mv whole.a "$tree/lib/lib${package}_whole.a"
  libraries="-Wl,--whole-archive -l${package}_whole -Wl,--no-whole-archive $libraries"
fi

cat >"$tree/lib/pkgconfig/$package.pc" <<EOF
prefix=\${pcfiledir}/../..

Name: $package
Description: Holdfast workers of one's own
Version: 1
Cflags: -std=c++17 -I\${prefix}/include
Libs: -L\${prefix}/lib $libraries -Wl,--as-needed $(sed -n 's/^flag //p' "$manifest" | tr '\n' ' ')
EOF
tar --create --file="$tar" --directory="$tree" --sort=name --mtime=@1577836800 --owner=0 --group=0 \
  --numeric-owner include lib
