// The picture of who calls what: clients, addresses, the bridge, servers.
import { html, View } from './dom.js';
import { users } from './figures.js';
import { named } from './names.js';
import { to } from './page.js';
import { icon } from './parts.js';
import { number, percent } from './text.js';

/**
 * @typedef {object} Node a box of the picture
 * @property {string} id @property {number} column 0 clients, 1 addresses, 2 the bridge, 3 servers
 * @property {string} name @property {string} note below the name @property {string} said the figures in words
 * @property {string} href @property {string} tone failing, cold or empty @property {number} rate calls a second
 */
/** @typedef {{from: string, to: string, rate: number, tone: string, through: Set<string>}} Edge through: the boxes on all ways that it is part of */

const mostClients = 9;
const mostAddresses = 9;
const mostServers = 30;
/** How many servers are drawn at most when there are more than mostServers: failing and busy ones. The others are one box. */
const shownServers = 12;

const transports = /** @type {Record<string, string>} */ ({ streamable: 'Streamable HTTP', sse: 'HTTP+SSE', stateless: 'stateless' });
const many = (/** @type {number} */ n, /** @type {string} */ what) => `${number(n)} ${what}${n === 1 ? '' : 's'}`;
/** Some names in a sentence. @param {string[]} names @param {string} before */
const few = (names, before) => (names.length ? `${before}${names.slice(0, 5).join(', ')}${names.length > 5 ? ` and ${names.length - 5} more` : ''}` : '');
const speed = (/** @type {number} */ rate) => (rate ? `${number(rate)}/s` : 'quiet');

/**
 * The first ones of a list, and the rest.
 * @param {any[]} all @param {number} most @returns {[any[], any[]]}
 */
const cut = (all, most) => (all.length > most ? [all.slice(0, most - 1), all.slice(most - 1)] : [all, []]);
/** @param {any[]} all */
const rateOf = (all) => all.reduce((sum, one) => sum + (one.rate ?? 0), 0);

/**
 * The boxes and lines of the picture.
 * @param {any} t as GET topology answers @param {any[]} states the servers of GET status
 * @returns {{nodes: Node[], edges: Edge[]}}
 */
