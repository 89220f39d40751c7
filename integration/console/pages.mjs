// Steps of browser.mjs for single pages: calls, a server, Try, traffic, the log and the configuration.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';

/** @param {any} t what steps use, as browser.mjs has it */
export async function pages({ step, o, open, context, page, see, heading, field, agree, button, go, item, verdict, meant }) {
  const rows = () => page.locator('.long tbody tr:not([aria-hidden])');

  /** Calls a tool of a server in a tab of its own. @param {string} server @param {string} tool @param {(tab: any) => Promise<void>} [how] */
  async function callElsewhere(server, tool, how = (tab) => tab.getByRole('button', { name: 'Call', exact: true }).click()) {
    const other = await open(context);
    await other.goto(`${o.base}/ui/#/try/${server}/tools/${tool}?revision=2025-11-25`);
    await other.locator('section.item').waitFor();
    await how(other);
    await other.locator('.verdict').waitFor();
    return other;
  }

  /** Calls a tool as a client of 2026-07-28. @param {string} base @param {string} server @param {string} name @returns {Promise<string>} what came back */
  async function callAs(base, server, name) {
    const _meta = { 'io.modelcontextprotocol/protocolVersion': '2026-07-28', 'io.modelcontextprotocol/clientInfo': { name: 'visitor', version: '1' }, 'io.modelcontextprotocol/clientCapabilities': {} };
    const headers = { 'Content-Type': 'application/json', Accept: 'application/json, text/event-stream', Authorization: `Bearer ${o.key}`, 'MCP-Protocol-Version': '2026-07-28', 'Mcp-Method': 'tools/call', 'Mcp-Name': name };
    return (await fetch(`${base}/${server}/mcp`, { method: 'POST', headers, body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name, arguments: {}, _meta } }) })).text();
  }

  /** Chooses an action of a server's menu. @param {string} name */
  async function choose(name) {
    await button('Actions').click();
    await button(name).click();
  }

  /** Chooses an action, and says yes. @param {string} name */
  async function act(name) {
    await choose(name);
    await agree(name);
  }

  await step('a server, and what operators do with it', async () => {
    await go('');
    await page.getByRole('link', { name: 'legacy', exact: true }).first().click();
    await heading('legacy');
    await page.locator('time-chart figcaption', { hasText: 'Response time' }).waitFor();
    const said = page.locator('act-bar .said');
    await button('Test connection').click();
    await said.filter({ hasText: /^Connected in / }).waitFor();
    await choose('Stop calls');
    await page.getByRole('dialog').getByText(/each call to legacy is answered with an error\. (\d+ clients?|No client) used it/).waitFor();
    await agree('Stop calls');
    await page.locator('.facts', { hasText: 'forced open by' }).waitFor();
    await button('Actions').click();
    assert.equal(await button('Stop calls').getAttribute('aria-pressed'), 'true');
    await see('For 10 minutes, clients get an error');
    const times = await page.locator('main time').evaluateAll((all) => all.map((e) => [e.getAttribute('datetime'), e.getAttribute('title')]));
    assert.ok(times.length > 0 && times.every(([at, title]) => at && at === title && Date.parse(at) > 0), `each time has its instant: ${JSON.stringify(times)}`);
    await button('Automatic').click();
    await page.locator('.facts', { hasText: 'forced open by' }).waitFor({ state: 'detached' });
    await choose('Clear cached lists');
    await said.filter({ hasText: /^\d+ cleared$/ }).waitFor();
    await go('#/servers/broken');
    await heading('broken');
    await button('Test connection').click();
    await page.locator('act-bar .said.bad', { hasText: /^Failed: ./ }).waitFor();
  });

  await step('the tools of a server, how they are used, and its last calls', async () => {
    /** @type {string[]} */
    const asked = [];
    const note = (/** @type {any} */ r) => { if (/\/ui\/mcp\//.test(r.url())) asked.push(r.postData() ?? ''); };
    page.on('request', note);
    const cached = page.waitForResponse(/\/servers\/odd\/tools$/);
    await go('#/servers/odd');
    await heading('odd');
    await page.locator('.side .state', { hasText: 'Live' }).waitFor();
    await cached;
    await heading('Last calls');
    assert.deepEqual(asked, [], 'to look asks no server');
    page.off('request', note);
    const other = await callElsewhere('odd', 'erase', async (tab) => {
      await tab.getByLabel(/^path/).fill('a.txt');
      await tab.getByRole('button', { name: 'Call', exact: true }).click();
      await tab.getByRole('dialog').getByRole('button', { name: 'Call it' }).click();
    });
    await callAs(o.base, 'odd', 'scribble');
    await page.getByRole('region', { name: 'Clients' }).getByRole('row', { name: /^visitor v1 \/odd\/mcp / }).waitFor();
    const tools = page.getByRole('region', { name: 'Tools', exact: true });
    await tools.getByRole('row', { name: /^erase Destructive/ }).waitFor();
    assert.match(await tools.getByRole('row', { name: /^shapes no hints/ }).locator('.chip').getAttribute('title') ?? '', /default of MCP/);
    await page.getByRole('region', { name: 'Last calls' }).getByRole('link', { name: 'erase' }).first().waitFor();
    await tools.getByRole('row', { name: /^erase/ }).getByRole('link', { name: 'Open in Try' }).click();
    await page.locator('section.item', { hasText: 'erase' }).waitFor();
    await other.close();
    await go('#/overview');
    await page.getByRole('region', { name: 'Slowest tools' }).locator('td:first-child a').first().click();
    await page.waitForFunction(() => /^#\/calls\?filter=name:\w+ server:\w+$/.test(decodeURIComponent(location.hash)));
    await rows().first().waitFor();
  });

  await step('how long calls take, and what processes use', async () => {
    await item('legacy', 'tools', 'text', '2025-11-25');
    await field('message').fill('timed');
    await button('Call').click();
    await verdict('OK', 'timed');
    await go('#/servers/legacy');
    await page.locator('dl.facts', { hasText: /p50 \/ p95 \/ p99\s*[\d.]+ m?s \/ [\d.]+ m?s \/ [\d.]+ m?s/ }).waitFor();
    const other = await open(context);
    await other.goto(`${o.base}/ui/#/try/legacy/tools/text?revision=2025-11-25`);
    await other.locator('section.item').waitFor();
    if (process.platform === 'linux') await page.getByRole('region', { name: 'Connections' }).getByText(/^[\d.]+ MB$/).first().waitFor();
    await other.close();
  });

  await step('what a process has said last, and another one in its place', async () => {
    const other = await callElsewhere('odd', 'scribble');
    await go('#/servers/odd');
    const connections = page.getByRole('region', { name: 'Connections' });
    await connections.getByText('scribbled on stderr').first().waitFor();
    await page.locator('.lines', { hasText: 'scribbled on stderr' }).waitFor();
    await act('Restart idle connections');
    await page.locator('act-bar .said', { hasText: /^[1-9]\d* closed$/ }).waitFor();
    await other.getByRole('button', { name: 'Call', exact: true }).click();
    await other.locator('.verdict', { hasText: 'OK' }).waitFor();
    await connections.getByText('scribbled on stderr').first().waitFor();
    await connections.getByRole('button', { name: /^Stop connection/ }).first().click();
    await agree('Stop');
    await see('Connection stopped');
    await other.close();
  });

  await step('a server is drained, and takes calls again', async () => {
    await go('#/servers/odd');
    await act('Drain server');
    await button('Resume').waitFor();
    await page.locator('.summary', { hasText: /drained/i }).waitFor();
    await page.locator('dl.facts', { hasText: /Drained\s*since/ }).waitFor();
    meant.push(/status of 503/);
    await go('#/try/odd/tools/scribble?revision=2025-11-25');
    await page.getByRole('alert').getByText(/an operator has drained it/).waitFor();
    await go('#/servers/odd');
    await button('Resume').click();
    await button('Resume').waitFor({ state: 'detached' });
    await item('odd', 'tools', 'scribble', '2025-11-25');
    await button('Call').click();
    await verdict('OK');
  });

  await step('calls', async () => {
    await go('#/calls');
    await heading('Calls');
    await page.locator('.summary', { hasText: 'since' }).waitFor();
    await (await callElsewhere('odd', 'scribble')).close(); // calls are watched since somebody looks
    for (const head of ['Time', 'Client', 'Server', 'Tool', 'Duration', 'Outcome']) await page.getByRole('columnheader', { name: head, exact: true }).waitFor();
    await rows().filter({ hasText: 'scribble' }).first().getByText('OK').waitFor();
    await page.getByLabel('filter').fill('server:legacy status:error');
    await rows().filter({ hasText: 'scribble' }).first().waitFor({ state: 'detached' });
    await page.getByLabel('filter').fill('scribble server:odd');
    await page.waitForFunction(() => location.hash.includes('scribble'));
    await page.reload();
    await page.locator('.summary', { hasText: /0 active · \d+ finished since/ }).waitFor();
    const place = await page.locator('.long').boundingBox();
    await rows().filter({ hasText: 'scribble' }).first().click();
    const panel = page.getByRole('complementary', { name: 'the chosen call' });
    await panel.getByText('Received', { exact: true }).first().waitFor();
    assert.equal((await page.locator('.long').boundingBox())?.y, place?.y, 'the panel does not move the list');
    await page.keyboard.press('Escape');
    await panel.waitFor({ state: 'detached' });
    await page.getByLabel('filter').fill('no-such-call');
    await heading('No call matches the filter');
    await button('Clear filter').click();
    await rows().first().waitFor();
  });

  await step('failures of before somebody looked, and calls that an open circuit breaker refused', async () => {
    const force = async (/** @type {string} */ state) => assert.equal((await fetch(`${o.locked}/ui/api/v1/servers/broken/breaker`, { method: 'POST', headers: { Authorization: `Bearer ${o.key}`, 'Content-Type': 'application/json' }, body: JSON.stringify({ state }) })).status, 200);
    assert.match(await callAs(o.locked, 'broken', 'find'), /"upstream_unavailable"/); // nobody looks at this bridge yet
    await force('open');
    for (let i = 0; i < 3; i++) assert.match(await callAs(o.locked, 'broken', 'find'), /"circuit_open"/);
    await force('auto');
    meant.push(/status of 401/);
    await page.goto(`${o.locked}/ui/#/calls`);
    await page.getByLabel('key').fill(o.key);
    await page.keyboard.press('Enter');
    await page.locator('.long tr.since', { hasText: /^Since \d\d:\d\d:\d\d all calls are recorded\. Earlier, only failures\.$/ }).waitFor();
    await page.locator('.summary', { hasText: /4 earlier failures/ }).waitFor();
    const early = page.locator('.long tr.since ~ tr:not([aria-hidden])');
    await early.nth(1).getByText('Unavailable').waitFor();
    const refused = early.first();
    await refused.getByText('Circuit open ×3').waitFor();
    await refused.getByRole('button').focus();
    await page.keyboard.press('Enter');
    await early.nth(4).getByText('Unavailable').waitFor();
    assert.equal(await refused.getByRole('button').getAttribute('aria-expanded'), 'true');
    await refused.click();
    await early.nth(2).waitFor({ state: 'detached' });
    await page.goto(`${o.locked}/ui/#/servers/broken`);
    await see('No client has listed its tools yet.');
    await button('List tools').waitFor();
    await page.getByRole('region', { name: 'Last failures' }).getByRole('row', { name: /Refused calls.*Circuit open ×3$/ }).waitFor();
    assert.match(await page.getByRole('region', { name: 'Last failures' }).getByRole('row').nth(1).textContent() ?? '', /Unavailable$/, 'the cause is first');
    await page.getByRole('region', { name: 'Last failures' }).getByRole('link', { name: 'Refused calls' }).click();
    await page.locator('.summary', { hasText: /3 earlier failures/ }).waitFor();
    assert.equal(await page.getByLabel('Filter').inputValue(), 'server:broken status:circuit_open');
    await button('Sign out').click();
    await page.getByLabel('key').waitFor();
  });

  await step('rows by keyboard, and the columns that a narrow window has', async () => {
    await go('#/calls');
    await (await callElsewhere('odd', 'scribble')).close();
    await rows().nth(1).getByRole('button').waitFor();
    await rows().first().getByRole('button').focus();
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => /** @type {any} */ (document.activeElement)?.closest('tr') === document.querySelector('.long tr.chosen'));
    await page.keyboard.press('Escape');
    await page.setViewportSize({ width: 360, height: 740 });
    assert.deepEqual(await page.locator('.long th').evaluateAll((all) => all.filter((e) => getComputedStyle(e).display !== 'none').map((e) => e.textContent)), ['Time', 'Tool', 'Outcome']);
    assert.match(await rows().first().locator('.tool .of').innerText(), /^odd · ./, 'the second line has the server and the client');
    await page.setViewportSize({ width: 1200, height: 800 });
  });

  await step('the messages of a call, of both sides', async () => {
    await go('#/calls?filter=name:markup');
    const recorded = page.waitForResponse(/events\?topics=[^&]*traffic/);
    await page.getByLabel('Record messages').check();
    await recorded;
    const before = await rows().filter({ hasText: 'markup' }).count();
    await (await callElsewhere('odd', 'markup')).close();
    await rows().filter({ hasText: 'markup' }).nth(before).waitFor();
    await rows().filter({ hasText: 'markup' }).first().click();
    const trail = page.locator('.panel .trail li');
    await trail.nth(3).waitFor();
    assert.deepEqual((await trail.locator('b').allTextContents()).map((t) => t.split(' ').slice(0, 2).join(' ')), ['from client', 'to server', 'from server', 'to client']);
  });

  await step('a call is made again, with its arguments', async () => {
    meant.push(/status of 401/);
    await page.goto(`${o.locked}/ui/`);
    await page.getByLabel('key').fill(o.key);
    await page.keyboard.press('Enter');
    await heading('Overview');
    await page.goto(`${o.locked}/ui/#/try/odd/tools/erase?revision=2025-11-25`);
    await field('path').fill('again.txt');
    const calls = await open(context);
    await calls.goto(`${o.locked}/ui/#/calls`);
    await calls.locator('.summary', { hasText: 'since' }).waitFor();
    await button('Call').click();
    await agree('Call it');
    await verdict('OK', 'erased again.txt');
    await calls.locator('.long tr', { hasText: 'erase' }).first().click();
    await calls.locator('.panel', { hasText: '"again.txt"' }).waitFor();
    await calls.getByRole('link', { name: 'Replay' }).click();
    await calls.getByRole('dialog').getByRole('button', { name: 'Call it' }).click();
    await calls.locator('.outcome', { hasText: 'erased again.txt' }).waitFor();
    await calls.close();
    await page.goto(`${o.locked}/ui/#/overview`);
    await button('Sign out').click();
    await page.getByLabel('key').waitFor();
  });

  await step('a call that is active is cancelled from outside', async () => {
    const other = await open(context);
    await other.goto(`${o.base}/ui/#/calls?filter=name:wait%20status:running`);
    await other.getByRole('heading', { name: 'Calls', exact: true }).waitFor();
    await item('legacy', 'tools', 'wait', '2025-11-25');
    await button('Call').click();
    await other.locator('.long tr', { hasText: 'wait' }).first().click();
    await other.getByRole('button', { name: 'Cancel call' }).click();
    await page.locator('.verdict').waitFor();
    await other.close();
  });

  await step('traffic', async () => {
    await go('#/traffic?filter=server:odd');
    await heading('Traffic');
    await page.locator('.side .state', { hasText: 'Live' }).waitFor();
    const other = await callElsewhere('odd', 'markup');
    const row = rows().filter({ hasText: /tools\/call\s+markup/ });
    await row.filter({ hasText: /mcp-bridge-console.*odd.*server/ }).first().waitFor(); // a client, a server, the answer, and how long the server took
    await row.first().click();
    const panel = page.getByRole('complementary', { name: 'the chosen message' });
    await panel.getByText(/of which the bridge took/).waitFor();
    assert.deepEqual((await panel.locator('.trail b').allTextContents()).map((t) => t.split(' ').slice(0, 2).join(' ')), ['from client', 'to server', 'from server', 'to client']);
    assert.equal(await panel.getByText('Payload', { exact: true }).count(), 0, 'payloads are not switched on here');
    await page.keyboard.press('Escape');
    await panel.waitFor({ state: 'detached' });
    await page.getByLabel('Filter').fill('no-such-method');
    await heading('No message matches the filter');
    await page.getByLabel('Filter').fill('server:odd');
    await button('Pause').click();
    await other.getByRole('button', { name: 'Call', exact: true }).click();
    await other.locator('.verdict').waitFor();
    await page.locator('.side .state', { hasText: 'Paused' }).waitFor();
    await button('Pause').click();
    const saves = page.waitForEvent('download');
    await button('Save').click();
    const lines = fs.readFileSync(await (await saves).path(), 'utf8').trim().split('\n').map((l) => JSON.parse(l));
    assert.ok(lines.some((l) => l.side === 'server' && l.kind === 'result' && l.name === 'markup' && l.took_ms >= 0));
    await button('Clear').click();
    await heading('No messages yet');
    await other.close();
  });

  await step('the protocol: a request is sent again, and another one by hand', async () => {
    await item('odd', 'tools', 'erase', '2025-11-25');
    await page.reload(); // what was agreed to is forgotten
    await see('Required: path');
    assert.ok(await button('Call').isDisabled(), 'the button is off until what is required is there');
    await field('path').fill('wire.txt');
    await button('Call').click();
    await agree('Call it');
    await verdict('OK', 'erased wire.txt');
    const lines = page.locator('.history li');
    const called = lines.filter({ hasText: /tools\/call erase/ });
    await called.first().locator('summary').click();
    await called.first().getByRole('button', { name: 'Replay' }).click();
    await called.nth(1).waitFor();
    await called.last().getByRole('button', { name: 'Edit and send…' }).click();
    const dialog = page.getByRole('dialog');
    const params = dialog.getByLabel('Parameters, as JSON');
    assert.deepEqual(JSON.parse(await params.inputValue()), { name: 'erase', arguments: { path: 'wire.txt' } });
    await params.fill('{"name": ');
    await dialog.getByText('This is no JSON yet.').waitFor();
    await params.fill('{"name": "no-such-tool"}');
    await dialog.getByRole('button', { name: 'Send', exact: true }).click();
    await page.getByRole('button', { name: 'Call it' }).click(); // it may be destructive
    await lines.filter({ hasText: /tools\/call no-such-tool.*error/ }).waitFor();
    const saves = page.waitForEvent('download');
    await page.locator('.protocol').getByRole('button', { name: 'Export' }).click();
    const exported = fs.readFileSync(await (await saves).path(), 'utf8').trim().split('\n').map((l) => JSON.parse(l));
    assert.ok(exported.some((l) => l.to === 'server' && l.message.method === 'initialize'));
  });

  await step('sessions', async () => {
    const ids = () => page.evaluate(() => fetch('api/v1/sessions').then((r) => r.json()).then((a) => a.sessions.map((s) => s.id)));
    await go('#/sessions');
    await heading('Sessions');
    const before = await ids();
    const other = await open(context);
    await other.goto(`${o.base}/ui/#/try/legacy/tools/text?revision=2025-11-25`);
    await other.locator('section.item').waitFor();
    const id = (await ids()).find((i) => !before.includes(i));
    const connect = page.getByRole('region', { name: 'Connect a client' });
    await connect.getByLabel('to', { exact: true }).selectOption('odd');
    for (const [client, text] of [['Claude Code', `claude mcp add --transport http odd ${o.base}/odd/mcp`], ['Claude Desktop', `"connect"`], ['Cursor', `"url": "${o.base}/odd/mcp"`], ['VS Code', '"type": "http"'], ['curl', `curl -sS ${o.base}/odd/mcp`]]) {
      await connect.getByRole('button', { name: client, exact: true }).click();
      await connect.locator('pre', { hasText: text }).waitFor();
    }
    assert.match(execFileSync('sh', ['-c', await connect.locator('pre').textContent() ?? ''], { encoding: 'utf8', timeout: 60_000 }), /"serverInfo"/, 'the block for curl works');
    const row = page.getByRole('row', { name: new RegExp(id) });
    await row.waitFor();
    meant.push(/status of 404/);
    await row.getByRole('button', { name: 'End session' }).click();
    await agree('End session');
    await row.waitFor({ state: 'detached' });
    await other.getByRole('button', { name: 'Call', exact: true }).click();
    await other.locator('.verdict.bad').waitFor();
    await other.close();
  });

  await step('log', async () => {
    await go('#/log');
    await heading('Log');
    const other = await open(context);
    await other.goto(`${o.base}/ui/#/try/odd/tools/scribble?revision=2025-11-25`);
    await other.locator('section.item').waitFor();
    await other.getByRole('button', { name: 'Call', exact: true }).click();
    await page.locator('.log li', { hasText: 'scribbled on stderr' }).first().waitFor();
    await other.close();
    await page.getByLabel('filter').fill('server:legacy');
    await page.locator('.log li', { hasText: 'scribbled' }).first().waitFor({ state: 'detached' });
    await page.getByLabel('filter').fill('');
    const line = page.locator('.log li', { hasText: 'scribbled' }).first();
    await line.locator('summary').click();
    await line.getByRole('link', { name: 'Open odd' }).waitFor();
    await page.getByLabel('Minimum level').selectOption('ERROR');
    await line.waitFor({ state: 'detached' });
    await page.getByLabel('Minimum level').selectOption('');
    await line.waitFor();
  });

  await step('configuration', async () => {
    await go('#/config');
    await heading('Configuration');
    await see('No changes: the running configuration matches the file.');
    assert.equal(await button('Reload now').getAttribute('class') ?? '', '', 'nothing has to be reloaded');
    const write = (/** @type {string} */ text) => { // at once: the page may look meanwhile
      fs.writeFileSync(`${o.file}.new`, text);
      fs.renameSync(`${o.file}.new`, o.file);
    };
    const text = fs.readFileSync(o.file, 'utf8');
    write(text.replace('session_idle: 31m', 'session_idle: 32m'));
    const settings = page.getByRole('region', { name: 'settings' });
    await settings.getByRole('row', { name: /^session_idle 31m0s line 1$/ }).waitFor();
    await settings.getByRole('row', { name: /^drain 10s default$/ }).waitFor({ state: 'detached' });
    await page.getByLabel('Without defaults').uncheck();
    await settings.getByRole('row', { name: /^drain 10s default$/ }).waitFor();
    await button('Check again').click();
    await page.getByRole('region', { name: 'changes' }).getByRole('row', { name: /session_idle/ }).waitFor();
    await button('Reload now').click();
    await see(/^Reloaded with 1 change$/);
    await settings.getByRole('row', { name: /^session_idle 32m0s line 1$/ }).waitFor();
    await page.getByLabel('Show', { exact: true }).selectOption('odd');
    await settings.getByRole('row', { name: /^stdio\.args 1 entry line \d+$/ }).waitFor();
    await settings.getByRole('row', { name: /^breaker\.failures 5 default$/ }).waitFor();
    write(`${text}\nnonsense: true\n`);
    meant.push(/status of 422/);
    await button('Check again').click();
    await page.getByRole('alert').getByText(/nonsense/).waitFor();
    write(text.replace('session_idle: 31m', 'session_idle: 32m'));
  });
}
