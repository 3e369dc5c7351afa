#!/usr/bin/env bash
# Shows the main job: a real VM with a running process and a file, forked live
# into three, all four going on from the same moment and then differing.
set -euo pipefail

cd "$(dirname "$0")/.."
# Commands in VMs would read a standard input that is not a terminal.
exec </dev/null
readonly PANDO=bin/pando
work=$(mktemp -d /var/tmp/pando-demo-XXXXXX)
chmod 0711 "$work"
daemon=

bold() {
	if [ -t 1 ]; then printf '\n\033[1m%s\033[0m\n' "$*"; else printf '\n%s\n' "$*"; fi
}

# show runs a command line as a person would and prints it first.
show() {
	printf '  $ pando %s\n' "$*"
	"$PANDO" "$@" | sed 's/^/    /'
}

now() { printf '%s' "$((${EPOCHREALTIME/./} / 1000))"; }

rows=()
# timed NAME COMMAND...: runs the command and keeps the milliseconds under the name.
timed() {
	local name=$1 start
	shift
	start=$(now)
	"$@"
	rows+=("$name|$(($(now) - start))")
}

clean_up() {
	local code=$?
	if [ -n "$daemon" ] && kill -0 "$daemon" 2>/dev/null; then
		"$PANDO" vm ls --json 2>/dev/null | grep -o '"id": *"vm-[^"]*"' | cut -d'"' -f4 | xargs -r "$PANDO" vm rm >/dev/null 2>&1 || true
		kill -TERM "$daemon"
		wait "$daemon" || true
	fi
	if [ "$code" != 0 ] && [ -f "$work/log" ]; then
		printf '\nThe demo failed. The end of the daemon'"'"'s log:\n' >&2
		tail -n 20 "$work/log" >&2
	fi
	rm -rf "$work"
	exit "$code"
}
trap clean_up EXIT

# start_daemon runs the daemon on a free port of the loopback interface.
start_daemon() {
	PANDO_API_KEY=demo-$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
	export PANDO_API_KEY
	"$PANDO" serve --listen 127.0.0.1:0 --data "$work/data" >"$work/log" 2>&1 &
	daemon=$!
	local tries
	for ((tries = 0; tries < 600; tries++)); do
		PANDO_URL=$(grep -o 'listening on http://[0-9.:]*' "$work/log" 2>/dev/null | cut -d' ' -f3) && break
		kill -0 "$daemon" 2>/dev/null || return 1
		sleep 0.05
	done
	export PANDO_URL
	printf '  the daemon serves %s\n' "$PANDO_URL"
}

# count prints what the counting process in a VM has reached. The file is empty
# for an instant each time that it is written.
# shellcheck disable=SC2016 # the guest's shell expands it
count() { "$PANDO" vm exec "$1" -- 'until read -r n < /dev/shm/count && [ -n "$n" ]; do :; done; echo "$n"'; }

bold "1. Base image"
timed "image ready (built once, then reused)" "$PANDO" image build pando/debian

bold "2. Daemon"
timed "daemon start" start_daemon

bold "3. A VM: Debian with systemd, from a snapshot"
timed "create" show vm create --slug source
timed "first command" show vm exec source -- 'uname -sr; systemctl is-system-running; whoami'

bold "4. State in memory (a process that counts) and in a file"
# shellcheck disable=SC2016 # the guest's shell expands it
show vm exec source -- 'nohup sh -c "i=0; while :; do i=\$((i+1)); echo \$i > /dev/shm/count; sleep 0.02; done" >/dev/null 2>&1 & echo "the same in all" > notes.txt; sleep 0.5'

bold "5. Fork it live into three"
before=$(count source)
timed "fork into three, all running" show vm fork source -n 3 --slug try
after=$(count source)

bold "6. All four go on from the same moment"
printf '  the source counted from %s to %s around the fork\n' "$before" "$after"
for vm in source try-1 try-2 try-3; do
	first=$(count "$vm")
	"$PANDO" vm exec "$vm" -- "hostname > who.txt; sleep 0.2"
	second=$(count "$vm")
	printf '  %-7s the process counts on: %5s, then %5s    notes.txt: %s\n' \
		"$vm" "$first" "$second" "$("$PANDO" vm exec "$vm" -- cat notes.txt)"
	if [ "$first" -lt "$before" ] || [ "$second" -le "$first" ]; then
		echo "the process in $vm does not go on" >&2
		exit 1
	fi
done

bold "7. And then they differ"
names=$(for vm in source try-1 try-2 try-3; do "$PANDO" vm exec "$vm" -- 'cat who.txt'; done)
printf '%s\n' "$names" | sed 's/^/  who.txt: /'
if [ "$(printf '%s\n' "$names" | sort -u | wc -l)" != 4 ]; then
	echo "the four VMs are not different" >&2
	exit 1
fi
show vm ls

bold "8. Pause and resume"
timed "pause" "$PANDO" vm pause try-1 >/dev/null
timed "resume" "$PANDO" vm start try-1 >/dev/null
printf '  try-1 counts on after its sleep: %s\n' "$(count try-1)"

bold "9. Clean up"
timed "delete four VMs" show vm rm source try-1 try-2 try-3

bold "Timings"
printf '  %-42s %10s\n' step milliseconds
for row in "${rows[@]}"; do
	printf '  %-42s %10s\n' "${row%|*}" "${row#*|}"
done
