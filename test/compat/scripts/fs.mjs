// Files through the SDK.
import assert from "node:assert/strict";
import { create, finish, freestyle, refusal, sh, sha256, test } from "./harness.mjs";

const { vm, vmId } = await create();
const bytes = Uint8Array.from({ length: 256 * 16 }, (_, i) => i & 255);
const bad = refusal(400, "BAD_REQUEST");
const absent = refusal(404, "NOT_FOUND");

await test("what is written is read, byte for byte", async () => {
  const cases = { bytes, blob: new Blob([bytes]), empty: new Uint8Array(), large: new Uint8Array(3 << 20).fill(7) };
  for (const [name, content] of Object.entries(cases)) {
    const path = `/root/deep/er/${name}`;
    const progress = [];
    assert.equal(await vm.fs.writeFile(path, content, { onProgress: (p) => progress.push(p) }), undefined);
    const want = content instanceof Blob ? bytes : content;
    const read = await vm.fs.readFile(path);
    assert.ok(read instanceof Uint8Array);
    assert.deepEqual(Buffer.from(read).equals(Buffer.from(want)), true, name);
    assert.equal((await sh(vm, `sha256sum ${path}`)).split(" ")[0], await sha256(want), name);
    assert.deepEqual(progress, [{ completedBytes: want.length, totalBytes: want.length }]);
  }
});

await test("text", async () => {
  const text = "zwölf\nBoxkämpfer ☃ \r\n\ttab";
  await vm.fs.writeTextFile("/root/text", text);
  assert.equal(await vm.fs.readTextFile("/root/text"), text);
  await vm.fs.writeFile("/root/a b+c%20&d?.txt", "odd name");
  assert.equal(await vm.fs.readTextFile("/root/a b+c%20&d?.txt"), "odd name");
  assert.equal(await sh(vm, "cat '/root/a b+c%20&d?.txt'"), "odd name");
});

await test("parts and streams", async () => {
  await vm.fs.writeFile("/root/parts", bytes);
  const part = async (options) => Buffer.from(await vm.fs.readFile("/root/parts", options));
  assert.deepEqual(await part({ offset: 250, length: 10 }), Buffer.from(bytes.subarray(250, 260)));
  assert.deepEqual(await part({ length: 3 }), Buffer.from(bytes.subarray(0, 3)));
  assert.deepEqual(await part({ offset: bytes.length - 1 }), Buffer.from(bytes.subarray(bytes.length - 1)));
  assert.deepEqual(await part({ offset: bytes.length - 2, length: 100 }), Buffer.from(bytes.subarray(bytes.length - 2)));
  assert.equal(await vm.fs.readTextFile("/root/parts", { offset: 65, length: 3 }), "ABC");
  const chunks = [];
  for await (const chunk of await vm.fs.readFileStream("/root/parts", { offset: 16 })) chunks.push(chunk);
  assert.deepEqual(Buffer.concat(chunks), Buffer.from(bytes.subarray(16)));
  await assert.rejects(vm.fs.readFile("/root/parts", { offset: bytes.length }), refusal(416, "RANGE_NOT_SATISFIABLE"));
  const raw = await freestyle.fetch(`/v5/vms/${vmId}/fs/read?path=/root/parts`, { headers: { Range: "bytes=0-9" } });
  assert.equal(raw.status, 206);
  assert.equal(raw.headers.get("content-range"), `bytes 0-9/${bytes.length}`);
});

await test("modes", async () => {
  const mode = (path) => sh(vm, `stat -c %a ${path}`);
  await vm.fs.writeFile("/root/secret", "x");
  assert.equal(await mode("/root/secret"), "600");
  await vm.fs.writeFile("/root/tool", "#!/bin/sh\necho ran\n", { mode: 0o755 });
  assert.equal(await mode("/root/tool"), "755");
  assert.equal(await sh(vm, "/root/tool"), "ran");
  await vm.fs.writeFile("/root/tool", "#!/bin/sh\necho again\n");
  assert.equal(await mode("/root/tool"), "755", "an existing mode stays");
  assert.equal(await sh(vm, "/root/tool"), "again");
  await assert.rejects(vm.fs.writeFile("/root/tool", "x", { mode: 0o1000000 }), bad);
});

await test("a write is whole or not at all", async () => {
  await vm.fs.writeFile("/root/whole", "before");
  const put = (query, body) => freestyle.fetch(`/v5/vms/${vmId}/fs/write?${new URLSearchParams(query)}`, {
    method: "PUT", headers: { "Content-Type": "application/octet-stream" }, body,
  });
  const refused = await put({ path: "/root/whole", sha256: "0".repeat(64) }, "after");
  assert.equal(refused.status, 400);
  assert.equal((await refused.json()).code, "BAD_REQUEST");
  assert.equal(await vm.fs.readTextFile("/root/whole"), "before");
  assert.equal((await put({ path: "/root/whole", sha256: "short" }, "after")).status, 400);
  assert.equal((await put({ path: "/root/whole", sha256: await sha256("after") }, "after")).status, 204);
  assert.equal(await vm.fs.readTextFile("/root/whole"), "after");
  assert.equal(await sh(vm, "ls -A /root | grep -c whole"), "1", "nothing temporary is left");
});

