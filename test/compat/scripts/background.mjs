// Calls that outlast five seconds: the server answers 202 and keeps the result.
import assert from "node:assert/strict";
import { connect, create, finish, refusal, sh, test } from "./harness.mjs";

const { vm, vmId } = await create();

// tracing is a client that notes each exchange.
function tracing() {
  const seen = [];
  const client = connect({
    fetch: async (url, init) => {
      const response = await fetch(url, init);
      seen.push({ method: init.method, path: new URL(url).pathname, status: response.status, id: response.headers.get("x-freestyle-background-request-id") });
      return response;
    },
  });
  return { client, seen };
}

await test("a command of eight seconds goes to the background and comes back", async () => {
  const { client, seen } = tracing();
  const result = await client.vms.ref(vmId).exec("echo begun; echo oops >&2; sleep 8; echo done; exit 3");
  assert.deepEqual([result.stdout, result.stderr, result.statusCode], ["begun\ndone\n", "oops\n", 3]);
  assert.equal(seen[0].status, 202);
  assert.match(seen[0].id, /^bgr-/);
  const last = seen.at(-1);
  assert.equal(last.path, `/v5/background-requests/${seen[0].id}`);
  assert.equal(last.status, 200);
  assert.equal(last.id, seen[0].id, "the stored answer names its request");
});

await test("a command that is over in time is answered at once", async () => {
  const { client, seen } = tracing();
  await client.vms.ref(vmId).exec("true");
  assert.deepEqual(seen.map((s) => s.status), [200]);
});

await test("the client may go away meanwhile", async () => {
  const { client, seen } = tracing();
  const options = (signal) => ({
    method: "POST", signal, headers: { "Content-Type": "application/json", "x-freestyle-background-after-secs": "1" },
    body: JSON.stringify({ command: "sleep 3; echo survived > /root/mark", linuxUser: "root" }),
  });
  const accepted = await client.fetch(`/v5/vms/${vmId}/exec-await`, options());
  assert.equal(accepted.status, 202);
  const body = await accepted.json();
  assert.equal(body.requestId, seen[0].id);
  assert.ok(!/^https?:/.test(body.resultUrl ?? ""), "an absolute address would carry the key elsewhere");
  for (let polls = 0; ; polls++) {
    const poll = await client.fetch(`/v5/background-requests/${body.requestId}`);
    if (poll.status === 200) break;
    assert.equal(poll.status, 202);
    assert.ok(polls < 120);
    await new Promise((resolve) => setTimeout(resolve, 250));
  }
  assert.equal(await sh(vm, "cat /root/mark"), "survived");
});

await test("an error is kept as it is", async () => {
  const { client } = tracing();
  const raw = await client.fetch(`/v5/vms/${vmId}/exec-await`, {
    method: "POST", headers: { "Content-Type": "application/json", "x-freestyle-background-after-secs": "5" },
    body: JSON.stringify({ command: "true", nonsense: 1 }),
  });
  assert.equal(raw.status, 400);
  await assert.rejects(client.vms.ref("nobody").exec("true"), refusal(404, "NOT_FOUND"));
});

await test("nobody has a result that was never asked for", async () => {
  const { client } = tracing();
  const raw = await client.fetch("/v5/background-requests/bgr-00000000000000000000000000000000");
  assert.equal(raw.status, 404);
  assert.equal((await raw.json()).code, "NOT_FOUND");
});

await finish();
