// The default snapshot: a create that names none gets the Debian image.
import assert from "node:assert/strict";
import { create, finish, freestyle, sh, test } from "./harness.mjs";

await test("the default is a full system", async () => {
  const { vm, data } = await create({ snapshotId: undefined });
  assert.equal(data.snapshotId, (await freestyle.vms.snapshots.get("freestyle/ubuntu")).id);
  assert.equal(await sh(vm, "cat /proc/1/comm"), "systemd");
  const { stdout } = await vm.exec("id -u; sudo -n id -u; echo $HOME");
  const [uid, root, home] = stdout.trim().split("\n");
  assert.equal(uid, "1000");
  assert.equal(root, "0");
  assert.match(home, /^\/home\//);
  const user = (await vm.exec("id -un")).stdout.trim();
  assert.equal((await vm.linuxUser(user).exec("id -u")).stdout, "1000\n");

  const pid = (await vm.exec("nohup setsid sleep 1234 > /dev/null 2>&1 & echo $!")).stdout.trim();
  assert.equal((await vm.exec(`kill -0 ${pid} && echo alive; kill ${pid}`)).stdout, "alive\n");

  await vm.fs.writeFile("/srv/by-root", "x");
  assert.equal((await vm.fs.stat("/srv/by-root")).size, 1);

  let output = "";
  const code = await new Promise((resolve, reject) => {
    vm.pty.open({ exec: "tty; id -un; exit 4", onData: (d) => (output += Buffer.from(d)), onExit: resolve, onError: reject });
  });
  assert.equal(code, 4);
  assert.match(output, new RegExp(`/dev/pts/\\d+\\r\\n${user}\\r\\n`));
});

await finish();