await test("the JSON form of a write", async () => {
  const put = (body) => freestyle.fetch(`/v5/vms/${vmId}/fs/write`, {
    method: "PUT", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  });
  assert.equal((await put({ path: "/root/j", content: "käse" })).status, 204);
  assert.equal(await vm.fs.readTextFile("/root/j"), "käse");
  assert.equal((await put({ path: "/root/j", content: Buffer.from(bytes).toString("base64"), encoding: "base64", mode: 0o640 })).status, 204);
  assert.deepEqual(Buffer.from(await vm.fs.readFile("/root/j")), Buffer.from(bytes));
  assert.equal((await vm.fs.stat("/root/j")).permissions, "0640");
  assert.equal((await put({ path: "/root/j", content: "!", encoding: "base64" })).status, 400);
});

await test("folders", async () => {
  assert.equal(await vm.fs.mkdir("/root/one/two/three"), undefined);
  assert.equal(await vm.fs.mkdir("/root/one/two/three"), undefined, "one that is there is fine");
  await vm.fs.writeFile("/root/one/file", "x");
  await sh(vm, "ln -s file /root/one/link && ln -s nowhere /root/one/dangling");
  const entries = (await vm.fs.readDir("/root/one")).sort((a, b) => a.name.localeCompare(b.name));
  assert.deepEqual(entries.map(({ name, kind }) => ({ name, kind })), [
    { name: "dangling", kind: "symlink" }, { name: "file", kind: "file" },
    { name: "link", kind: "symlink" }, { name: "two", kind: "directory" },
  ]);
  assert.deepEqual(await vm.fs.readDir("/root/one/two/three"), []);
  await assert.rejects(vm.fs.mkdir("/root/one/file"), (error) => error.status >= 400 && error.status < 500);
  await assert.rejects(vm.fs.readDir("/root/one/file"), (error) => error.status >= 400 && error.status < 500);
  await assert.rejects(vm.fs.readDir("/root/nothing"), absent);
});

await test("stat", async () => {
  await vm.fs.writeFile("/root/stat", "12345", { mode: 0o644 });
  await sh(vm, "touch -d '2026-01-02 03:04:05' /root/stat && ln -sf stat /root/stat-link");
  const stat = await vm.fs.stat("/root/stat");
  assert.equal(stat.size, 5);
  assert.deepEqual([stat.isFile, stat.isDirectory, stat.isSymlink], [true, false, false]);
  assert.equal(stat.permissions, "0644");
  const user = (await vm.exec("id -un; id -gn")).stdout.trim().split("\n");
  assert.deepEqual([stat.owner, stat.group], user, "the file belongs to the default user");
  assert.equal(new Date(stat.modified).toISOString(), "2026-01-02T03:04:05.000Z");
  const folder = await vm.fs.stat("/root");
  assert.deepEqual([folder.isFile, folder.isDirectory, folder.isSymlink], [false, true, false]);
  assert.equal((await vm.fs.stat("/root/stat-link")).isSymlink, true);
  await assert.rejects(vm.fs.stat("/root/nothing"), absent);
});

await test("exists and remove", async () => {
  await vm.fs.writeFile("/root/tree/a/b", "x");
  await sh(vm, "echo outside > /root/outside && ln -s /root/outside /root/tree/link");
  assert.equal(await vm.fs.exists("/root/tree/a/b"), true);
  assert.equal(await vm.fs.exists("/root/tree/a/c"), false);
  assert.equal(await vm.fs.exists("/root/tree"), true);
  assert.equal(await vm.fs.remove("/root/tree/a/b"), undefined);
  assert.equal(await vm.fs.exists("/root/tree/a/b"), false);
  assert.equal(await vm.fs.remove("/root/tree"), undefined);
  assert.equal(await vm.fs.exists("/root/tree"), false);
  assert.equal(await vm.fs.readTextFile("/root/outside"), "outside\n", "what a link names stays");
  await assert.rejects(vm.fs.remove("/root/tree"), absent);
});

await test("paths that are none", async () => {
  for (const path of ["relative", "", "/root/../etc/passwd", "/a\0b", `/${"x".repeat(4096)}`]) {
    await assert.rejects(vm.fs.readFile(path), bad, path.slice(0, 20));
    await assert.rejects(vm.fs.writeFile(path, "x"), bad, path.slice(0, 20));
    await assert.rejects(vm.fs.stat(path), bad, path.slice(0, 20));
    await assert.rejects(vm.fs.mkdir(path), bad, path.slice(0, 20));
    await assert.rejects(vm.fs.remove(path), bad, path.slice(0, 20));
  }
  await assert.rejects(vm.fs.readFile("/root/nothing"), absent);
  await assert.rejects(vm.fs.readFile("/root"), (error) => error.status >= 400 && error.status < 500);
  await assert.rejects(freestyle.vms.ref("nobody").fs.readDir("/"), absent);
});

await test("what is no file is refused, and nothing hangs", async () => {
  await sh(vm, "rm -f /root/fifo; mkfifo /root/fifo");
  for (const path of ["/root/fifo", "/dev/zero"]) {
    await assert.rejects(vm.fs.readFile(path), (error) => error.status >= 400 && error.status < 500, path);
    await assert.rejects(vm.fs.writeFile(path, "x"), (error) => error.status >= 400 && error.status < 500, path);
  }
});

await test("a paused VM wakes for its files", async () => {
  await vm.fs.writeFile("/root/asleep", "dreams");
  await vm.pause();
  assert.equal(await vm.fs.readTextFile("/root/asleep"), "dreams");
});

await finish();
