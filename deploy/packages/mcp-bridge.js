#!/usr/bin/env node
// Runs the program of the package for this platform, which npm installs as an optional dependency.
"use strict";
const { spawn } = require("node:child_process");
const fs = require("node:fs");

const platform = `${process.platform}-${process.arch}`;
const name = `@mcp-bridge/${platform}`;

function fail(why) {
  console.error(`mcp-bridge: ${why}`);
  process.exit(1);
}

let program;
try {
  program = require.resolve(`${name}/bin/mcp-bridge${process.platform === "win32" ? ".exe" : ""}`);
} catch {
  const packages = Object.keys(require("./package.json").optionalDependencies);
  if (!packages.includes(name)) {
    fail(`there is no package for ${platform}, only for ${packages.map((p) => p.split("/")[1]).join(", ")}. Build it from source: https://github.com/mcp-bridge/bridge`);
  }
  fail(`the package ${name} is not installed. Install mcp-bridge again without --omit=optional, --no-optional, or a node_modules folder of another machine`);
}
try {
  fs.accessSync(program, fs.constants.X_OK); // execve would abort Node.js without a message
} catch {
  fail(`${program} may not be executed: run chmod +x on it, or install mcp-bridge again on a file system that allows programs`);
}
const args = process.argv.slice(2);

// Node 22.15 and later become the program, so that no second process stays.
if (process.execve && process.platform !== "win32") process.execve(program, [program, ...args], process.env);

const child = spawn(program, args, { stdio: "inherit" });
child.on("error", (err) => fail(`cannot start ${program}: ${err.message}`));
// A terminal sends SIGINT to both processes, and the bridge takes a second one as an order to stop at once.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
  process.on(signal, () => (signal === "SIGINT" && process.stdin.isTTY) || child.kill(signal));
}
child.on("exit", (code, signal) => {
  if (!signal) process.exit(code);
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
});
