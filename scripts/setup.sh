#!/usr/bin/env bash
# Installs the Debian or Ubuntu packages that building, testing and running
# Pando need, those that are missing only; with the argument "test" also what
# test/compat and test/shell run. It asks no server when all are there.
set -euo pipefail

# What is needed, as package:proof. The proof is a command, or a file if it
# begins with a slash.
readonly NEEDS=(
	qemu-system-x86:qemu-system-x86_64
	qemu-utils:qemu-img
	mmdebstrap:mmdebstrap
	debian-archive-keyring:/usr/share/keyrings/debian-archive-keyring.gpg
	e2fsprogs:mke2fs
	busybox-static:/bin/busybox
	ca-certificates:/etc/ssl/certs/ca-certificates.crt
	curl:curl
	git:git
	make:make
	gcc:gcc
	libc6-dev:/usr/include/stdio.h
	linux-libc-dev:/usr/include/linux/seccomp.h
	shellcheck:shellcheck
)

readonly TEST_NEEDS=(
	nodejs:node
	npm:npm
	bash-completion:/usr/share/bash-completion/bash_completion
	zsh:zsh
	fish:fish
	man-db:man
	mandoc:mandoc
)

# The first Go that can fetch the toolchain that go.mod asks for.
readonly OLDEST_GO=1.21

say() { printf 'setup: %s\n' "$*" >&2; }

die() {
	say "$*"
	exit 1
}

present() {
	case $1 in
	/*) [ -e "$1" ] ;;
	*) PATH=$PATH:/usr/sbin:/sbin command -v "$1" >/dev/null ;;
	esac
}

go_works() {
	local version
	version=$(go env GOVERSION 2>/dev/null) || return 1
	version=${version#go}
	[ "$(printf '%s\n' "$OLDEST_GO" "$version" | sort -V | head -n1)" = "$OLDEST_GO" ]
}

# missing prints the packages whose proof is not there, one a line.
missing() {
	local need needs=("${NEEDS[@]}")
	[ "$1" != test ] || needs+=("${TEST_NEEDS[@]}")
	for need in "${needs[@]}"; do
		present "${need#*:}" || printf '%s\n' "${need%%:*}"
	done
	go_works || printf 'golang-go\n'
}

as_root() {
	if [ "$(id -u)" = 0 ]; then
		"$@"
	elif command -v sudo >/dev/null; then
		sudo "$@"
	else
		die "packages are missing and this is not root; as root run: apt-get install $*"
	fi
}

# bar shows how far apt is, on a terminal: its status lines are
# "dlstatus:INDEX:PERCENT:TEXT" and "pmstatus:PACKAGE:PERCENT:TEXT". Downloads
# are the first half.
bar() {
	local kind percent text half width
	while IFS=: read -r kind _ percent text; do
		case $kind in
		dlstatus) half=0 ;;
		pmstatus) half=50 ;;
		*) continue ;;
		esac
		[ -t 2 ] || continue
		percent=$((half + ${percent%%.*} / 2))
		width=$((percent * 30 / 100))
		printf '\rsetup: [%-30s] %3d%% %-40.40s' "$(printf '%*s' "$width" '' | tr ' ' '#')" "$percent" "$text" >&2
	done
	[ ! -t 2 ] || printf '\r%-90s\r' '' >&2
}

# apt_get runs apt-get and shows its output only if it fails.
apt_get() {
	local log
	log=$(mktemp)
	if ! as_root env DEBIAN_FRONTEND=noninteractive apt-get -y -o APT::Status-Fd=1 "$@" 2>&1 | tee "$log" | bar; then
		cat "$log" >&2
		rm -f "$log"
		die "apt-get $1 failed"
	fi
	rm -f "$log"
}

main() {
	local packages
	mapfile -t packages < <(missing "$1")
	if [ "${#packages[@]}" = 0 ]; then
		go_works || die "Go is missing or older than $OLDEST_GO; install Go and put it on PATH"
		return
	fi
	command -v apt-get >/dev/null || die "install these by hand, this host has no apt-get: ${packages[*]}"
	say "1/2 reading the package lists"
	apt_get update
	say "2/2 installing ${packages[*]}"
	apt_get install --no-install-recommends "${packages[@]}"
	go_works || die "Go is missing or older than $OLDEST_GO; install Go and put it on PATH"
}

main "${1:-}"
