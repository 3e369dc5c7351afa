// Terminals through the SDK.
import assert from "node:assert/strict";
import { create, finish, freestyle, refusal, sh, test, until } from "./harness.mjs";

const { vm } = await create();

// terminal collects what a session shows.
function terminal() {
  const seen = { text: "", exit: undefined, closed: false, errors: [] };
  return {
    seen,
    events: {
      onData: (data) => (seen.text += Buffer.from(data).toString()),
      onExit: (code) => (seen.exit = code),
      onClose: () => (seen.closed = true),
      onError: (error) => seen.errors.push(error),
    },
    shows: (text) => until(`the terminal shows ${JSON.stringify(text)}; it has ${JSON.stringify(seen.text.slice(-300))}`, () => seen.text.includes(text)),
    exits: () => until("the session ends", () => seen.exit !== undefined),
  };
}

await test("a command runs on a terminal of its own", async () => {
  const t = terminal();
  const session = await vm.pty.open({ exec: "tty; stty size; echo err >&2; exit 7", cols: 101, rows: 33, ...t.events });
  assert.ok(Number.isInteger(session.sessionId) && session.sessionId >= 0);
  assert.equal(session.created, true);
  assert.equal(session.slug, undefined);
  assert.equal(session.readyState, 1);
  await t.exits();
  assert.equal(t.seen.exit, 7);
  assert.match(t.seen.text, /\/dev\/pts\/\d+\r\n33 101\r\nerr\r\n/);
  const { sessions } = await vm.pty.list();
  const listed = sessions.find((s) => s.sessionId === session.sessionId);
  assert.deepEqual([listed.state, listed.exitCode, listed.cols, listed.rows], ["exited", 7, 101, 33]);
  assert.ok(Math.abs(listed.createdUnix - Date.now() / 1000) < 120);
  assert.ok(listed.linuxUser);
  session.detach();
  await until("it is closed", () => t.seen.closed);
});

await test("size, typing, resizing and signals", async () => {
  const t = terminal();
  const session = await vm.pty.open({ linuxUser: "root", ...t.events });
  session.write("stty size; echo user=$(id -u)\n");
  await t.shows("24 80");
  await t.shows("user=0");
  session.resize({ cols: 120, rows: 40 });
  session.write(new TextEncoder().encode("stty size\n"));
  await t.shows("40 120");
  session.write("sleep 1000; echo interrupted=$?\n");
  await until("sleep runs", async () => (await sh(vm, "ps | grep -c '[s]leep 1000' || true")) !== "0");
  session.signal("sigint");
  session.write("echo after=$((1+1))\n");
  await t.shows("after=2");
  session.write("\x04");
  await t.exits();
  session.detach();
});

await test("sigkill ends it", async () => {
  const t = terminal();
  const session = await vm.pty.open({ exec: "trap '' INT; echo ready; while :; do sleep 1; done", ...t.events });
  await t.shows("ready");
  session.signal("sigkill");
  await t.exits();
  assert.notEqual(t.seen.exit, 0);
  session.detach();
});

await test("bytes of all kinds pass", async () => {
  const t = terminal();
  const all = [];
  const session = await vm.pty.open({ exec: "stty raw -echo; printf ready; head -c 256 | od -An -v -tx1 | tr -d ' \\n'; printf end", ...t.events });
  await t.shows("ready");
  for (let i = 0; i < 256; i++) all.push(i);
  session.write(Uint8Array.from(all));
  await t.shows("end");
  assert.equal(t.seen.text, `ready${all.map((b) => b.toString(16).padStart(2, "0")).join("")}end`);
  session.detach();
});

