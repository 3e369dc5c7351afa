// Files above 8 MiB: the SDK sends them in chunks and repeats what fails.
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { connect, create, finish, freestyle, sh, sha256, test } from "./harness.mjs";

const { vm, vmId } = await create();
const content = new Uint8Array(randomBytes(20 << 20));
const digest = await sha256(content);
const inGuest = async (path) => (await sh(vm, `sha256sum ${path}`)).split(" ")[0];
const chunkSize = 4 << 20;

// meddling is a client whose chunks go through meddle(n, send); it notes all
// that it sends.
function meddling(meddle) {
  const seen = [];
  let chunks = 0;
  const client = connect({
    fetch: async (url, init) => {
      const path = new URL(url).pathname;
      const isChunk = init.method === "PUT" && path.includes("/fs/uploads/");
      seen.push(`${init.method} ${path.replace(/.*\/fs\/uploads/, "").replace(/\/[^/]{8,}/, "/ID")}`);
      return isChunk ? meddle(++chunks, () => fetch(url, init)) : fetch(url, init);
    },
  });
  return { fs: client.vms.ref(vmId).fs, seen };
}

await test("a large file arrives, with progress and mode", async () => {
  const progress = [];
  const { fs, seen } = meddling((_, send) => send());
  await fs.writeFile("/root/up/large", content, { mode: 0o640, onProgress: (p) => progress.push(p.completedBytes) });
  assert.equal(await inGuest("/root/up/large"), digest);
  assert.equal((await vm.fs.stat("/root/up/large")).permissions, "0640");
  assert.deepEqual(progress, [16 << 20, 20 << 20]);
  assert.deepEqual(seen, ["POST ", "PUT /ID", "PUT /ID", "POST /ID/commit"]);
});

await test("a Blob, in chunks of another size", async () => {
  await vm.fs.writeFile("/root/up/blob", new Blob([content]), { chunkSize });
  assert.equal(await inGuest("/root/up/blob"), digest);
});

await test("a chunk that never left is sent again", async () => {
  const { fs, seen } = meddling((n, send) => {
    if (n === 2) throw new TypeError("the line is dead");
    return send();
  });
  await fs.writeFile("/root/up/again", content, { chunkSize });
  assert.equal(await inGuest("/root/up/again"), digest);
  assert.equal(seen.filter((s) => s === "PUT /ID").length, 6);
  assert.equal(seen.filter((s) => s === "GET /ID").length, 1);
});

await test("a chunk whose answer was lost is not sent again", async () => {
  const { fs, seen } = meddling(async (n, send) => {
    const response = await send();
    if (n === 3) throw new TypeError("the line died after the answer");
    return response;
  });
  await fs.writeFile("/root/up/lost", content, { chunkSize });
  assert.equal(await inGuest("/root/up/lost"), digest);
  assert.equal(seen.filter((s) => s === "PUT /ID").length, 5);
});

await test("a chunk that was cut short does not count", async () => {
  const { fs } = meddling(async (n, send) => {
    if (n !== 2) return send();
    // Half of the bytes that it announced, then the end of the connection.
    const { hostname, port } = new URL(process.env.PANDO_URL);
    const { connect: dial } = await import("node:net");
    await new Promise((resolve) => {
      const socket = dial(Number(port), hostname, () => {
        socket.write(`PUT ${halved} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${process.env.PANDO_API_KEY}\r\n` +
          `Content-Type: application/octet-stream\r\nContent-Length: ${chunkSize}\r\n\r\n`);
        socket.write(content.subarray(chunkSize, chunkSize + 100_000), () => setTimeout(() => socket.destroy(), 300));
      });
      socket.on("close", resolve);
      socket.on("error", () => {});
    });
    throw new TypeError("cut");
  });
  let halved = "";
  const original = globalThis.fetch;
  globalThis.fetch = (url, init) => {
    if (init?.method === "PUT") halved = `${new URL(url).pathname}?offset=${chunkSize}`;
    return original(url, init);
  };
  try {
    await fs.writeFile("/root/up/short", content, { chunkSize });
  } finally {
    globalThis.fetch = original;
  }
  assert.equal(await inGuest("/root/up/short"), digest);
});

await test("an upload that is given up leaves nothing", async () => {
  const stop = new AbortController();
  const { fs, seen } = meddling((n, send) => {
    if (n === 2) stop.abort();
    return send();
  });
  await assert.rejects(fs.writeFile("/root/up/never", content, { chunkSize, signal: stop.signal }));
  assert.ok(seen.includes("DELETE /ID"));
  assert.equal(await vm.fs.exists("/root/up/never"), false);
  assert.equal(await sh(vm, "ls -A /root/up | grep -c never || true"), "0");
});

await test("the protocol of a session", async () => {
  const at = (rest = "") => `/v5/vms/${vmId}/fs/uploads${rest}`;
  const json = (method, path, body) => freestyle.fetch(path, {
    method, headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  });
  const put = (id, offset, body) => freestyle.fetch(at(`/${id}?offset=${offset}`), {
    method: "PUT", headers: { "Content-Type": "application/octet-stream" }, body,
  });
  const opened = await json("POST", at(), { path: "/root/up/raw", size: 6, sha256: await sha256("abcdef") });
  assert.equal(opened.status, 200);
  const { uploadId, ...status } = await opened.json();
  assert.deepEqual(status, { path: "/root/up/raw", size: 6, receivedBytes: 0 });
  assert.equal((await put(uploadId, 3, "def")).status, 409, "a gap");
  assert.equal((await put(uploadId, 0, "abcdefg")).status, 400, "more than was announced");
  assert.equal((await (await put(uploadId, 0, "abc")).json()).receivedBytes, 3);
  assert.equal((await (await put(uploadId, 0, "abc")).json()).receivedBytes, 3, "what is there is acknowledged");
  assert.equal((await json("POST", at(`/${uploadId}/commit`), {})).status, 400, "not all is there");
  assert.equal((await (await put(uploadId, 3, "xyz")).json()).receivedBytes, 6);
  assert.equal((await json("POST", at(`/${uploadId}/commit`), {})).status, 400, "it is not what was announced");
  assert.equal(await vm.fs.exists("/root/up/raw"), false);
  assert.equal((await (await freestyle.fetch(at(`/${uploadId}`))).json()).receivedBytes, 6, "the session is still there");
  assert.equal((await freestyle.fetch(at(`/${uploadId}`), { method: "DELETE" })).status, 204);
  assert.equal((await freestyle.fetch(at(`/${uploadId}`))).status, 404);
  assert.equal((await json("POST", at(), { path: "/root/x", size: 17 * 2 ** 30 })).status, 400, "above 16 GiB");
  assert.equal((await json("POST", at(), { path: "relative", size: 1 })).status, 400);
});

await finish();
