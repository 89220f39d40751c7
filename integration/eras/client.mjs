// Plays the script of the era matrix.
//
//   node client.mjs CELLS
//
// CELLS is a JSON array of cells as eras_test.go has them: one connection each,
// one after another. For each check one line of JSON goes to
// stdout: {"cell": index, "check": …, "outcome": …, "ok": …, "detail": …}; each
// cell ends with {"cell": index, "end": true}.

import { brief } from '../peer.mjs';
import { GoPeer } from './gopeer.mjs';
import { TypeScriptPeer } from './tspeer.mjs';

const report = (line) => process.stdout.write(JSON.stringify(line) + '\n');
process.on('uncaughtException', (e) => report({ stray: String(e?.stack ?? e) }));

for (const [cell, { sdk, program, client: c, server: s, by, upstream, script, ...where }] of JSON.parse(process.argv[2]).entries()) {
  const { checks } = await import(`./${script}`);
  const p = sdk === 'go' ? new GoPeer(program, c, where) : new TypeScriptPeer(sdk === 'ts1' ? 1 : 2, c, where);
  try {
    await p.connect();
    let n = 0;
    for (const [check, { outcome, run }] of Object.entries(checks)) {
      const as = outcome(c, s);
      n++;
      // Nothing has had this key before: servers are shared by many cells.
      const unique = process.pid * 10000 + cell * 100 + n;
      const from = Date.now();
      try {
        if (as !== 'absent') await run(p, { c, s, as, by, upstream, n: unique, key: `k${unique}` });
        report({ cell, check, outcome: as, ok: true, ms: Date.now() - from });
      } catch (e) {
        report({ cell, check, outcome: as, ok: false, ms: Date.now() - from, detail: `${e?.stack ?? e}\n${brief(p.errors.slice(-3))}` });
      }
    }
    await p.close();
    report({ cell, end: true });
  } catch (e) {
    report({ cell, check: 'session', ok: false, detail: `${e?.stack ?? e}\n${brief(p.errors)}` });
  }
}
// A leftover timer of a library must not hold up the test: all that matters has been said.
process.exit(0);
