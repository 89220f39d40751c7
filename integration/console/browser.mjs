// Drives the console in a real Chromium, over the DevTools protocol.
//
//	node browser.mjs OPTIONS     OPTIONS is JSON: see below
//
// Each step is a line of output, "ok NAME" or "not ok NAME: why". A step waits for what is to be seen, never
// for time to pass.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { chromium } from 'playwright-core';
import { overview } from './overview.mjs';
import { pages } from './pages.mjs';

/**
 * base: the bridge without access rules; locked: one with them, with key; chromium: the program; file: the
 * configuration of base, which a step edits; only: an expression for the names of the steps to take, empty for all.
 */
const o = JSON.parse(process.argv[2]);
const axe = fs.readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
// A wait ends long before the test's deadline, so that what failed is printed.
const patience = Math.min(Number(process.env.BRIDGE_TEST_DEADLINE_MS ?? 120_000), 120_000);
process.on('unhandledRejection', () => {}); // a wait whose trigger failed: its step has failed already

let failures = 0;
/** @param {string} name @param {() => Promise<void>} run */
async function step(name, run) {
  if (o.only && !new RegExp(o.only).test(name)) return;
  if (failures > 3) return; // each may have waited for long
  const began = Date.now();
  try {
    await run();
    console.log(`ok ${name} (${Date.now() - began} ms)`);
  } catch (e) {
    failures++;
    console.log(`not ok ${name}: ${String(e.stack ?? e).replace(/\n/g, '\n    ')}`);
    if (o.failed) await page.screenshot({ path: path.join(o.failed, `${name.replace(/\W+/g, '-')}.png`) }).catch(() => {});
    await context.setOffline(false);
    await page.setViewportSize({ width: 1200, height: 800 });
  }
}

const browser = await chromium.launch({ executablePath: o.chromium, args: ['--no-sandbox', '--headless=new', '--disable-dev-shm-usage', '--disable-gpu', '--process-per-site'] });
const context = await browser.newContext({ viewport: { width: 1200, height: 800 }, colorScheme: 'light', reducedMotion: 'reduce', timezoneId: 'UTC', locale: 'en-GB' });
context.setDefaultTimeout(patience);
/** What the browser complained of. @type {string[]} */
const complaints = [];
/** Complaints that a step means to cause. @type {RegExp[]} */
const meant = [];
let page = await open(context);

/** @param {import('playwright-core').BrowserContext} context */
async function open(context) {
  const p = await context.newPage();
  await p.addInitScript(() => addEventListener('securitypolicyviolation', (e) => console.error(`CSP: ${e.violatedDirective} ${e.blockedURI}`)));
  const note = (text) => { if (!meant.some((m) => m.test(text))) complaints.push(text); };
  p.on('console', (m) => { if (m.type() === 'error' || m.type() === 'warning') note(`${m.type()}: ${m.text()} ${m.location().url ?? ''}`); });
  p.on('pageerror', (e) => note(`fault: ${e.stack}`));
  p.on('request', (r) => { if (!r.url().startsWith(o.base) && !r.url().startsWith(o.locked) && !r.url().startsWith('blob:')) note(`request to ${r.url()}`); });
  return p;
}

const see = (text, options = {}) => page.getByText(text, options).first().waitFor();
const heading = (name) => page.getByRole('heading', { name, exact: true }).first().waitFor();
/** The control of a field of a form. @param {string} name @param {any} [within] */
const field = (name, within = page) => within.locator('div.field').filter({ has: page.locator('label', { hasText: new RegExp(`^${name}`) }) }).locator('input, textarea, select').first();
/** Says yes to what the page asks before it acts. @param {string} name of the button */
const agree = (name) => page.getByRole('dialog').getByRole('button', { name, exact: true }).click();
const button = (name) => page.getByRole('button', { name, exact: true });
/** @param {string} hash */
async function go(hash) {
  await page.goto(`${o.base}/ui/${hash}`);
}

