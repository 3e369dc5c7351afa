// Lists every method and getter of the SDK's classes that belong to VMs.
import { classes, members } from "./harness.mjs";

const all = classes.flatMap((name) => [...members(name)].map(([member]) => `${name}.${member}`));
process.stdout.write(`${JSON.stringify({ called: all.sort() })}\n`);
