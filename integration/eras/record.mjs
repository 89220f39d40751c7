// Runs a stdio server and keeps what it was sent.
//
//   node record.mjs FILE COMMAND ARGS…

import { spawn } from 'node:child_process';
import { appendFileSync } from 'node:fs';

const [file, command, ...args] = process.argv.slice(2);
const child = spawn(command, args, { stdio: ['pipe', 'inherit', 'inherit'] });
child.stdin.on('error', () => {}); // it has ended: so do we
process.stdin.on('data', (chunk) => {
  appendFileSync(file, chunk);
  child.stdin.write(chunk);
});
process.stdin.on('end', () => child.stdin.end());
process.on('SIGTERM', () => child.kill('SIGTERM'));
child.on('exit', (code) => process.exit(code ?? 1));
