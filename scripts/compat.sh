#!/usr/bin/env bash
# Installs the reference client, the npm package "freestyle", for test/compat
# into the cache, outside the checkout. Without an argument it is the pinned
# version, checked against the sums in package-lock.json; with "latest" it is
# the newest that was published. Nothing is done if it is there already.
set -euo pipefail

readonly HERE=${BASH_SOURCE[0]%/*}/../test/compat
readonly CACHE=${PANDO_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/pando}/compat
# The first Node.js on which the reference client's command line starts; it
# reads files with a function that older ones lack.
readonly OLDEST_NODE=20
# No script of a package runs, and no network is asked for more than packages.
readonly QUIET=(--ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel=error)

pinned() {
	local dir=$CACHE/pinned
	if cmp -s "$HERE/package-lock.json" "$dir/installed-lock.json"; then
		return
	fi
	mkdir -p "$dir"
	rm -f "$dir/installed-lock.json"
	cp "$HERE/package.json" "$HERE/package-lock.json" "$dir/"
	(cd "$dir" && npm ci "${QUIET[@]}")
	cp "$HERE/package-lock.json" "$dir/installed-lock.json"
}

# newer_node installs the Node.js that test/compat/node pins, because the
# distribution's does not start the client: Debian 12 and Ubuntu 24.04 have 18.
newer_node() {
	local dir=$CACHE/node version
	version=$(node --version 2>/dev/null) || version=v0
	version=${version#v}
	if [ "${version%%.*}" -ge "$OLDEST_NODE" ]; then
		rm -rf "$dir"
		return
	fi
	if cmp -s "$HERE/node/package-lock.json" "$dir/installed-lock.json"; then
		return
	fi
	mkdir -p "$dir"
	cp "$HERE/node/package.json" "$HERE/node/package-lock.json" "$dir/"
	(cd "$dir" && npm ci "${QUIET[@]}")
	cp "$HERE/node/package-lock.json" "$dir/installed-lock.json"
}

latest() {
	local dir=$CACHE/latest
	rm -rf "$dir"
	mkdir -p "$dir"
	printf '{"name":"pando-compat-latest","private":true,"type":"module"}\n' >"$dir/package.json"
	(cd "$dir" && npm install "${QUIET[@]}" --no-package-lock freestyle@latest)
}

newer_node
case ${1:-pinned} in
pinned) pinned ;;
latest) latest ;;
*)
	printf 'usage: compat.sh [pinned|latest]\n' >&2
	exit 2
	;;
esac