/** Opens an entry of a server in Try. @param {string} server @param {string} tab @param {string} name @param {string} [revision] */
async function item(server, tab, name, revision) {
  await go(`#/try/${server}/${tab}/${encodeURIComponent(name)}${revision ? `?revision=${revision}` : ''}`);
  await page.locator('section.item', { hasText: name }).waitFor();
  await page.locator('p[role=status]', { hasText: revision ?? '2026-07-28' }).waitFor();
}

/** Waits for the verdict of a call. @param {string|RegExp} verdict @param {string|RegExp} [shown] */
async function verdict(verdict, shown) {
  await page.locator('.verdict', { hasText: verdict }).waitFor();
  if (shown) await page.locator('.outcome', { hasText: shown }).waitFor();
}

/** What axe has against the page, of some weight. @param {string[]} [rules] only these */
async function audit(rules) {
  if (!(await page.evaluate(() => 'axe' in window))) await page.evaluate(axe);
  const found = await page.evaluate((rules) => /** @type {any} */ (window).axe.run(document, { resultTypes: ['violations'], ...(rules ? { runOnly: rules } : {}) }), rules);
  return found.violations.filter((v) => v.impact === 'serious' || v.impact === 'critical').map((v) => `${v.id}: ${v.nodes.slice(0, 3).map((n) => `${n.html.slice(0, 160)} (${n.failureSummary?.replace(/\s+/g, ' ').slice(0, 200)})`).join('; ')}`);
}

await step('overview', async () => {
  await go('');
  await heading('Overview');
  for (const name of ['legacy', 'modern', 'odd', 'broken']) await page.getByRole('link', { name, exact: true }).first().waitFor();
  await page.locator('.side .state', { hasText: 'Live' }).waitFor();
});

await overview({ step, page, base: o.base, button, meant });

await step('a server that does not work is shown as failing', async () => {
  await go('');
  await page.getByRole('region', { name: 'Servers' }).getByRole('row', { name: /broken/ }).getByText(/failing/i).waitFor();
});

for (const [server, revision] of [['legacy', '2025-11-25'], ['modern', '2026-07-28'], ['legacy', '2026-07-28'], ['modern', '2025-11-25']]) {
  const pair = `client ${revision}, ${server} server`;
  await step(`${pair}: a call`, async () => {
    await item(server, 'tools', 'text', revision);
    await field('message').fill('hello <b>you</b>');
    await button('Call').click();
    await verdict('OK', 'hello <b>you</b>');
    await item(server, 'tools', 'structured', revision);
    await button('Call').click();
    await verdict('output matches its schema ✔', '21.5');
  });
  await step(`${pair}: progress, failure, cancel`, async () => {
    await item(server, 'tools', 'steps', revision);
    await field('n').fill('3');
    await button('Call').click();
    await verdict('3 progress', '3 steps');
    await item(server, 'tools', 'failing', revision);
    await button('Call').click();
    await verdict('Tool returned an error', 'it went wrong');
    await item(server, 'tools', 'wait', revision);
    await button('Call').click();
    await button('Cancel').click();
    await verdict('Failed', 'Cancelled');
  });
  await step(`${pair}: the server asks`, async () => {
    await item(server, 'tools', 'form', revision);
    await button('Call').click();
    const dialog = page.getByRole('dialog');
    await dialog.getByText('Who are you?').waitFor();
    await dialog.getByRole('button', { name: 'Submit' }).click();
    await dialog.getByText('▲ is required').waitFor();
    await field('Name', dialog).fill('Kim');
    await field('age', dialog).fill('200');
    await dialog.getByText('must be at most 150').waitFor();
    await field('age', dialog).fill('41');
    await dialog.getByRole('button', { name: 'Submit' }).click();
    await verdict('OK', /"name":"Kim"/);
    await button('Call').click();
    await dialog.getByRole('button', { name: 'Decline' }).click();
    await verdict('OK', 'decline');
    await item(server, 'tools', 'url', revision);
    await button('Call').click();
    await dialog.getByText('https://example.com/agree?a=1&b=2').waitFor();
    await dialog.getByRole('button', { name: 'Agree' }).click();
    await verdict('OK', 'accept');
    await item(server, 'tools', 'rounds', revision);
    await button('Call').click();
    for (const [prompt, said] of [['one', 'first'], ['after first', 'second']]) {
      await dialog.getByText(prompt, { exact: true }).waitFor();
      await field('Your answer', dialog).fill(said);
      await dialog.getByRole('button', { name: 'Submit' }).click();
    }
    await verdict('OK', 'second');
    await item(server, 'tools', 'sample', revision);
    await button('Call').click();
    await dialog.getByText('write a completion').waitFor();
    await page.keyboard.press('Escape');
    await page.locator('.verdict').waitFor();
    await item(server, 'tools', 'choices', revision);
    await button('Call').click();
    await dialog.getByLabel('red').check();
    await dialog.getByLabel('blue').check();
    await dialog.getByRole('button', { name: 'Submit' }).click();
    await verdict('OK', /\["red","blue"\]/);
  });
  await step(`${pair}: prompts, resources, templates`, async () => {
    await item(server, 'prompts', 'greet', revision);
    await field('how').pressSequentially('c');
    await page.locator('datalist option[value="calmly"]').waitFor({ state: 'attached' });
    await field('who').fill('Kim');
    await button('Get').click();
    await verdict('OK', 'c, Kim!');
    await item(server, 'resources', 'era://blob/1', revision);
    await button('Read').click();
    await page.locator('.outcome img').waitFor();
    await item(server, 'templates', 'era://text/{n}', revision);
    await field('n').fill('a b');
    await page.getByText('era://text/a%20b').first().waitFor();
    await button('Read').click();
    await verdict('OK', 'text a%20b');
  });
}

