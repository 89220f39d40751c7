// Checks of servers of both eras that are offered as one, for a client of
// either: old is a legacy one, new is a modern one, and each tool is called by
// its prefixed name.

import { deadline, equal, fail } from '../peer.mjs';
import { modern } from './features.mjs';

const outcome = () => 'full';
const servers = ['old', 'new'];

const ran = async (p, server, key) =>
  equal(JSON.parse(await p.text(`${server}__count`, { of: key })), { begun: 1, ended: 1, cancelled: 0 }, `runs of ${key} by ${server}`);

/** listed is the names of all tools, of all pages. */
async function listed(p) {
  const names = [];
  for (let cursor; ; ) {
    const page = await p.raw('tools/list', cursor === undefined ? {} : { cursor });
    names.push(...page.tools.map((t) => t.name));
    if (page.nextCursor === undefined) return names;
    cursor = page.nextCursor;
  }
}

/** asks calls a tool of each server at once: each asks its client one thing, and runs once. */
const asks = (tool, args, method, answer, ...shown) => ({
  outcome,
  async run(p, { key }) {
    p.answers[method] = () => answer;
    const from = p.asked.length;
    await Promise.all(
      servers.map(async (server) => {
        const text = await p.text(`${server}__${tool}`, { ...args, key: key + server });
        for (const part of shown) if (!text.includes(part)) fail(`${server}: ${tool}:`, text, 'want in it', part);
        await ran(p, server, key + server);
      }),
    );
    equal(p.asked.slice(from).map(([m]) => m), [method, method], 'questions');
  },
});

export const checks = {
  tools: {
    outcome,
    async run(p) { // a server that starts slowly joins later
      for (const until = Date.now() + deadline; ; ) {
        const names = await listed(p);
        const missing = servers.filter((server) => !names.includes(`${server}__text`));
        if (missing.length === 0) return;
        if (Date.now() > until) fail('no tools of', missing, 'in', names);
      }
    },
  },
  text: {
    outcome,
    async run(p, { key }) {
      await Promise.all(
        servers.map(async (server) => {
          const text = await p.text(`${server}__text`, { message: `${server} ⟨é⟩`, key });
          if (!text.includes(`${server} ⟨é⟩`)) fail(`${server}:`, text);
        }),
      );
    },
  },
  form: asks('form', {}, 'elicitation/create', { action: 'accept', content: { name: 'Zoë' } }, 'Zoë'),
  sampling: asks('sample', { prompt: 'tell' }, 'sampling/createMessage', { role: 'assistant', model: 'mine', content: { type: 'text', text: 'a poem' } }, 'a poem'),
  resource: {
    outcome,
    async run(p) {
      const { contents } = await p.raw('resources/read', { uri: 'era://text/1' });
      if (!contents[0].text) fail('read:', contents);
    },
  },
  changes: {
    outcome,
    async run(p, { n }) {
      const stop = await p.watch({ lists: true });
      try {
        for (const server of servers) {
          const from = p.mark();
          await p.text(`${server}__change`, { kind: 'tool', name: `era-${server}-${n}`, key: 'none' });
          await p.next(from, `change of ${server}`, (m) => m.method === 'notifications/tools/list_changed');
          const name = `${server}__era-${server}-${n}`;
          if (!(await listed(p)).includes(name)) fail('not listed:', name);
        }
      } finally {
        await stop();
      }
    },
  },
  discover: {
    outcome,
    async run(p) {
      if (p.revision < modern || !p.client) return; // the Go client does not show it
      const got = await p.raw('server/discover', {});
      equal(got.supportedVersions[0], modern, 'first revision');
      if (!got.capabilities.tools?.listChanged) fail('capabilities:', got.capabilities);
    },
  },
};