export function layout(t, states) {
  /** @type {Node[]} */
  const nodes = [];
  /** @type {Map<string, Edge>} */
  const edges = new Map();
  /** @param {string} from @param {string} into @param {number} rate @param {string} [tone] */
  const edge = (from, into, rate, tone) => {
    const key = `${from}\n${into}`;
    const had = edges.get(key);
    edges.set(key, { from, to: into, rate: rate + (had?.rate ?? 0), tone: tone || had?.tone || '', through: new Set([from, into]) });
  };
  const byRate = (/** @type {any[]} */ all) => [...all].sort((a, b) => (b.rate ?? 0) - (a.rate ?? 0));
  const state = new Map(states.map((s) => [s.name, s]));
  const failing = (/** @type {string} */ name) => state.get(name)?.state === 'failing';

  // Servers: the failing ones first, the quiet ones as one box when there are many.
  const rates = new Map(t.servers.map((/** @type {any} */ s) => [s.server, s]));
  const servers = states.map((s) => ({ rate: 0, server: s.name, ...rates.get(s.name), failing: s.state === 'failing' }));
  servers.sort((a, b) => Number(b.failing) - Number(a.failing) || b.rate - a.rate);
  const drawn = servers.length > mostServers ? Math.min(shownServers, servers.filter((s) => s.failing || s.rate).length) : servers.length;
  const [shown, quiet] = [servers.slice(0, drawn), servers.slice(drawn)];
  /** @type {Map<string, string>} the box of each server */
  const box = new Map();
  const order = states.map((s) => s.name);
  const used = t.users ?? users(t);
  const usedBy = (/** @type {string} */ name) => few((used.get(name) ?? []).map((/** @type {any} */ u) => `${named(u.client)} (${speed(u.rate)})`), '. Used by ');
  if (servers.length <= mostServers) shown.sort((a, b) => order.indexOf(a.server) - order.indexOf(b.server));
  for (const s of shown) {
    const id = `s:${s.server}`;
    box.set(s.server, id);
    const tone = s.failing ? 'failing' : s.rate ? (s.error_rate > 0.1 ? 'failing' : '') : 'cold';
    nodes.push({ id, column: 3, name: s.server, rate: s.rate, tone, href: to('servers', s.server), note: s.failing ? 'failing' : [speed(s.rate), s.error_rate ? `${percent(s.error_rate)} failed` : ''].filter(Boolean).join(' · '), said: `Server ${s.server}: ${state.get(s.server)?.state ?? ''}, ${number(s.rate)} calls/s, ${percent(s.error_rate ?? 0)} failed in the last 5 minutes${usedBy(s.server)}` });
  }
  if (quiet.length) {
    const bad = quiet.filter((s) => s.failing).length;
    for (const s of quiet) box.set(s.server, 's*');
    nodes.push({ id: 's*', column: 3, name: `${number(quiet.length)} more`, rate: rateOf(quiet), tone: bad ? 'failing' : rateOf(quiet) ? '' : 'cold', href: `${to('overview')}?show=servers`, note: bad ? `${bad} failing` : speed(rateOf(quiet)), said: `${many(quiet.length, 'server')} with fewer calls: ${number(rateOf(quiet))} calls/s` });
  }

  nodes.push({ id: 'b', column: 2, name: 'mcp-bridge', rate: rateOf(t.addresses), tone: rateOf(t.addresses) ? '' : 'cold', href: to('calls'), note: speed(rateOf(t.addresses)), said: `The bridge: ${number(rateOf(t.addresses))} calls/s to ${many(states.length, 'server')}` });

  const [addresses, otherAddresses] = cut(byRate(t.addresses), mostAddresses);
  /** @type {Map<string, string>} */
  const door = new Map();
  for (const a of addresses) {
    const id = `a:${a.path}`;
    door.set(a.path, id);
    const server = /^\/(.+)\/(mcp|sse)$/.exec(a.path)?.[1];
    nodes.push({ id, column: 1, name: a.path, rate: a.rate, tone: a.rate ? (server && failing(server) ? 'failing' : '') : 'cold', href: server && state.has(server) ? to('servers', server) : to('try', '*'), note: `${server ? '' : 'all servers · '}${speed(a.rate)}`, said: `Address ${a.path}: ${number(a.rate)} calls/s` });
    edge(id, 'b', a.rate, a.rate && server && failing(server) ? 'failing' : '');
  }
  if (otherAddresses.length) {
    for (const a of otherAddresses) door.set(a.path, 'a*');
    nodes.push({ id: 'a*', column: 1, name: `${otherAddresses.length} more`, rate: rateOf(otherAddresses), tone: rateOf(otherAddresses) ? '' : 'cold', href: to('overview'), note: speed(rateOf(otherAddresses)), said: `${otherAddresses.length} further addresses: ${number(rateOf(otherAddresses))} calls/s` });
    edge('a*', 'b', rateOf(otherAddresses));
  }

  /** @type {Map<string, any>} a client that uses several addresses is one box */
  const kinds = new Map();
  for (const c of t.clients) {
    const key = [c.client, c.principal, c.transport].join('\n');
    const had = kinds.get(key);
    kinds.set(key, had ? { ...had, rate: had.rate + c.rate, sessions: had.sessions + c.sessions, calls: had.calls + c.calls, at: [...had.at, c] } : { ...c, at: [c] });
  }
  /** @type {(string|undefined)[][]} the boxes of each way: client, address, bridge, server */
  const ways = [];
  /** @param {string} id of the box of a client @param {any} c */
  const go = (id, c) => { for (const s of c.servers?.length ? c.servers : [{}]) ways.push([id, door.get(c.address), 'b', box.get(s.server)]); };
  const [clients, otherClients] = cut(byRate([...kinds.values()]), mostClients);
  clients.forEach((c, i) => {
    const id = `c:${i}:${c.client}`;
    const kind = transports[c.transport] ?? c.transport;
    const busy = c.at.flatMap((/** @type {any} */ a) => a.servers ?? []).filter((/** @type {any} */ s) => s.rate);
    const hurt = busy.length > 0 && busy.every((/** @type {any} */ s) => failing(s.server)); // it gets nothing but errors
    nodes.push({ id, column: 0, name: named(c.client), rate: c.rate, tone: hurt ? 'failing' : c.rate ? '' : 'cold', href: c.sessions ? `${to('sessions')}?filter=${encodeURIComponent(`client:"${c.client}"`)}` : to('calls'), note: `${c.sessions ? `${many(c.sessions, 'session')} · ` : ''}${speed(c.rate)}`, said: `${c.client}${c.principal ? ` as ${c.principal}` : ''}, ${kind}, at ${c.at.map((/** @type {any} */ a) => a.address).join(', ')}: ${c.sessions ? `${many(c.sessions, 'session')}, ` : ''}${number(c.rate)} calls/s, ${many(c.calls ?? 0, 'call')} in all${few(c.at.flatMap((/** @type {any} */ a) => a.servers ?? []).map((/** @type {any} */ s) => `${s.server} (${speed(s.rate)})`), '. Uses ')}` });
    for (const a of c.at) {
      const at = door.get(a.address);
      if (at) edge(id, at, a.rate, hurt ? 'failing' : '');
      go(id, a);
    }
  });
  if (otherClients.length) {
    nodes.push({ id: 'c*', column: 0, name: `${otherClients.length} more`, rate: rateOf(otherClients), tone: rateOf(otherClients) ? '' : 'cold', href: to('sessions'), note: speed(rateOf(otherClients)), said: `${otherClients.length} further kinds of clients: ${number(rateOf(otherClients))} calls/s` });
    for (const c of otherClients.flatMap((o) => o.at)) { const at = door.get(c.address); if (at) edge('c*', at, c.rate); go('c*', c); }
  }

  for (const e of t.edges) {
    const [a, s] = [door.get(e.address), box.get(e.server)];
    if (!a || !s) continue;
    if (e.rate) ways.push([undefined, a, 'b', s]);
    edge('b', s, e.rate);
  }
  for (const n of nodes) {
    if (n.column !== 3) continue;
    edge('b', n.id, 0, n.tone === 'failing' ? 'failing' : '');
  }
  // A line lights up with all boxes on its ways.
  for (const way of ways) {
    for (let i = 1; i < way.length; i++) for (const id of way) if (id) edges.get(`${way[i - 1]}\n${way[i]}`)?.through.add(id);
  }
  return { nodes, edges: [...edges.values()] };
}

