// Commands through the SDK.
import assert from "node:assert/strict";
import { create, finish, freestyle, refusal, sh, test, until } from "./harness.mjs";

const { vm } = await create();
const base64 = (text) => Buffer.from(text).toString("base64");

await test("output, error output and status are apart", async () => {
  const result = await vm.exec("echo out; echo err >&2; exit 7");
  assert.equal(result.stdout, "out\n");
  assert.equal(result.stderr, "err\n");
  assert.equal(result.statusCode, 7);
});

await test("success is 0, and silence is empty", async () => {
  const result = await vm.exec("true");
  assert.equal(result.statusCode, 0);
  assert.equal(result.stdout ?? "", "");
  assert.equal(result.stderr ?? "", "");
});

await test("the command is shell text", async () => {
  for (const [command, want] of [
    ["echo $((6*7))", "42\n"],
    ["cat <<'END'\n  $HOME \"quoted\"\nEND", "  $HOME \"quoted\"\n"],
    ["set -e; false; echo not reached", ""],
    ["exec echo replaced", "replaced\n"],
    ["trap 'echo trapped' EXIT; true", "trapped\n"],
    ["printf 'käse ☃\\n'", "käse ☃\n"],
    ["f() { echo in; }; f | tr a-z A-Z", "IN\n"],
  ]) {
    assert.equal((await vm.exec(command)).stdout ?? "", want, command);
  }
  assert.equal((await vm.exec("set -e; false; echo x")).statusCode, 1);
  assert.notEqual((await vm.exec("echo 'unbalanced")).statusCode, 0);
  assert.equal((await vm.exec("no-such-program")).statusCode, 127);
  assert.equal((await vm.exec("kill -9 $$")).statusCode, 137);
});

await test("standard input is given, and closed when it is not", async () => {
  assert.equal((await vm.exec({ command: "cat", stdin: base64("a\0b\n") })).stdout, "a\0b\n");
  assert.equal((await vm.exec({ command: "wc -c", stdin: base64("x".repeat(1 << 20)) })).stdout.trim(), String(1 << 20));
  assert.equal((await vm.exec("cat; echo end")).stdout, "end\n");
  await assert.rejects(vm.exec({ command: "cat", stdin: base64("x".repeat((1 << 20) + 1)) }), refusal(400, "BAD_REQUEST"));
  await assert.rejects(vm.exec({ command: "cat", stdin: "no base64!" }), refusal(400, "BAD_REQUEST"));
});

await test("environment", async () => {
  const env = { A: "1 2", QUOTED: `it's "so"`, EMPTY: "", _U: "$HOME" };
  const { stdout } = await vm.exec({ command: 'printf "%s|%s|%s|%s" "$A" "$QUOTED" "$EMPTY" "$_U"', env });
  assert.equal(stdout, `1 2|it's "so"||$HOME`);
  await assert.rejects(vm.exec({ command: "true", env: { "1X": "v" } }), refusal(400, "BAD_REQUEST"));
});

await test("users", async () => {
  assert.equal(await sh(vm, "id -un"), "root");
  const { stdout } = await vm.linuxUser("root").exec("id -u; pwd; echo $HOME");
  assert.equal(stdout, "0\n/root\n/root\n");
  assert.equal((await vm.linuxUser("root").exec({ command: 'echo "$A"', env: { A: "b" } })).stdout, "b\n");
  await assert.rejects(vm.exec({ command: "true", linuxUser: "nobody-here" }), (error) =>
    error.status >= 400 && error.status < 500 && /nobody-here/.test(error.message));
  await assert.rejects(vm.exec({ command: "true", linuxUser: "Bad User" }), refusal(400, "BAD_REQUEST"));
});

await test("the default user has uid 1000, or is root", async () => {
  const want = (await vm.exec({ command: "grep -q '^[^:]*:[^:]*:1000:' /etc/passwd && echo 1000 || echo 0", linuxUser: "root" })).stdout;
  assert.equal((await vm.exec("id -u")).stdout, want);
});

await test("a timeout ends the whole group and says so", async () => {
  const start = Date.now();
  const result = await vm.exec({ command: "echo begun; sleep 4321 & sleep 4321", timeoutMs: 1000 });
  assert.equal(result.statusCode ?? null, null);
  assert.equal(result.stdout, "begun\n");
  assert.ok(Date.now() - start < 60_000);
  assert.equal((await vm.exec({ command: "ps | grep '[s]leep 4321' | wc -l", linuxUser: "root" })).stdout.trim(), "0");
  for (const timeoutMs of [0, -1, 86_400_001]) {
    await assert.rejects(vm.exec({ command: "true", timeoutMs }), refusal(400, "BAD_REQUEST"));
  }
  assert.equal((await vm.exec({ command: "true", timeoutMs: 86_400_000 })).statusCode, 0);
});

await test("a background process outlives its command", async () => {
  const pid = (await vm.exec("setsid sleep 1234 > /dev/null 2>&1 & echo $!")).stdout.trim();
  assert.equal((await vm.exec(`kill -0 ${pid} && echo alive; kill ${pid}`)).stdout, "alive\n");
});

await test("a long command line, and one that is too long", async () => {
  const long = "x".repeat(60_000);
  assert.equal((await vm.exec(`echo ${long} | wc -c`)).stdout.trim(), String(long.length + 1));
  await assert.rejects(vm.exec(`echo ${"x".repeat(4 << 20)}`), (error) => [400, 413].includes(error.status));
  await assert.rejects(vm.exec("echo a\0b"), refusal(400, "BAD_REQUEST"));
  await assert.rejects(vm.exec(""), refusal(400, "BAD_REQUEST"));
});

await test("much output comes whole or says that it was cut", async () => {
  const result = await vm.exec("seq 1 100000");
  const want = Array.from({ length: 100_000 }, (_, i) => `${i + 1}\n`).join("");
  assert.equal(result.statusCode, 0);
  assert.ok(result.stdout === want || (result.truncated ?? result.stdoutTruncated ?? result.stdoutBytes), "it is cut without a mark");
  assert.ok(result.stdout.startsWith("1\n2\n3\n"));
});

await test("many at once do not mix", async () => {
  const results = await Promise.all(Array.from({ length: 20 }, (_, i) => vm.exec(`echo ${i}; exit ${i}`)));
  results.forEach((result, i) => {
    assert.equal(result.stdout, `${i}\n`);
    assert.equal(result.statusCode, i);
  });
});

await test("unknown fields and wrong types are refused", async () => {
  for (const body of [{ command: "true", shell: "bash" }, { command: 7 }, {}, { command: "true", env: ["a"] }]) {
    await assert.rejects(vm.exec(body), refusal(400, "BAD_REQUEST"));
  }
});

await test("what does not run is said so", async () => {
  await assert.rejects(freestyle.vms.ref("nobody").exec("true"), refusal(404, "NOT_FOUND"));
  const other = await create({ automaticRestart: false });
  await other.vm.exec({ command: "poweroff", linuxUser: "root" }).catch(() => {});
  await until("it is stopped", async () => (await other.vm.data()).state === "stopped", 120_000);
  await assert.rejects(other.vm.exec("true"), (error) => error.status === 409);
});

await finish();
