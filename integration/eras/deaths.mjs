// Checks of a client whose instances of the bridge are killed amid its calls. The test
// kills them: where.control is its address.

import { setTimeout as wait } from 'node:timers/promises';
import { brief, deadline, equal, fail } from '../peer.mjs';

const uri = 'era://text/7';
const always = () => 'full';

/** control has the test do something, and returns what it says. */
async function control(p, what) {
  const res = await fetch(`${p.where.control}/${what}?session=${p.session ?? ''}`);
  const said = await res.text();
  if (!res.ok) fail(`${what}:`, said);
  return said;
}

/**
 * amid calls a tool that asks its client something. While it waits, the test is told to kill;
 * if it says "no", the call has not come the way that is wanted, and the next one may.
 */
async function amid(p, key, what) {
  for (let n = 0; n < 20; n++) {
    const tag = `${key}-${n}`;
    let said = 'not asked';
    p.answers['sampling/createMessage'] = async (q) => {
      said = await control(p, what);
      return { role: 'assistant', model: 'm', content: { type: 'text', text: `answer to ${q.messages[0].content.text}` } };
    };
    await control(p, 'mark');
    let got;
    try {
      got = { result: await p.tool('sample', { prompt: tag, key: tag }) };
    } catch (e) {
      got = { code: e.code, data: e.data, message: e.message };
    }
    if (said !== 'no') return { got, tag, said };
    whole(got, tag);
  }
  fail('no call came the way that is wanted');
}

/** whole checks the answer of a call that was to succeed. */
function whole(got, tag) {
  if (!got.result?.content?.[0].text.includes(`answer to ${tag}`)) fail('got', brief(got), `want the answer to ${tag}`);
}

const isUpdate = (m) => m.method === 'notifications/resources/updated' && m.params.uri === uri;

/** hears checks that news of the session comes, by its own stream. */
async function hears(p) {
  const from = p.mark();
  for (const until = Date.now() + deadline; p.seen(from, isUpdate).length === 0; await wait(100)) {
    if (Date.now() > until) fail('no update of', uri);
    await p.text('touch', { uri });
  }
}

/** goesOn checks that the session is as it was: its log level, and what it has subscribed to. */
async function goesOn(p, key) {
  equal(await p.text('text', { message: key }), key, 'the next call');
  const from = p.mark();
  const mine = (m) => m.method === 'notifications/message' && m.params.data.endsWith(key);
  await p.tool('say', { lines: [['info', `quiet ${key}`], ['error', `loud ${key}`]] });
  await p.next(from, 'log line', mine);
  equal(p.seen(from, mine).map((m) => m.params.data), [`loud ${key}`], 'log lines');
  await hears(p);
}

export const checks = {
  begins: {
    outcome: always,
    async run(p, { key }) {
      await p.request('logging/setLevel', { level: 'warning' });
      await p.watch({ uri });
      await goesOn(p, key);
      await control(p, 'kept');
    },
  },
  // The call goes on at the owner. Its answer waits there, and the client comes back for it.
  'the instance that the client is connected to': {
    outcome: always,
    async run(p, { key }) {
      const { got, tag } = await amid(p, key, 'front');
      await control(p, 'restart');
      whole(got, tag);
      equal(await p.counted(tag), { begun: 1, ended: 1, cancelled: 0 }, `runs of ${tag}`);
      await goesOn(p, key);
    },
  },
  // The call is lost: it ends with one error, at once or when the client comes back.
  'the owner': {
    outcome: always,
    async run(p, { key }) {
      const { got, tag } = await amid(p, key, 'owner');
      if (got.data?.bridge !== 'upstream_lost') fail('got', brief(got), 'want upstream_lost');
      equal((await p.counted(tag)).begun, 1, `runs of ${tag}`);
      await control(p, 'restart');
      await goesOn(p, key);
    },
  },
};