await step('a resource that changes', async () => {
  for (const [server, revision] of [['legacy', '2025-11-25'], ['modern', '2026-07-28']]) {
    await item(server, 'resources', 'era://text/1', revision);
    await button('Subscribe').click();
    await button('Unsubscribe').waitFor();
    await page.locator('nav[aria-label="What the server has"] .tab', { hasText: 'tools' }).click();
    await page.locator('.entries a', { hasText: /^touch/ }).click();
    await field('uri').fill('era://text/1');
    await button('Call').click();
    await verdict('OK', 'touched');
    await page.locator('.tab', { hasText: 'resources' }).click();
    await page.getByText('● Changed').waitFor();
  }
});

await step('capabilities can be switched off', async () => {
  await item('modern', 'tools', 'form');
  await page.getByText('Client options').click();
  await page.getByLabel('elicitation').uncheck();
  await page.locator('section.item').waitFor();
  meant.push(/status of 400/);
  await button('Call').click();
  await verdict(/Error -32021/);
});

await step('what servers say is text', async () => {
  await item('odd', 'tools', 'markup', '2025-11-25');
  await button('Call').click();
  await verdict('OK', '<img src=x onerror="window.hurt=1">');
  assert.equal(await page.evaluate(() => /** @type {any} */ (window).hurt), undefined);
  assert.deepEqual(await page.locator('.outcome a').evaluateAll((all) => all.map((a) => a.getAttribute('href'))), ['https://example.com/a?b=1']);
  assert.equal(await page.locator('.outcome a').first().getAttribute('rel'), 'noreferrer noopener');
  await item('odd', 'tools', 'long', '2025-11-25');
  await button('Call').click();
  await button('show all 100000 characters').click();
  await page.waitForFunction(() => document.querySelector('.outcome pre')?.textContent?.length === 100000);
});

await step('a destructive tool asks once', async () => {
  await item('odd', 'tools', 'erase', '2025-11-25');
  await see('Erases⟦U+202E⟧ a file');
  await field('path').fill('notes.txt');
  await button('Call').click();
  await page.getByRole('dialog').getByRole('button', { name: 'Cancel' }).click();
  assert.equal(await page.locator('.verdict').count(), 0);
  await button('Call').click();
  await page.getByRole('dialog').getByRole('button', { name: 'Call it' }).click();
  await verdict('OK', 'erased notes.txt');
  await button('Call').click();
  await verdict('OK', 'erased notes.txt');
  assert.equal(await page.getByRole('dialog').count(), 0);
});

