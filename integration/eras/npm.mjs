// Checks of the npm reference server's tools that ask the client, which is
// legacy, for a client of any revision. Each tool is called once.

import { equal, fail } from '../peer.mjs';

const outcome = () => 'full';

/** asked calls a tool and checks that it put one question, and showed the answer. */
async function asked(p, tool, args, method, answer, ...shown) {
  const from = p.asked.length;
  p.answers[method] = () => answer;
  const text = await p.text(tool, args);
  for (const part of shown) if (!text.includes(part)) fail(`${tool}:`, text, 'want in it', part);
  // The server asks for the roots by itself when it is initialized, which goes
  // with whatever call comes first.
  const put = p.asked.slice(from).filter(([m]) => m !== 'roots/list');
  equal(put.map(([m]) => m), [method], 'questions');
  return put[0][1];
}

export const checks = {
  elicitation: {
    outcome,
    async run(p) {
      const answer = { action: 'accept', content: { name: 'Zoë', check: true, integer: 7 } };
      const q = await asked(p, 'trigger-elicitation-request', {}, 'elicitation/create', answer, 'Zoë', '7');
      equal(q.requestedSchema.required, ['name'], 'required properties');
    },
  },
  sampling: {
    outcome,
    async run(p) {
      const answer = { role: 'assistant', model: 'of the client', content: { type: 'text', text: 'a poem' } };
      const args = { prompt: 'tell ⟨me⟩', maxTokens: 77 };
      const q = await asked(p, 'trigger-sampling-request', args, 'sampling/createMessage', answer, 'a poem', 'of the client');
      equal(q.maxTokens, 77, 'maxTokens');
    },
  },
  roots: {
    outcome,
    async run(p) {
      // A legacy server may have asked before the tool is called.
      const text = await p.text('get-roots-list', {});
      if (!text.includes('file:///era/home')) fail('roots:', text);
    },
  },
};
