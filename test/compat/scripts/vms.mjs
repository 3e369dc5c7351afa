// The life of a VM through the SDK.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:net";
import { busybox, connect, create, finish, freestyle, outbound, refusal, sh, test, until } from "./harness.mjs";

// closedPort is a port on which nobody listens.
async function closedPort() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  await once(server, "close");
  return port;
}

const uniqueSlug = (name) => `${name}-${process.pid}`;
const absent = refusal(404, "NOT_FOUND");

await test("create returns the record as stored", async () => {
  const slug = uniqueSlug("made");
  const { vm, vmId, data, firewallRules, tlsRules } = await create({
    slug, displayName: "A made one", metadata: { task: "7", team: "blue" }, firewall: outbound,
    idleTimeoutSeconds: 3600, autoDeleteSeconds: 7200, ttlSeconds: 86400, maxRunSeconds: 7200, maxRunTotalSeconds: 90000,
    automaticRestart: false,
  });
  assert.equal(vm.id, vmId);
  assert.equal(data.id, vmId);
  assert.match(vmId, /^vm-/);
  assert.ok(["starting", "running"].includes(data.state), data.state);
  assert.equal(data.slug, slug);
  assert.equal(data.displayName, "A made one");
  assert.deepEqual(data.metadata, { task: "7", team: "blue" });
  assert.equal(data.idleTimeoutSeconds, 3600);
  assert.equal(data.autoDeleteSeconds, 7200);
  assert.equal(data.ttlSeconds, 86400);
  assert.equal(data.maxRunSeconds, 7200);
  assert.equal(data.maxRunTotalSeconds, 90000);
  assert.equal(data.automaticRestart, false);
  assert.deepEqual([data.vpcs, data.networks], [[], []]);
  for (const size of ["cpu", "memory", "storage"]) assert.ok(Number.isInteger(data.resources[size]) && data.resources[size] > 0);
  assert.ok(!Number.isNaN(Date.parse(data.createdAt)) && !Number.isNaN(Date.parse(data.updatedAt)));
  assert.equal(firewallRules.length, 1);
  assert.equal(firewallRules[0].source.vmId, vmId);
  assert.equal(firewallRules[0].destination.public, true);
  assert.ok(firewallRules[0].id && Array.isArray(firewallRules[0].dependencies));
  assert.deepEqual(tlsRules, []);

  const rules = await vm.firewallRules();
  assert.equal(rules.totalCount, 1);
  assert.equal(rules.rules[0].id, firewallRules[0].id);

  // All that names it finds the same record.
  for (const found of [await vm.data(), await freestyle.vms.get(vmId), await freestyle.vms.get(slug), await freestyle.vms.ref(slug).data()]) {
    assert.equal(found.id, vmId);
    assert.equal(found.maxRunTotalSeconds, 90000);
    assert.equal(found.state, "running");
  }
});

await test("a block of TLS rules is stored with the VM", async () => {
  const { vmId, tlsRules } = await create({
    tls: { rules: [{ action: "allow", domain: "app.example.com", source: { public: true }, destination: { port: 8000 } }] },
  });
  assert.equal(tlsRules.length, 1);
  assert.equal(tlsRules[0].domain, "app.example.com");
  assert.equal(tlsRules[0].protocol, "http");
  assert.equal(tlsRules[0].destination.vmId, vmId);
  assert.equal(tlsRules[0].destination.port, 8000);
  assert.ok(Array.isArray(tlsRules[0].dependencies));
});

await test("limits of one VM are absent unless they are set", async () => {
  const { data } = await create();
  for (const limit of ["idleTimeoutSeconds", "autoDeleteSeconds", "ttlSeconds", "maxRunSeconds", "maxRunTotalSeconds"]) {
    assert.equal(data[limit] ?? null, null, limit);
  }
  assert.equal(data.automaticRestart, true);
});

await test("list filters, counts and pages", async () => {
  const group = uniqueSlug("g");
  const made = [];
  for (const n of ["1", "2", "3"]) made.push(await create({ slug: `${group}-${n}`, metadata: { group, n } }));
  await made[0].vm.pause();
  const all = await freestyle.vms.list({ metadata: `group:${group}` });
  assert.deepEqual(all.vms.map((v) => v.slug), [`${group}-3`, `${group}-2`, `${group}-1`], "newest first");
  assert.equal(all.totalCount, 3);
  for (const count of ["runningCount", "startingCount", "pausingCount", "pausedCount", "stoppedCount"]) {
    assert.ok(Number.isInteger(all[count]), count);
  }
  const one = await freestyle.vms.list({ metadata: `group:${group},n:2` });
  assert.deepEqual(one.vms.map((v) => v.id), [made[1].vmId]);
  const paused = await freestyle.vms.list({ metadata: `group:${group}`, state: "paused" });
  assert.deepEqual(paused.vms.map((v) => v.id), [made[0].vmId]);
  const named = await freestyle.vms.list({ slug: `${group}-3` });
  assert.deepEqual(named.vms.map((v) => v.id), [made[2].vmId]);
  const page = await freestyle.vms.list({ metadata: `group:${group}`, limit: 1, offset: 1 });
  assert.deepEqual(page.vms.map((v) => v.id), [made[1].vmId]);
  assert.equal(page.totalCount, 3);
  const origin = (await made[0].vm.data()).snapshotId;
  const booted = await freestyle.vms.list({ snapshotId: origin, metadata: `group:${group}` });
  assert.equal(booted.totalCount, 3);
  const unsliced = await freestyle.vms.list();
  assert.ok(made.every(({ vmId }) => unsliced.vms.some((v) => v.id === vmId)));
});

