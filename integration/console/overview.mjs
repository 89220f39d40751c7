// The steps of browser.mjs about the overview and the frame around all pages.
import assert from 'node:assert/strict';

/**
 * @param {object} with_
 * @param {(name: string, run: () => Promise<void>) => Promise<void>} with_.step
 * @param {import('playwright-core').Page} with_.page
 * @param {string} with_.base the bridge
 * @param {(name: string) => import('playwright-core').Locator} with_.button
 * @param {RegExp[]} with_.meant complaints of the browser that a step means to cause
 */
export async function overview({ step, page, base, button, meant }) {
  const rows = page.locator('table.rows tbody tr');

  await step('the overview: the state, filter and order of the servers', async () => {
    await page.goto(`${base}/ui/`);
    await page.locator('.summary', { hasText: /^1 of 4 servers failing: broken\s*since / }).waitFor();
    assert.equal(await page.title(), 'Overview · mcp-bridge');
    assert.match(await rows.first().innerText(), /^broken/, 'failing ones come first');
    await button('Server').click();
    await page.getByRole('columnheader', { name: 'Server', exact: false }).first().waitFor();
    await button('Server ↑').click();
    await button('Server ↓').waitFor();
    assert.match(await rows.first().innerText(), /^odd/);
    await page.getByLabel('Filter').fill('state:failing');
    await page.locator('h2', { hasText: '1 of 4' }).waitFor();
    await rows.locator('summary').click();
    await rows.getByText(/no-such-program.*in env/s).waitFor();
    assert.match(page.url(), /sort=-name&filter=state%3Afailing/, 'a view can be sent to somebody');
  });

  await step('search goes to a server by some letters', async () => {
    await page.keyboard.press('Control+k');
    await page.keyboard.type('mod');
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('ArrowUp');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'modern', exact: true }).waitFor();
    assert.equal(await page.title(), 'modern · mcp-bridge');
    await button('Search').click();
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
  });

  await step('the overview: who calls what, and the last minutes', async () => {
    await page.goto(`${base}/ui/#/try/odd/tools/markup`);
    await page.locator('section.item').waitFor();
    await page.goto(`${base}/ui/`);
    const box = page.getByRole('link', { name: /^Server odd: / });
    await box.focus();
    await page.locator('.readout', { hasText: /^Server odd: / }).waitFor();
    await page.locator('.topology .edge.lit').first().waitFor({ state: 'attached' }); // a line without a height counts as hidden
    await page.locator('.topology a.failing', { hasText: 'broken' }).waitFor();
    const chart = page.getByRole('slider', { name: 'Calls in flight' });
    await chart.focus();
    await page.keyboard.press('ArrowLeft');
    await chart.and(page.locator('[aria-valuetext*=": In flight "]')).waitFor();
    assert.ok(await chart.evaluate((e) => Number(e.ariaValueNow) < Number(e.ariaValueMax)), 'the last but one'); // a new one may have come
    assert.match(await chart.getAttribute('aria-valuetext') ?? '', /: In flight /);
    await page.keyboard.press('Enter');
    await box.click();
    await page.getByRole('heading', { name: 'odd', exact: true }).waitFor();
    await page.goto(`${base}/ui/`);
    await page.setViewportSize({ width: 360, height: 740 });
    await page.locator('topology-view .lists a', { hasText: 'odd' }).first().waitFor();
    await page.setViewportSize({ width: 1200, height: 800 });
    await page.locator('.topology').waitFor();
  });

  await step('a bridge that does not answer is told at once, and when it does again', async () => {
    meant.push(/ERR_INTERNET_DISCONNECTED|ERR_NETWORK_CHANGED/);
    await page.goto(`${base}/ui/`);
    await page.locator('.side .state', { hasText: 'Live' }).waitFor();
    await page.getByLabel('Filter').focus();
    await page.context().setOffline(true);
    await page.getByRole('alert').getByText(/^The bridge has not answered since \d\d:\d\d:\d\d\. Retrying…$/).waitFor();
    assert.ok(await page.locator('main').evaluate((m) => m.inert), 'nothing can be pressed');
    await page.context().setOffline(false);
    await page.locator('.lost').waitFor({ state: 'detached' });
    await page.locator('.side .state', { hasText: 'Live' }).waitFor();
    await page.waitForFunction(() => document.activeElement?.id === 'filter'); // the focus is back
  });

  await step('ten more windows at once: some have a stream, all are up to date', async () => {
    await page.goto(`${base}/ui/`);
    await page.locator('.side .state', { hasText: 'Live' }).waitFor();
    /** @type {import('playwright-core').Page[]} */
    const all = [];
    for (let i = 0; i < 10; i++) {
      const one = await page.context().newPage();
      await one.goto(`${base}/ui/`);
      all.push(one);
    }
    const live = async () => {
      const states = await Promise.all(all.map((one) => one.locator('.side .state').innerText()));
      return all.filter((_, i) => states[i] === 'Live');
    };
    /** @param {number} n */
    const lives = async (n) => { while ((await live()).length !== n) await new Promise((done) => setTimeout(done, 100)); };
    await lives(2); // the first window has a stream too
    const order = (/** @type {string} */ to) => page.evaluate((address) => fetch(address, { method: 'POST', body: '{}', headers: { 'Content-Type': 'application/json', 'Bridge-Console': '1' } }).then((r) => r.status), `${base}/ui/api/v1/servers/modern/${to}`);
    assert.equal(await order('drain'), 200);
    for (const one of all) await one.locator('table.rows tbody tr', { hasText: /^modern.*Drained/s }).waitFor();
    assert.equal(await order('resume'), 200);
    for (const one of await live()) {
      await one.close();
      all.splice(all.indexOf(one), 1);
    }
    await lives(2); // others take their places
    for (const one of all) await one.close();
  });

  await step('a thousand servers', async () => {
    const names = Array.from({ length: 1000 }, (_, i) => `server-${i}`);
    const to = Date.now();
    const points = 180;
    const line = Array.from({ length: points }, (_, i) => i % 7);
    const answers = /** @type {Record<string, any>} */ ({
      status: { ready: true, bridge: { sessions: 1, calls: 1 }, process: { calls_total: 1 }, config: {}, servers: names.map((name, i) => ({ name, state: i === 500 ? 'failing' : 'ready', transport: 'stdio', calls: 0, sessions: 0, connections: 0, circuit_breaker: 'closed' })) },
      series: { step: 5000, to, points, marks: [], total: { calls: line, errors: line, tool_errors: line, p50: line, p95: line, p99: line, in_flight: line, memory: line }, servers: names.map((server, i) => (i < 100 ? { server, calls: line, errors: line, tool_errors: line } : { server })) },
      topology: { clients: [], addresses: [{ path: '/mcp', rate: 1 }], edges: names.map((server, i) => ({ address: '/mcp', server, rate: i < 100 ? 1 : 0 })), servers: names.map((server, i) => ({ server, rate: i < 100 ? 1 : 0, error_rate: 0 })) },
    });
    meant.push(/status of 503/);
    const other = await page.context().newPage();
    await other.route(/\/api\/v1\/(events|status|series|topology)/, (route) => {
      const answer = answers[/v1\/(\w+)/.exec(route.request().url())?.[1] ?? ''];
      return answer ? route.fulfill({ json: answer }) : route.fulfill({ status: 503, json: {} });
    });
    await other.goto(`${base}/ui/`);
    await other.locator('table.rows tbody tr').nth(99).waitFor();
    await other.locator('.topology a', { hasText: '988 more' }).waitFor();
    assert.match(await other.locator('table.rows tbody tr').first().innerText(), /^server-500/);
    const took = await other.evaluate(async () => {
      const page = /** @type {any} */ (document.querySelector('page-overview'));
      const all = [];
      for (let i = 0; i < 20; i++) {
        const status = page.store.state.status;
        page.store.state.status = { ...status, servers: status.servers.map((/** @type {any} */ s, /** @type {number} */ n) => (n % 20 === i ? { ...s, calls: s.calls + 1 } : s)) };
        const began = performance.now();
        page.update();
        await Promise.resolve();
        document.body.getBoundingClientRect();
        all.push(performance.now() - began);
      }
      return all.sort((a, b) => a - b);
    });
    console.log(`# 1,000 servers, 50 of them changed: an update takes ${took[10].toFixed(1)} ms, at most ${took[19].toFixed(1)} ms`);
    await other.close();
  });
}