await test("a named session is found again, with what it showed", async () => {
  const first = terminal();
  const opened = await vm.pty.open({ slug: "main", exec: "echo first; exec sh", ...first.events });
  assert.deepEqual([opened.slug, opened.created], ["main", true]);
  await first.shows("first");
  opened.write("MARK=here; echo typed\n");
  await first.shows("typed\r\n");
  opened.detach();
  await until("it is closed", () => first.seen.closed);

  const second = terminal();
  const again = await vm.pty.open({ slug: "main", exec: "echo never", ...second.events });
  assert.deepEqual([again.sessionId, again.created], [opened.sessionId, false]);
  await second.shows("first");
  again.write("echo mark=$MARK\n");
  await second.shows("mark=here");
  assert.ok(!second.seen.text.includes("never"));

  const third = terminal();
  const byName = await vm.pty.attach({ session: "main", ...third.events });
  await third.shows("mark=here");
  await until("its number is known", () => byName.sessionId === opened.sessionId);
  assert.equal(byName.slug, "main");
  const fourth = terminal();
  const byNumber = await vm.pty.attach({ session: opened.sessionId, ...fourth.events });
  await fourth.shows("mark=here");
  byNumber.write("echo to-$((40+2))\n");
  await Promise.all([second, third, fourth].map((t) => t.shows("to-42")));

  assert.equal((await vm.pty.list()).sessions.find((s) => s.sessionId === opened.sessionId).slug, "main");
  const closed = await vm.pty.close("main");
  assert.equal(closed.sessionId, opened.sessionId);
  await until("it is gone", async () => !(await vm.pty.list()).sessions.some((s) => s.sessionId === opened.sessionId && s.state === "running"));
  const fresh = terminal();
  const anew = await vm.pty.open({ slug: "main", exec: "echo anew; sleep 100", ...fresh.events });
  assert.equal(anew.created, true);
  assert.notEqual(anew.sessionId, opened.sessionId);
  await fresh.shows("anew");
  await vm.pty.close(anew.sessionId);
});

await test("one user's sessions", async () => {
  const user = vm.linuxUser("root");
  const t = terminal();
  const session = await user.pty.open({ exec: "id -un; sleep 100", slug: "mine", ...t.events });
  await t.shows("root");
  assert.ok((await user.pty.list()).sessions.some((s) => s.sessionId === session.sessionId && s.linuxUser === "root"));
  const again = terminal();
  const attached = await user.pty.attach({ session: "mine", ...again.events });
  await again.shows("root");
  attached.detach();
  assert.equal((await user.pty.close("mine")).sessionId, session.sessionId);
  assert.deepEqual((await vm.pty.list({ linuxUser: "nobody" })).sessions, []);
});

await test("a shell that is replaced when it ends", async () => {
  const t = terminal();
  const session = await vm.pty.open({ slug: "again", replaceOnExit: true, exec: "echo shell-$$; read line; exit 3", ...t.events });
  await t.shows("shell-");
  const first = t.seen.text.match(/shell-(\d+)/)[1];
  session.write("\n");
  await until("another shell is there", () => [...t.seen.text.matchAll(/shell-(\d+)/g)].some((m) => m[1] !== first));
  const listed = (await vm.pty.list()).sessions.find((s) => s.sessionId === session.sessionId);
  assert.deepEqual([listed.state, listed.slug], ["running", "again"]);
  await vm.pty.close("again");
});

await test("sessions live through a pause", async () => {
  const t = terminal();
  const session = await vm.pty.open({ slug: "lasting", linuxUser: "root", exec: "exec sh", ...t.events });
  session.write("KEPT=yes; echo set\n");
  await t.shows("set\r\n");
  session.detach();
  await vm.pause();
  const later = terminal();
  const again = await vm.pty.attach({ session: "lasting", ...later.events });
  again.write("echo kept=$KEPT\n");
  await later.shows("kept=yes");
  await vm.pty.close("lasting");
});

await test("much output is all there", async () => {
  const t = terminal();
  const session = await vm.pty.open({ exec: "seq 1 20000; echo all", ...t.events });
  await t.exits();
  const numbers = t.seen.text.split("\r\n").filter((s) => /^\d+$/.test(s)).map(Number);
  assert.equal(numbers.length, 20000);
  assert.equal(numbers.at(-1), 20000);
  session.detach();
});

await test("what cannot be opened says why", async () => {
  const status = (code) => (error) => error.message.includes(`Unexpected server response: ${code}`);
  await assert.rejects(freestyle.vms.ref("nobody").pty.open(), status(404));
  await assert.rejects(vm.pty.attach({ session: 99999 }), status(404));
  await assert.rejects(vm.pty.attach({ session: "nothing" }), status(404));
  await assert.rejects(vm.pty.open({ slug: "123" }), status(400));
  await assert.rejects(vm.pty.open({ slug: "Not Good" }), status(400));
  await assert.rejects(vm.pty.open({ cols: 0 }), status(400));
  await assert.rejects(vm.pty.close("nothing"), refusal(404, "NOT_FOUND"));
  const plain = await freestyle.fetch(`/v5/vms/${vm.id}/pty`);
  assert.equal(plain.status, 400);
});

await finish();