await test("update changes what it names and nothing else", async () => {
  const { vm, vmId, data } = await create({ metadata: { keep: "1", drop: "2" }, idleTimeoutSeconds: 600 });
  const slug = uniqueSlug("renamed");
  const renamed = await vm.update({ slug, displayName: "Renamed", metadata: { drop: "", add: "3" }, ttlSeconds: 90000 });
  assert.equal(renamed.slug, slug);
  assert.equal(renamed.displayName, "Renamed");
  assert.deepEqual(renamed.metadata, { keep: "1", add: "3" });
  assert.equal(renamed.idleTimeoutSeconds, 600);
  assert.equal(renamed.ttlSeconds, 90000);
  assert.equal(renamed.createdAt, data.createdAt);
  assert.deepEqual((await vm.update({ metadata: {} })).metadata, { keep: "1", add: "3" });
  const cleared = await vm.update({ slug: "", displayName: "", idleTimeoutSeconds: -1, ttlSeconds: -1, automaticRestart: false });
  assert.equal(cleared.slug ?? null, null);
  assert.equal(cleared.displayName ?? null, null);
  assert.equal(cleared.idleTimeoutSeconds ?? null, null);
  assert.equal(cleared.ttlSeconds ?? null, null);
  assert.equal(cleared.automaticRestart, false);
  await assert.rejects(freestyle.vms.get(slug), absent);
  assert.equal((await freestyle.vms.get(vmId)).displayName ?? null, null);
});

await test("a slug moves only when asked to", async () => {
  const slug = uniqueSlug("taken");
  const first = await create({ slug });
  await assert.rejects(create({ slug }), refusal(409, "CONFLICT"));
  const second = await create({ slug, reassignSlug: true });
  assert.equal((await freestyle.vms.get(slug)).id, second.vmId);
  const held = await first.vm.data();
  assert.equal(held.slug ?? null, null);
  assert.equal(held.state, "running");
  await assert.rejects(first.vm.update({ slug }), refusal(409, "CONFLICT"));
  assert.equal((await first.vm.update({ slug, reassignSlug: true })).slug, slug);
  assert.equal((await second.vm.data()).slug ?? null, null);
});

await test("pause keeps memory and processes, start resumes them", async () => {
  const { vm } = await create();
  const pid = await sh(vm, "echo kept > /dev/shm/note; sleep 1000 > /dev/null 2>&1 & echo $!");
  const paused = await vm.pause();
  assert.equal(paused.state, "paused");
  const started = await vm.start();
  assert.ok(["starting", "running"].includes(started.state));
  assert.equal(await sh(vm, `cat /dev/shm/note; kill -0 ${pid} && echo alive`), "kept\nalive");
  assert.equal((await vm.start()).state, "running", "starting what runs changes nothing");
});

await test("a paused VM wakes for a command", async () => {
  const { vm } = await create();
  await vm.pause();
  assert.equal(await sh(vm, "echo awake"), "awake");
  assert.equal((await vm.data()).state, "running");
});

await test("resize grows a running VM and never shrinks it", async () => {
  const { vm, data } = await create();
  const before = data.resources;
  const memory = Number(await sh(vm, "awk '/MemTotal/{print $2}' /proc/meminfo"));
  const want = { cpu: before.cpu + 1, memory: before.memory + 128, storage: before.storage + 512 };
  const grown = await vm.resize(want);
  assert.deepEqual(grown.resources, want);
  await until("the CPU is online", async () => (await sh(vm, "nproc")) === String(want.cpu));
  await until("the memory is online", async () =>
    Number(await sh(vm, "awk '/MemTotal/{print $2}' /proc/meminfo")) > memory + 100 * 1024);
  await until("the file system has grown", async () =>
    Number(await sh(vm, "df -m / | awk 'END{print $2}'")) > before.storage * 0.9 + 300);
  await assert.rejects(vm.resize({ memory: before.memory }), refusal(400, "BAD_REQUEST"));
  await assert.rejects(vm.resize({ storage: before.storage }), refusal(400, "BAD_REQUEST"));
  assert.deepEqual((await vm.data()).resources, want);
});