await step('a form of every shape sends what was touched, exactly', async () => {
  await item('odd', 'tools', 'shapes', '2025-11-25');
  await field('name').fill('n');
  await field('big').fill('12345678901234567890');
  await field('maybe').fill('1.50');
  await field('colour').selectOption('green');
  await page.evaluate(() => scrollTo(0, 0));
  await button('Add item to rows').click();
  await button('Add item to item 1').click();
  await page.locator('div.field', { has: page.locator('label', { hasText: /^item 1/ }) }).locator('input').last().fill('7');
  await button('Add tree').click();
  await button('Add next').click();
  await page.locator('div.field', { has: page.locator('label', { hasText: /^leaf/ }) }).locator('textarea').last().fill('l');
  await page.getByLabel('by bytes').check();
  await field('bytes').fill('3');
  await button('JSON').first().click();
  const want = { name: 'n', big: '#', maybe: '#', colour: 'green', rows: [[7]], tree: { next: { leaf: 'l' } }, either: { bytes: 3 } };
  const text = await page.getByLabel('Arguments', { exact: true }).inputValue();
  assert.deepEqual(JSON.parse(text.replace('12345678901234567890', '"#"').replace('1.50', '"#"')), want);
  await page.getByLabel('Arguments', { exact: true }).fill(`${text.slice(0, -1)}, "extra": `);
  await see('▲ This is no JSON yet.');
  assert.ok(await button('Form').isDisabled());
  await page.getByLabel('Arguments', { exact: true }).fill(`${text.trimEnd().slice(0, -1)}, "extra": 1.0}`);
  await button('Form').click();
  await field('extra').waitFor();
  await button('Call').click();
  await verdict('OK', '"big":12345678901234567890');
  const sent = await page.locator('.outcome pre').first().textContent();
  assert.match(sent ?? '', /"maybe":1\.50/);
  assert.match(sent ?? '', /"extra":1\.0/);
  assert.doesNotMatch(sent ?? '', /left|null/);
  await page.locator('.history li', { hasText: /tools\/call shapes.*OK/ }).waitFor();
});

await pages({ step, o, open, context, page, see, heading, field, agree, button, go, item, verdict, meant });

await step('all servers as one', async () => {
  await go('#/try/*');
  await page.getByRole('link', { name: /odd__erase/ }).waitFor();
});

await step('the bridge is drained, and resumed', async () => {
  await go('#/overview');
  await button('Actions').click();
  await button('Drain bridge').click();
  await agree('Drain bridge');
  await page.locator('.summary', { hasText: 'drained by an operator' }).waitFor();
  await button('Resume').click();
  await button('Actions').waitFor();
  await page.locator('.summary', { hasText: '1 of 4 servers failing: broken' }).waitFor();
});

await step('a tool that runs as a task', async () => {
  await item('odd', 'tools', 'slow', '2025-11-25');
  assert.ok(await page.getByLabel('As a task').isChecked());
  await field('n').fill('3');
  await button('Call').click();
  await page.getByText(/Task task-\d+: working digging/).waitFor();
  await verdict(/OK.*task task-/, 'slowly 3');
  await field('n').fill('0');
  await button('Call').click();
  await page.getByText(/Task task-\d+: working digging/).waitFor();
  await button('Cancel').click();
  await verdict('Failed', 'Cancelled');
  await page.locator('.history li', { hasText: 'tasks/cancel' }).waitFor();
});