/** With so many boxes in a column, each has one line instead of two. */
const dense = 11;
/** Stands where clients will be. @type {Node} */
const nobody = { id: 'none', column: 0, name: 'No clients yet', note: 'connect one', said: 'No client has called within the last minutes.', href: to('try'), tone: 'cold', rate: 0 };

const heads = ['Clients', 'Addresses', '', 'Servers'];

/** @type {CanvasRenderingContext2D|null|undefined} */
let pen;
/** A text that fits: cut with an ellipsis. @param {string} text @param {number} wide @param {boolean} bold */
function fit(text, wide, bold) {
  pen ??= globalThis.document?.createElement('canvas').getContext('2d');
  if (!pen) return text;
  pen.font = `${bold ? '600 ' : ''}${bold ? 13 : 12}px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif`;
  if (pen.measureText(text).width <= wide) return text;
  let n = text.length;
  while (n > 1 && pen.measureText(`${text.slice(0, n)}…`).width > wide) n--;
  return `${text.slice(0, n).trimEnd()}…`;
}

class TopologyView extends View {
  /** @type {any} as GET topology answers */
  topology = undefined;
  /** @type {any[]} the servers of GET status */
  states = [];
  #wide = 0;
  /** @type {string|undefined} the box that is looked at */
  #chosen = undefined;
  #size = globalThis.ResizeObserver && new ResizeObserver(([e]) => {
    const wide = Math.round(e.contentRect.width);
    if (wide !== this.#wide) { this.#wide = wide; this.update(); }
  });

  connectedCallback() {
    super.connectedCallback();
    this.#size?.observe(this);
  }

  disconnectedCallback() { this.#size?.disconnect(); }

  /** @param {string|undefined} id */
  #choose(id) {
    if (id === this.#chosen) return;
    this.#chosen = id;
    this.update();
  }

  view() {
    if (!this.topology || !this.#wide) return '';
    const { nodes, edges } = layout(this.topology, this.states);
    return this.#wide < 560 ? lists(nodes) : this.#picture(nodes, edges);
  }

  /** @param {Node[]} nodes @param {Edge[]} edges */
  #picture(nodes, edges) {
    const wide = this.#wide;
    const columns = [0, 1, 2, 3].map((c) => nodes.filter((n) => n.column === c));
    if (!columns[0].length) {
      columns[0] = [nobody];
      edges.push({ from: nobody.id, to: 'b', rate: 0, tone: '', through: new Set([nobody.id, 'b']) });
    }
    const [hub, gaps] = wide < 800 ? [100, 34] : [118, 56];
    const box = Math.min(230, Math.max(118, Math.floor((wide - hub - 3 * gaps) / 3)));
    const between = (wide - 3 * box - hub) / 3;
    const x = [0, box + between, 2 * (box + between), 2 * (box + between) + hub + between];
    const rows = Math.max(2, ...columns.map((c) => c.length));
    const [tall, gap] = rows < dense ? [42, 11] : [27, 6];
    const body = rows * (tall + gap) - gap;
    const top = 26;
    const high = top + body + 2;
    /** @type {Map<string, {x: number, y: number, w: number, h: number}>} */
    const at = new Map();
    columns.forEach((all, c) => {
      const free = body - (all.length * (tall + gap) - gap);
      const spread = all.length > 1 ? Math.min(free / (all.length - 1), 10) : 0;
      const begin = top + (free - spread * (all.length - 1)) / 2;
      all.forEach((n, i) => at.set(n.id, c === 2 ? { x: x[2], y: top + body / 2 - 42, w: hub, h: 84 } : { x: x[c], y: begin + i * (tall + gap + spread), w: box, h: tall }));
    });
    const most = Math.max(1, ...edges.map((e) => e.rate));
    const chosen = this.#chosen;
    // Lines that end at the same side of a box are spread over it, in the order of their other ends.
    /** @param {Edge} e @param {'from'|'to'} end */
    const slot = (e, end) => {
      const other = end === 'to' ? 'from' : 'to';
      const all = edges.filter((o) => o[end] === e[end]).sort((a, b) => (at.get(a[other])?.y ?? 0) - (at.get(b[other])?.y ?? 0));
      const p = /** @type {any} */ (at.get(e[end]));
      return p.y + p.h / 2 + ((all.indexOf(e) + 0.5) / all.length - 0.5) * Math.min(p.h - 14, all.length * 12);
    };
    const lines = edges.map((e) => {
      const [f, t] = [at.get(e.from), at.get(e.to)];
      if (!f || !t) return '';
      const [x1, x2] = [f.x + f.w, t.x];
      const y1 = slot(e, 'from');
      const y2 = slot(e, 'to');
      const bend = Math.max(24, (x2 - x1) * 0.5);
      const d = `M${x1.toFixed(1)} ${y1.toFixed(1)}C${(x1 + bend).toFixed(1)} ${y1.toFixed(1)} ${(x2 - bend).toFixed(1)} ${y2.toFixed(1)} ${x2.toFixed(1)} ${y2.toFixed(1)}`;
      const tone = e.tone || (e.rate ? '' : 'cold');
      const lit = chosen && e.through.has(chosen);
      return html`<g key=${`${e.from} ${e.to}`} class=${`edge ${tone} ${lit ? 'lit' : chosen ? 'dim' : ''}`}><path class="way" d=${d} stroke-width=${(e.rate ? 1.5 + 7 * Math.sqrt(e.rate / most) : 1.5).toFixed(1)} />${e.rate ? html`<path class="flow" d=${d} />` : ''}</g>`;
    });
    const lit = new Set(chosen ? edges.filter((e) => e.through.has(chosen)).flatMap((e) => [e.from, e.to]) : []);
    const said = columns.flat().find((n) => n.id === chosen)?.said ?? '';
    return html`<svg class="topology" viewBox=${`0 0 ${wide} ${high}`} width=${wide} height=${high} role="group" aria-label="Topology" @pointerleave=${() => this.#choose(undefined)}>
        ${heads.map((h, c) => (h && columns[c].length ? html`<text key=${h} class="column" x=${x[c]} y="12">${h}${columns[c].length > 1 && c !== 1 ? ` (${c ? this.states.length : columns[0].length})` : ''}</text>` : ''))}
        ${lines}
        ${columns.flat().map((n) => {
          const p = at.get(n.id);
          if (!p) return '';
          const hubbed = n.column === 2;
          return html`<a key=${n.id} class=${`box ${n.tone} ${hubbed ? 'hub' : ''} ${chosen && chosen !== n.id && !lit.has(n.id) ? 'dim' : ''}`} href=${n.href} @pointerenter=${() => this.#choose(n.id)} @focus=${() => this.#choose(n.id)} @blur=${() => this.#choose(undefined)}>
            <title>${n.said}</title>
            <rect x=${p.x + 0.5} y=${p.y + 0.5} width=${p.w - 1} height=${p.h - 1} rx=${hubbed ? 14 : 8} />
            ${hubbed ? html`<text class="name" x=${p.x + p.w / 2} y=${p.y + p.h / 2 - 2} text-anchor="middle">${n.name}</text>` : [html`<circle cx=${p.x + 15} cy=${p.y + (rows < dense ? 16 : 13.5)} r="3.5" />`, html`<text class="name" x=${p.x + 26} y=${p.y + (rows < dense ? 20 : 18)}>${fit(n.name, p.w - 36 - (rows < dense ? 0 : 74), true)}</text>`]}
            ${hubbed ? html`<text class="note" x=${p.x + p.w / 2} y=${p.y + p.h / 2 + 17} text-anchor="middle">${n.note}</text>` : rows < dense ? html`<text class="note" x=${p.x + 26} y=${p.y + 35}>${fit(n.note, p.w - 36, false)}</text>` : html`<text class="note" x=${p.x + p.w - 10} y=${p.y + 18} text-anchor="end">${fit(n.tone === 'failing' ? n.note : speed(n.rate), 70, false)}</text>`}
          </a>`;
        })}
      </svg>
      <p class="hint readout" aria-live="off">${said || 'The width of a line is its calls a second. Hover over a box for its figures.'}</p>`;
  }
}
customElements.define('topology-view', TopologyView);

/** The picture where it is narrow. @param {Node[]} nodes */
const lists = (nodes) => html`<div class="lists">${[0, 1, 3].filter((c) => nodes.some((n) => n.column === c)).map((c) => html`<section key=${heads[c]}><h3>${heads[c]}</h3><ul>${nodes.filter((n) => n.column === c).map((n) => html`<li key=${n.id}><a class=${n.tone} href=${n.href} title=${n.said}><span class="dot ${n.tone === 'failing' ? 'bad' : n.tone ? '' : 'good'}"></span><span class="name">${n.name}</span><span class="note">${n.note}</span>${icon('right')}</a></li>`)}</ul></section>`)}</div>`;
