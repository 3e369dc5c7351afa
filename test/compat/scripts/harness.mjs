// What the scripts share: a client of the daemon under test, a count of what
// was called, and tests whose results go to standard output, one JSON document
// a line, for the Go test that started the script.
import * as sdk from "freestyle";

const { PANDO_URL: baseUrl, PANDO_API_KEY: apiKey } = process.env;

// The classes that belong to VMs. What the others do is not there yet.
export const classes = [
  "VmsNamespace", "Vm", "VmLinuxUser", "VmFilesystem", "VmPty", "VmLinuxUserPty", "PtySession", "VmSnapshotsNamespace",
];

const called = new Set();

function emit(line) {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

// members lists methods and getters of a class, those of its TypeScript side
// called private too: the public ones use them.
export function* members(name) {
  for (const [member, property] of Object.entries(Object.getOwnPropertyDescriptors(sdk[name].prototype))) {
    if (member !== "constructor") yield [member, property];
  }
}

// A method counts once it has returned or resolved, not when it was called.
function watch(name) {
  for (const [member, property] of members(name)) {
    const done = (result) => {
      called.add(`${name}.${member}`);
      return result;
    };
    const wrap = (original) =>
      function (...args) {
        const result = original.apply(this, args);
        return result instanceof Promise ? result.then(done) : done(result);
      };
    if (property.get) Object.defineProperty(sdk[name].prototype, member, { ...property, get: wrap(property.get) });
    else Object.defineProperty(sdk[name].prototype, member, { ...property, value: wrap(property.value) });
  }
}
classes.forEach(watch);

export const busybox = "freestyle/busybox";
export const shut = { rules: [] };
export const outbound = { rules: [{ action: "allow", source: {}, destination: { public: true } }] };

// connect makes a client; options go to the SDK's constructor.
export function connect(options = {}) {
  return new sdk.Freestyle({ apiKey, baseUrl, ...options });
}
export const freestyle = connect();

const cleanups = [];

// create makes a VM that is deleted when the script ends.
export async function create(options = {}) {
  const made = await freestyle.vms.create({ snapshotId: busybox, firewall: shut, ...options });
  cleanups.push(() => freestyle.vms.delete(made.vmId));
  return made;
}

// later deletes something when the script ends.
export function later(cleanup) {
  cleanups.push(cleanup);
}

// test runs one test; those that follow run also if it fails.
export async function test(name, body) {
  const start = Date.now();
  try {
    await body();
    emit({ test: name, ms: Date.now() - start });
  } catch (error) {
    emit({ test: name, ms: Date.now() - start, error: error?.stack ?? String(error), code: error?.code });
  }
}

// finish deletes what was made and reports what was called.
export async function finish() {
  for (const cleanup of cleanups.reverse()) {
    await cleanup().catch((error) => {
      if (error.status !== 404) emit({ test: "clean-up", error: String(error) });
    });
  }
  emit({ called: [...called].sort() });
}

// until polls a condition: what a VM does by itself has no other end.
export async function until(what, condition, patience = 60_000) {
  const deadline = Date.now() + patience;
  for (;;) {
    const value = await condition();
    if (value) return value;
    if (Date.now() > deadline) throw new Error(`waited ${patience} ms in vain until ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}

// sh runs a command as root and returns what it printed, without the last line
// end; a command that fails is an error.
export async function sh(vm, command, options = {}) {
  const result = await vm.exec({ command, linuxUser: "root", timeoutMs: 120_000, ...options });
  if (result.statusCode !== 0) throw new Error(`${command}: ${JSON.stringify(result)}`);
  return result.stdout.replace(/\n$/, "");
}

// refusal is a matcher for assert.rejects.
export function refusal(status, code) {
  return (error) => {
    if (error instanceof sdk.FreestyleApiError && error.status === status && error.code === code && error.message) return true;
    throw new Error(`want ${status} ${code}, have ${error.name} ${error.status} ${error.code}: ${error.message}`);
  };
}

export function sha256(bytes) {
  return import("node:crypto").then(({ createHash }) => createHash("sha256").update(bytes).digest("hex"));
}
