// Snapshots through the SDK.
import assert from "node:assert/strict";
import { busybox, create, finish, freestyle, later, refusal, sh, test } from "./harness.mjs";

const { snapshots } = freestyle.vms;
const { vm, vmId } = await create({ slug: `source-${process.pid}` });
const name = (text) => `${text}-${process.pid}`;

async function capture(from, options) {
  const made = await from.snapshot(options);
  later(() => snapshots.delete(made.snapshotId));
  return made;
}

await test("a snapshot has memory, disk and processes, and its source goes on", async () => {
  const pid = await sh(vm, "echo disk > /root/disk; echo memory > /dev/shm/memory; sleep 5000 > /dev/null 2>&1 & echo $!");
  const made = await capture(vm, { slug: name("full"), displayName: "All of it", autoDeleteSeconds: 7200, ttlSeconds: 86400 });
  assert.match(made.snapshotId, /^sh-/);
  assert.equal(made.sourceVmId, vmId);
  assert.equal(made.snapshot.id, made.snapshotId);
  assert.equal(made.snapshot.slug, name("full"));
  assert.equal(made.snapshot.displayName, "All of it");
  assert.equal(made.snapshot.public, false);
  assert.equal(made.snapshot.sourceVmId, vmId);
  assert.equal(made.snapshot.autoDeleteSeconds, 7200);
  assert.equal(made.snapshot.ttlSeconds, 86400);
  assert.equal((await vm.data()).state, "running");
  await sh(vm, "echo later > /root/disk");

  const copy = await create({ snapshotId: made.snapshot.slug });
  assert.equal(copy.data.snapshotId, made.snapshotId);
  assert.equal(copy.data.sourceSnapshotSlugAtCreate, name("full"));
  assert.equal(await sh(copy.vm, `cat /root/disk /dev/shm/memory; kill -0 ${pid} && echo alive`), "disk\nmemory\nalive");
  assert.ok(Date.parse((await snapshots.get(made.snapshotId)).lastUsedAt));
});

await test("list, get and update", async () => {
  const made = await capture(vm, { slug: name("one") });
  const mine = await snapshots.list({ sourceVmId: vmId });
  assert.equal(mine.totalCount, mine.snapshots.length);
  assert.equal(mine.snapshots[0].id, made.snapshotId, "newest first");
  assert.ok(mine.snapshots.every((s) => s.sourceVmId === vmId));
  assert.equal((await snapshots.list({ limit: 1 })).snapshots.length, 1);
  assert.equal((await snapshots.list({ sourceVmId: vmId, limit: 1, offset: 1 })).snapshots[0].id, mine.snapshots[1].id);
  assert.ok((await snapshots.list()).snapshots.some((s) => s.id === made.snapshotId));
  for (const key of [made.snapshotId, name("one")]) assert.equal((await snapshots.get(key)).id, made.snapshotId);

  const updated = await snapshots.update(name("one"), { slug: name("two"), displayName: "Two", autoDeleteSeconds: 900, ttlSeconds: 90000 });
  assert.deepEqual([updated.slug, updated.displayName, updated.autoDeleteSeconds, updated.ttlSeconds], [name("two"), "Two", 900, 90000]);
  assert.equal((await snapshots.get(name("two"))).id, made.snapshotId);
  await assert.rejects(snapshots.get(name("one")), refusal(404, "NOT_FOUND"));
  const cleared = await snapshots.update(made.snapshotId, { slug: "", displayName: "", autoDeleteSeconds: -1, ttlSeconds: -1 });
  for (const field of ["slug", "displayName", "autoDeleteSeconds", "ttlSeconds"]) assert.equal(cleared[field] ?? null, null, field);
});

await test("names are unique", async () => {
  const made = await capture(vm, { slug: name("unique") });
  await assert.rejects(capture(vm, { slug: name("unique") }), refusal(409, "CONFLICT"));
  const other = await capture(vm, {});
  await assert.rejects(snapshots.update(other.snapshotId, { slug: name("unique") }), refusal(409, "CONFLICT"));
  await snapshots.delete(made.snapshotId);
  assert.equal((await snapshots.update(other.snapshotId, { slug: name("unique") })).slug, name("unique"));
});

await test("deleting one leaves its VMs", async () => {
  const made = await capture(vm, { slug: name("brief") });
  const copy = await create({ snapshotId: made.snapshotId });
  assert.equal(await snapshots.delete(name("brief")), undefined);
  await assert.rejects(snapshots.get(made.snapshotId), refusal(404, "NOT_FOUND"));
  assert.equal(await sh(copy.vm, "cat /root/disk"), "later");
  const data = await copy.vm.data();
  assert.equal(data.sourceSnapshotSlugAtCreate, name("brief"));
  assert.equal(data.sourceSnapshotSlug ?? null, null);
});

await test("a paused VM can be captured, a stopped one cannot", async () => {
  const other = await create({ automaticRestart: false });
  await sh(other.vm, "echo asleep > /dev/shm/note");
  await other.vm.pause();
  const made = await capture(other.vm, {});
  assert.equal((await other.vm.data()).state, "paused");
  const copy = await create({ snapshotId: made.snapshotId });
  assert.equal(await sh(copy.vm, "cat /dev/shm/note"), "asleep");
});

await test("the public catalogue is read by owner and name", async () => {
  const found = await snapshots.get(busybox);
  assert.equal(found.public, true);
  const made = await create({ snapshotId: busybox });
  assert.equal(made.data.snapshotId, found.id);
  assert.ok(made.data.sourceSnapshotSlugAtCreate.includes("/"), "the name of another's snapshot has its owner");
  await assert.rejects(snapshots.get("freestyle/nothing"), refusal(404, "NOT_FOUND"));
  await assert.rejects(snapshots.delete(busybox), (error) => [403, 409].includes(error.status));
});

await test("mistakes", async () => {
  await assert.rejects(vm.snapshot({ slug: "-bad-" }), refusal(400, "BAD_REQUEST"));
  await assert.rejects(vm.snapshot({ nonsense: true }), refusal(400, "BAD_REQUEST"));
  await assert.rejects(snapshots.update("sh-nothing", { displayName: "x" }), refusal(404, "NOT_FOUND"));
  await assert.rejects(snapshots.delete("sh-nothing"), refusal(404, "NOT_FOUND"));
  await assert.rejects(freestyle.vms.ref("nobody").snapshot(), refusal(404, "NOT_FOUND"));
});

await finish();