await step('a call is saved in the browser, and found again', async () => {
  await item('odd', 'tools', 'erase', '2025-11-25');
  await field('path').fill('saved.txt');
  await button('Save…').click();
  await page.getByLabel('Name', { exact: true }).fill('erase <b>it</b>');
  await page.keyboard.press('Enter');
  await page.locator('summary', { hasText: /^Saved calls 1/ }).click();
  await go('#/try/odd');
  await page.reload();
  await page.locator('summary', { hasText: /^Saved calls 1/ }).click();
  await page.getByRole('link', { name: 'erase <b>it</b>' }).click();
  await page.locator('section.item', { hasText: 'erase' }).waitFor();
  assert.equal(await field('path').inputValue(), 'saved.txt');
  await page.getByText('As a command').click();
  await see(/mcp-bridge call '.*\/odd\/mcp' 'erase' --json '\{"path":"saved.txt"\}'/);
  await page.locator('summary', { hasText: /^Saved calls 1/ }).click();
  const [file] = await Promise.all([page.waitForEvent('download'), page.locator('nav').getByRole('button', { name: 'Export' }).click()]);
  const saves = await file.path();
  assert.deepEqual(JSON.parse(fs.readFileSync(saves, 'utf8')).calls, [{ name: 'erase <b>it</b>', server: 'odd', tool: 'erase', revision: '2025-11-25', arguments: { path: 'saved.txt' } }]);
  await button('Remove erase <b>it</b>').click();
  await page.locator('summary', { hasText: /^Saved calls 0/ }).waitFor();
  await page.getByLabel('Import', { exact: true }).setInputFiles({ name: 'calls.json', mimeType: 'application/json', buffer: fs.readFileSync(saves) });
  await see('Imported 1 call of calls.json.');
  await page.locator('summary', { hasText: /^Saved calls 1/ }).waitFor();
  await button('Remove erase <b>it</b>').click();
  await page.locator('summary', { hasText: /^Saved calls 0/ }).waitFor();
});

await step('headers and _meta of the user, and the same by curl', async () => {
  for (const [revision, id] of [['2026-07-28', 'modern'], ['2025-11-25', 'legacy']]) {
    await item(id, 'tools', 'text', revision);
    const headers = page.getByLabel('Custom headers, one per line');
    if (!(await headers.isVisible())) await page.getByText('Client options').click();
    await headers.fill('Cookie: a=b');
    await headers.blur();
    await see('▲ The page or the browser sets Cookie: leave it out.');
    await page.locator('section.item').evaluate((e) => { e.dataset.former = 'yes'; });
    await headers.fill(`X-Mine: it's ${id}`);
    await headers.blur();
    await see('1 custom header');
    await page.locator('section.item:not([data-former])').waitFor(); // it is another client
    await field('message').fill(`it's "${id}" $HOME`);
    await page.getByText('_meta', { exact: true }).click();
    await page.getByLabel('_meta, as JSON').fill('{"example.com/own": ');
    await see('▲ This is no JSON yet.');
    assert.ok(await button('Call').isDisabled());
    await page.getByLabel('_meta, as JSON').fill('{"example.com/own": "mine"}');
    const sent = page.waitForRequest((r) => r.method() === 'POST' && /tools\/call/.test(r.postData() ?? ''));
    await button('Call').click();
    await verdict('OK', `it's "${id}" $HOME`);
    const request = await sent;
    assert.equal((await request.allHeaders())['x-mine'], `it's ${id}`);
    assert.equal(JSON.parse(request.postData() ?? '').params._meta['example.com/own'], 'mine');
    await page.getByText('As a command').click();
    const command = await page.locator('pre.curl').textContent();
    assert.match(command ?? '', /-H 'X-Mine: it'\\''s/);
    const said = execFileSync('sh', ['-c', command ?? ''], { encoding: 'utf8', timeout: patience });
    assert.match(said, /"result"/);
    assert.ok(said.includes(JSON.stringify(`it's "${id}" $HOME`).slice(1, -1)), said);
  }
});

await step('by keyboard alone', async () => {
  await go('#/overview');
  await page.reload(); // what was agreed to is forgotten
  await heading('Overview');
  await page.getByRole('link', { name: 'odd', exact: true }).waitFor();
  /** Presses a key until what has the focus says something. @param {string} key @param {RegExp} name */
  const until = async (key, name) => {
    for (let i = 0; i < 120; i++) {
      const focused = await page.evaluate(() => { const e = /** @type {any} */ (document.activeElement); return e ? `${e.getAttribute('aria-label') ?? ''} ${e.labels?.[0]?.textContent ?? ''} ${e.textContent ?? ''}`.trim().slice(0, 80) : ''; });
      if (name.test(focused)) return;
      await page.keyboard.press(key);
    }
    throw new Error(`the focus never came to ${name}`);
  };
  await page.keyboard.press('Control+k');
  await page.keyboard.type('try odd');
  await page.keyboard.press('Enter');
  await page.getByRole('link', { name: /erase/ }).waitFor();
  await until('Tab', /^erase/);
  await page.keyboard.press('Enter');
  await page.locator('section.item').waitFor();
  await until('Tab', /^path/);
  await page.keyboard.type('by-hand.txt');
  await page.keyboard.press('Control+Enter');
  await page.getByRole('dialog').waitFor();
  await until('Tab', /^Call it/);
  await page.keyboard.press('Enter');
  await verdict('OK', 'erased by-hand.txt');
  assert.match(await page.evaluate(() => document.activeElement?.tagName ?? ''), /TEXTAREA|INPUT/, 'the focus is back in the field');
});

