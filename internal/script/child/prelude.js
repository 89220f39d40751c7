// What scripts have beside the language. The functions of the host are kept here, where scripts do not reach them, and
// those of the language too, since scripts may replace them.
(mostCalls) => {
  const { call, print, end } = globalThis;
  delete globalThis.call;
  delete globalThis.print;
  delete globalThis.end;
  const { parse, stringify } = JSON;
  const { Error, Promise, Proxy, String, TypeError } = globalThis;
  let calls = 0;
  const waiting = { __proto__: null };

  const callTool = (name, args = {}) => new Promise((resolve, reject) => {
    const text = stringify(args ?? {});
    if (text === undefined || text[0] !== '{') throw new TypeError(`the arguments of ${name} must be an object`);
    if (calls >= mostCalls) throw new Error(`the script makes too many calls: at most ${mostCalls}`);
    calls += 1;
    waiting[calls] = { resolve, reject };
    call(calls, String(name), text);
  });

  const text = (value) => {
    if (typeof value === 'object' && value !== null) {
      try { return stringify(value); } catch { /* it has a circle */ }
    }
    return String(value);
  };
  const log = (...values) => {
    for (let i = 0; i < values.length; i += 1) print((i ? ' ' : '') + text(values[i]));
    print('\n');
  };

  const hidden = { configurable: false, enumerable: false, writable: false };
  Object.defineProperty(globalThis, 'callTool', { ...hidden, value: callTool });
  Object.defineProperty(globalThis, 'console', { ...hidden, value: Object.freeze({ __proto__: null, log, info: log, warn: log, error: log, debug: log }) });
  Object.defineProperty(globalThis, 'tools', { ...hidden, value: new Proxy(Object.freeze({ __proto__: null }), {
    __proto__: null,
    get: (_, name) => (typeof name === 'string' ? (args) => callTool(name, args) : undefined),
    set: () => false,
  }) });

  const said = (e) => {
    if (!(e instanceof Error)) return `the script threw ${String(e)}`;
    return `${String(e)}${e.stack ? `\n${e.stack}` : ''}`;
  };
  const done = (value) => {
    let json;
    try {
      json = stringify(value) ?? 'null';
    } catch (e) {
      end('', `the returned value cannot be written as JSON: ${String(e)}`);
      return;
    }
    end(json, '');
  };
  const failed = (e) => {
    let why;
    try { why = said(e); } catch { why = 'the script threw something that has no text'; }
    end('', why);
  };

  return {
    begin: (script) => {
      (async () => { // then may be replaced: await uses the one of the language
        try { done(await script()); } catch (e) { failed(e); }
      })();
    },
    settle: (id, value, error) => {
      const { resolve, reject } = waiting[id];
      delete waiting[id];
      if (error) reject(new Error(error));
      else resolve(parse(value));
    },
  };
}