await test("powering off inside leaves it stopped, start boots it with its disk", async () => {
  const { vm } = await create({ automaticRestart: true });
  await sh(vm, "echo disk > /root/note && sync");
  await vm.exec({ command: "poweroff", linuxUser: "root" }).catch(() => {});
  await until("it is stopped", async () => (await vm.data()).state === "stopped", 120_000);
  await assert.rejects(vm.pause(), refusal(409, "CONFLICT"));
  assert.notEqual((await vm.start()).state, "stopped");
  assert.equal(await sh(vm, "cat /root/note"), "disk");
});

await test("an ephemeral VM goes when it stops", async () => {
  const { vm, data } = await create({ autoDeleteSeconds: 0 });
  assert.equal(data.autoDeleteSeconds, 0);
  await vm.exec({ command: "poweroff", linuxUser: "root" }).catch(() => {});
  await until("it is gone", () => vm.data().then(() => false, (error) => error.status === 404), 120_000);
});

await test("a deadline deletes it", async () => {
  const { vm } = await create({ ttlSeconds: 2 });
  await until("it is gone", () => vm.data().then(() => false, (error) => error.status === 404), 120_000);
});

await test("a run that lasted its time is paused, and a spent budget refuses a start", async () => {
  const { vm } = await create({ maxRunSeconds: 2 });
  await until("it is paused", async () => (await vm.data()).state === "paused", 120_000);
  await vm.update({ maxRunSeconds: -1, maxRunTotalSeconds: 1 });
  await assert.rejects(vm.start(), refusal(409, "CONFLICT"));
  await vm.update({ maxRunTotalSeconds: -1 });
  assert.notEqual((await vm.start()).state, "paused");
});

await test("placement that one host cannot give is refused", async () => {
  const group = uniqueSlug("apart");
  const placement = { antiAffinity: [{ topology: "node", selector: { matchLabels: { group } } }] };
  const { data } = await create({ metadata: { group }, placement });
  assert.deepEqual(data.placement, placement);
  await assert.rejects(create({ metadata: { group }, placement }), refusal(409, "CONFLICT"));
});

await test("delete by handle and by name", async () => {
  const slug = uniqueSlug("gone");
  const one = await create({ slug });
  assert.equal(await one.vm.delete(), undefined);
  await assert.rejects(one.vm.data(), absent);
  const two = await create({ slug });
  assert.equal(await freestyle.vms.delete(slug), undefined);
  await assert.rejects(freestyle.vms.get(two.vmId), absent);
  await assert.rejects(freestyle.vms.delete(two.vmId), absent);
});

await test("a private network that is not there is an error, not ignored", async () => {
  await assert.rejects(create({ vpcs: [{ vpcId: "nowhere" }] }), (error) => error.status >= 400 && error.status < 500);
  await assert.rejects(create({ networks: [{ vpc: "nowhere" }] }), (error) => error.status >= 400 && error.status < 500);
});

await test("mistakes name what is wrong", async () => {
  const bad = refusal(400, "BAD_REQUEST");
  await assert.rejects(create({ slug: "Not A Slug" }), bad);
  await assert.rejects(create({ metadata: { ["k".repeat(64)]: "v" } }), bad);
  await assert.rejects(create({ reassignSlug: true }), bad);
  await assert.rejects(create({ snapshotId: "sh-nothing" }), (error) => [400, 404].includes(error.status));
  const raw = await freestyle.fetch("/v5/vms", {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ snapshotId: busybox }),
  });
  assert.equal(raw.status, 400, "the firewall block is required");
  assert.match((await raw.json()).message, /firewall/);
  await assert.rejects(freestyle.vms.ref("nobody").start(), absent);
  await assert.rejects(freestyle.vms.ref("nobody").pause(), absent);
  await assert.rejects(freestyle.vms.ref("nobody").update({ displayName: "x" }), absent);
  await assert.rejects(freestyle.vms.ref("nobody").resize({ cpu: 4 }), absent);
  await assert.rejects(connect({ apiKey: "wrong" }).vms.list(), refusal(401, "INVALID_API_KEY"));
});

await test("unknown routes, and a daemon that is not there", async () => {
  const raw = await freestyle.fetch("/v5/nothing");
  assert.equal(raw.status, 404);
  assert.equal((await raw.json()).code, "ROUTE_NOT_FOUND");
  await assert.rejects(connect({ baseUrl: `http://127.0.0.1:${await closedPort()}` }).vms.list(), (error) =>
    error.name === "FreestyleTransportError" && error.errors[0].code === "ECONNREFUSED");
  await assert.rejects(async () => freestyle.vms.create(), TypeError);
  assert.equal((await freestyle.fetch("/openapi.json")).status, 200);
});

await finish();
