// Steps of browser.mjs for single pages: calls, a server, Try, traffic, the log and the configuration.
import assert from 'node:assert/strict';

/** @param {any} t what steps use, as browser.mjs has it */
export async function pages({ step, o, open, context, see, heading, field, agree, button, go, item, verdict, shot, meant, page: now }) {
  const page = now();
  const rows = () => page.locator('.rows tbody tr:not([aria-hidden])');

  /** Calls a tool of a server in a tab of its own. @param {string} server @param {string} tool */
  async function callElsewhere(server, tool) {
    const other = await open(context);
    await other.goto(`${o.base}/ui/#/try/${server}/tools/${tool}?revision=2025-11-25`);
    await other.locator('section.item').waitFor();
    await other.getByRole('button', { name: 'call', exact: true }).click();
    await other.locator('.verdict').waitFor();
    return other;
  }

  await step('calls', async () => {
    await go('#/calls');
    await heading('Calls');
    await (await callElsewhere('odd', 'scribble')).close(); // calls are watched since somebody looks
    for (const head of ['Time', 'Client', 'Server', 'Tool', 'Duration', 'Outcome']) await page.getByRole('columnheader', { name: head, exact: true }).waitFor();
    await rows().filter({ hasText: 'scribble' }).first().getByText('OK').waitFor();
    await page.getByLabel('filter').fill('server:legacy status:tool_error');
    await rows().filter({ hasText: 'scribble' }).first().waitFor({ state: 'detached' });
    await page.getByLabel('filter').fill('scribble server:odd');
    await page.waitForFunction(() => location.hash.includes('scribble'));
    await page.reload();
    await page.locator('.summary', { hasText: /0 active · \d+ finished since/ }).waitFor();
    const place = await page.locator('.rows').boundingBox();
    await rows().filter({ hasText: 'scribble' }).first().click();
    const panel = page.getByRole('complementary', { name: 'the chosen call' });
    await panel.getByText('Received', { exact: true }).first().waitFor();
    assert.equal((await page.locator('.rows').boundingBox())?.y, place?.y, 'the panel does not move the list');
    await shot('calls');
    await page.keyboard.press('Escape');
    await panel.waitFor({ state: 'detached' });
    await page.getByLabel('filter').fill('no-such-call');
    await heading('No call matches the filter');
    await button('Clear filter').click();
    await rows().first().waitFor();
  });

  await step('rows by keyboard, and the columns that a narrow window has', async () => {
    await (await callElsewhere('odd', 'scribble')).close();
    await rows().nth(1).getByRole('button').waitFor();
    await rows().first().getByRole('button').focus();
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => /** @type {any} */ (document.activeElement)?.closest('tr') === document.querySelector('.rows tr.chosen'));
    await page.keyboard.press('Escape');
    await page.setViewportSize({ width: 360, height: 740 });
    assert.deepEqual(await page.locator('.rows th').evaluateAll((all) => all.filter((e) => getComputedStyle(e).display !== 'none').map((e) => e.textContent)), ['Time', 'Tool', 'Duration', 'Outcome']);
    await page.setViewportSize({ width: 1200, height: 800 });
  });

  await step('the messages of a call, of both sides', async () => {
    await go('#/calls?filter=name:markup');
    await page.getByLabel('Record messages').check();
    await page.locator('.side .state', { hasText: 'Live' }).waitFor();
    await (await callElsewhere('odd', 'markup')).close();
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
    await button('call').click();
    await agree('call it');
    await verdict('ok', 'erased again.txt');
    await calls.locator('.rows tr', { hasText: 'erase' }).first().click();
    await calls.locator('.panel', { hasText: '"again.txt"' }).waitFor();
    await calls.getByRole('link', { name: 'Replay' }).click();
    await calls.getByRole('dialog').getByRole('button', { name: 'call it' }).click();
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
    await button('call').click();
    await other.locator('.rows tr', { hasText: 'wait' }).first().click();
    await other.getByRole('button', { name: 'Cancel call' }).click();
    await page.locator('.verdict').waitFor();
    await other.close();
  });
}