await step('each page without serious findings of axe, light and dark, and from 360 px', async () => {
  /** @type {string[]} */
  const found = [];
  await page.goto(`${o.base}/ui/`);
  for (const [name, hash, ready] of [
    ['overview', '#/overview', 'h1'], ['server', '#/servers/legacy', 'dl.facts'], ['calls', '#/calls', '.long tbody tr'], ['sessions', '#/sessions', '.summary'], ['try', '#/try/odd/tools/shapes?revision=2025-11-25', 'section.item'], ['traffic', '#/traffic', '.empty'], ['log', '#/log', '.log li'], ['config', '#/config', 'h1'],
  ]) {
    await page.evaluate((h) => { location.hash = h; }, hash);
    await page.locator(ready).first().waitFor();
    for (const colorScheme of ['light', 'dark']) {
      await page.emulateMedia({ colorScheme });
      found.push(...(await audit(colorScheme === 'dark' ? ['color-contrast'] : undefined)).map((f) => `${name}, ${colorScheme}: ${f}`));
    }
    await page.emulateMedia({ colorScheme: 'light' });
    await page.setViewportSize({ width: 360, height: 740 });
    const wide = await page.evaluate(() => document.scrollingElement.scrollWidth);
    if (wide > 360) found.push(`${name}: ${wide} px wide at 360 px`);
    await page.setViewportSize({ width: 1200, height: 800 });
  }
  assert.deepEqual(found, []);
});

await step('colours by hand', async () => {
  await go('#/overview');
  const colours = page.getByRole('button', { name: /^Colours/ });
  await colours.click();
  await colours.click();
  const back = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  assert.equal(await back(), 'rgb(15, 17, 21)');
  await page.reload();
  await heading('Overview');
  assert.equal(await back(), 'rgb(15, 17, 21)', 'it is remembered');
});

await step('signing in and out', async () => {
  meant.push(/status of 401/);
  await page.goto(`${o.locked}/ui/`);
  await page.getByLabel('key').fill('wrong');
  await button('Sign in').click();
  await see('Unknown key');
  assert.deepEqual(await audit(), []);
  await page.getByLabel('key').fill(o.key);
  await page.keyboard.press('Enter');
  await heading('Overview');
  await page.locator('.side .state', { hasText: 'Live' }).waitFor();
  await page.goto(`${o.locked}/ui/#/try/modern/tools/text`);
  await field('message').fill('signed in');
  await button('Call').click();
  await verdict('OK', 'signed in');
  await page.goto(`${o.locked}/ui/#/traffic`);
  await Promise.all([page.waitForResponse(/events\?.*payloads=true/), page.getByLabel('Show payloads').check()]);
  const other = await open(context);
  await other.goto(`${o.locked}/ui/#/try/odd/tools/markup?revision=2025-11-25`);
  await other.locator('section.item').waitFor();
  await other.getByRole('button', { name: 'Call', exact: true }).click();
  await other.locator('.verdict').waitFor();
  await other.close();
  await page.locator('.long tr', { hasText: /tools\/call\s+markup/ }).first().click();
  await page.locator('.panel pre', { hasText: '<script>window.hurt=1</script>' }).first().waitFor();
  assert.equal(await page.evaluate(() => /** @type {any} */ (window).hurt), undefined);
  assert.deepEqual(await audit(), []);
  await button('Sign out').click();
  await page.getByLabel('key').waitFor();
  await page.reload();
  await page.getByLabel('key').waitFor();
});

await step('no fault, no report of the policy, no request elsewhere', async () => assert.deepEqual(complaints, []));

await browser.close();
process.exitCode = failures ? 1 : 0;
