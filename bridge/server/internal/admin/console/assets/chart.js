// Charts of the last minutes.
import { html, View } from './dom.js';
import { bytes, clock, duration, number } from './text.js';

/** @typedef {{name: string, values: (number|null)[], colour?: string}} Series the last value is of the bucket that ends at to; colour is s1 … s8, good, warn or bad */
/** @typedef {{at: number, kind: string, server?: string, text: string}} Mark */
/**
 * @typedef {object} Chart
 * @property {string} title
 * @property {'ms'|'bytes'|'%'|string} unit milliseconds, bytes and percents are written as such; another unit stands behind the number
 * @property {number} step milliseconds between two values
 * @property {number} to when the last bucket ends, in milliseconds since 1970
 * @property {Series[]} series
 * @property {boolean} [stacked]
 * @property {Mark[]} [marks] events to show as lines
 * @property {number} [max] a limit, shown as a dashed line and beside the values
 * @property {number} [points] how many values the axis has room for; 180 unless said
 * @property {string} [note] stands behind the title
 */

/**
 * A chart with an axis, a legend that reads out the values at the pointer, and marks. The arrow keys move the
 * pointer. Pass the same object while nothing has changed: then nothing is drawn again.
 * @param {Chart} options title, unit, step, to, series, stacked, marks, max, points
 */
export const timeChart = (options) => html`<time-chart key=${options.title} .options=${options}></time-chart>`;

/**
 * The axis of time of charts: two minutes for a bridge that has just begun, up to 15.
 * @param {number} step @param {number} to @param {any[]|undefined} column of values @param {Mark[]} marks
 */
export function axis(step, to, column, marks) {
  const points = Math.max(24, Math.min(180, column?.length ?? 0));
  return { step, to, points, marks: marks.filter((m) => m.at > to - points * step) };
}

/**
 * The head of charts: what they show, a button that stops them while somebody reads, and where older values are.
 * @param {boolean} still @param {() => void} turn
 */
export const chartsHead = (still, turn) => html`<div class="head charted"><h2>The last 15 minutes</h2><button type="button" class="small" aria-pressed=${String(still)} @click=${turn}>${still ? 'Resume charts' : 'Pause charts'}</button><span class="hint">Older values are not kept. Use Prometheus and the dashboard for Grafana: docs/observability.md.</span></div>`;

/** A value for people. @param {number|null|undefined} v @param {string} unit */
export function written(v, unit) {
  if (v === null || v === undefined) return '–';
  switch (unit) {
    case 'ms': return duration(v);
    case 'bytes': return bytes(Math.round(v));
    case '%': return `${v && v < 10 ? v.toFixed(1) : Math.round(v)} %`;
    default: return `${number(v)}${unit && unit[0] !== '/' ? ' ' : ''}${unit}`;
  }
}

/** Round values for an axis that begins at 0: two to five. Without a unit, they are counts. @param {number} top @param {string} unit @returns {number[]} */
export function ticks(top, unit) {
  const base = unit === 'bytes' ? 1024 ** Math.floor(Math.log(Math.max(top, 1)) / Math.log(1024)) : 1;
  const size = top / base / 3;
  const power = 10 ** Math.floor(Math.log10(size));
  const exact = (/** @type {number} */ n) => (unit === '' ? n % 1 === 0 : n / power !== 2.5 || power >= 1); // 0.25 would be written as 0.3
  const step = [1, 2, 2.5, 5, 10].map((n) => n * power).find((s) => s >= size * 0.75 && exact(s)) ?? Math.max(1, Math.round(power));
  const all = [];
  for (let i = 0; i * step <= (top / base) * 1.001; i++) all.push(i * step * base);
  return all;
}

/** The kinds of marks: colour and words. @type {Record<string, [string, string]>} */
const kinds = {
  failing: ['bad', 'Failing'], breaker_open: ['s7', 'Circuit open'], restart: ['warn', 'Restart'], drain: ['warn', 'Drained'],
  reload: ['act', 'Configuration reloaded'], working: ['good', 'Working again'], breaker_closed: ['good', 'Circuit closed'], resume: ['good', 'Resumed'],
};
const toneOf = (/** @type {Mark} */ m) => `var(--${kinds[m.kind]?.[0] ?? 'quiet'})`;

/** Explains the marks of charts. @param {Mark[]} marks */
export const markLegend = (marks) => html`<p class="hint marks">${Object.keys(kinds).filter((k) => marks.some((m) => m.kind === k)).map((k) => html`<span key=${k}><svg width="8" height="7" aria-hidden="true"><path fill=${`var(--${kinds[k][0]})`} d="M0 0h8l-4 7z" /></svg> ${kinds[k][1]}</span>`)}</p>`;

const high = 132;
const left = 52;
const right = 6;
const above = 10;
const below = 20;

class TimeChart extends View {
  /** @type {Chart} */
  options = { title: '', unit: '', step: 5000, to: 0, series: [] };
  #wide = 420;
  /** Which bucket is read out, counted from the end; undefined: the last one. @type {number|undefined} */
  #back = undefined;
  #size = globalThis.ResizeObserver && new ResizeObserver(([e]) => {
    const wide = Math.round(e.contentRect.width);
    if (wide && wide !== this.#wide) { this.#wide = wide; this.update(); }
  });

  connectedCallback() {
    super.connectedCallback();
    this.#size?.observe(this);
  }

  disconnectedCallback() { this.#size?.disconnect(); }

  /** @param {number|undefined} back */
  #point(back) {
    if (back !== undefined) back = Math.max(0, Math.min((this.options.points ?? 180) - 1, back));
    if (back === this.#back) return;
    this.#back = back;
    this.update();
  }

  /** @param {any} e */
  #key(e) {
    const step = { ArrowLeft: 1, ArrowRight: -1, PageUp: 12, PageDown: -12, Home: 1e9, End: -1e9 }[/** @type {string} */ (e.key)];
    if (e.key === 'Escape') this.#point(undefined);
    if (!step) return;
    e.preventDefault();
    this.#point((this.#back ?? 0) + step);
  }

  view() {
    const { title, unit, step, to, series, stacked, marks = [], max, points = 180, note = max ? `limit ${written(max, unit)}` : '' } = this.options;
    const wide = this.#wide;
    const value = (/** @type {Series} */ s, /** @type {number} */ back) => s.values[s.values.length - 1 - back];
    let peak = 0;
    for (let b = 0; b < points; b++) {
      let all = 0;
      for (const s of series) {
        const v = value(s, b) ?? 0;
        all = stacked ? all + v : v;
        peak = Math.max(peak, all);
      }
    }
    if (max && peak > max * 0.4) peak = Math.max(peak, max);
    const top = Math.max(peak * 1.08, unit === '%' ? 5 : unit === 'bytes' ? 1 << 20 : 1);
    const x = (/** @type {number} */ back) => left + ((points - 1 - back) / (points - 1)) * (wide - left - right);
    const y = (/** @type {number} */ v) => above + (1 - Math.min(1, v / top)) * (high - above - below);
    const at = this.#back ?? 0;
    const when = to - at * step;
    const near = marks.filter((m) => this.#back !== undefined && Math.abs(m.at - when) <= 2 * step);
    const clockOf = (/** @type {number} */ ms) => clock(new Date(ms).toISOString());
    const said = series.map((s) => `${s.name} ${written(value(s, at), unit)}`).join(', ');
    const minutes = [0.5, 1, 2, 3, 5].find((m) => (m * 60000) / (points * step) * wide > 64) ?? 5;
    /** @type {number[]} */
    const times = [];
    for (let t = Math.floor(to / (minutes * 60000)) * minutes * 60000; t > to - points * step; t -= minutes * 60000) times.push(t);
    const place = (/** @type {number} */ ms) => x((to - ms) / step);
    return html`<figure class="chart">
      <figcaption><b>${title}</b><span class="quiet">${note}</span><span class="when quiet">${this.#back === undefined ? '' : clockOf(when)}</span></figcaption>
      <svg viewBox=${`0 0 ${wide} ${high}`} height=${high} role="slider" tabindex="0" aria-label=${title} aria-valuemin=${0} aria-valuemax=${points - 1} aria-valuenow=${points - 1 - at} aria-valuetext=${[`${clockOf(when)}: ${said}`, ...near.map((m) => m.text)].join('. ')}
        @keydown=${(/** @type {any} */ e) => this.#key(e)} @blur=${() => this.#point(undefined)} @pointerleave=${() => this.#point(undefined)}
        @pointermove=${(/** @type {any} */ e) => this.#point(Math.round((1 - (e.offsetX - left) / (wide - left - right)) * (points - 1)))}>
        ${ticks(top, unit).map((v) => html`<g key=${v}><line class="grid" x1=${left} x2=${wide - right} y1=${y(v)} y2=${y(v)} /><text class="axis" x=${left - 7} y=${y(v) + 3.5} text-anchor="end">${v ? written(v, /^(ms|bytes|%)$/.test(unit) ? unit : '') : '0'}</text></g>`)}
        ${times.filter((t) => place(t) > left + 12 && place(t) < wide - 18).map((t) => html`<text key=${t} class="axis" x=${place(t).toFixed(1)} y=${high - 5} text-anchor="middle">${minutes < 1 ? clockOf(t).slice(-8) : clockOf(t).slice(-8, -3)}</text>`)}
        ${max && max <= top ? html`<line class="limit" x1=${left} x2=${wide - right} y1=${y(max)} y2=${y(max)} />` : ''}
        ${drawn(series, points, Boolean(stacked), x, y)}
        ${marks.map((m) => html`<g key=${`${m.at}${m.text}`} class="event"><line stroke=${toneOf(m)} x1=${place(m.at).toFixed(1)} x2=${place(m.at).toFixed(1)} y1=${above - 4} y2=${high - below} /><path fill=${toneOf(m)} d=${`M${(place(m.at) - 3.5).toFixed(1)} ${above - 8}h7l-3.5 6z`}><title>${`${clockOf(m.at)} ${m.text}`}</title></path></g>`)}
        ${this.#back === undefined ? '' : html`<line class="cross" x1=${x(at).toFixed(1)} x2=${x(at).toFixed(1)} y1=${above} y2=${high - below} />`}
      </svg>
      <ul class="legend">${near.length ? near.map((m) => html`<li class="what">${m.text}</li>`) : series.map((s) => html`<li key=${s.name}><svg width="9" height="9" aria-hidden="true"><rect width="9" height="9" rx="2" fill=${`var(--${s.colour ?? 's1'})`} /></svg><span class="name" title=${s.name}>${s.name}</span> <span class="value">${written(value(s, at), unit)}</span></li>`)}</ul>
    </figure>`;
  }
}
customElements.define('time-chart', TimeChart);

/** @param {Series[]} series @param {number} points @param {boolean} stacked @param {(back: number) => number} x @param {(v: number) => number} y */
function drawn(series, points, stacked, x, y) {
  const floor = new Array(points).fill(0);
  return series.map((s) => {
    const colour = `var(--${s.colour ?? 's1'})`;
    let line = '';
    let area = '';
    let lower = '';
    let open = false;
    const end = () => { if (open) area += `${lower}Z`; lower = ''; open = false; };
    for (let back = points - 1; back >= 0; back--) {
      const v = s.values[s.values.length - 1 - back];
      if (v === null || v === undefined) { end(); continue; }
      const px = x(back).toFixed(1);
      const bottom = y(floor[back]).toFixed(1);
      if (stacked) floor[back] += v;
      const py = y(stacked ? floor[back] : v).toFixed(1);
      line += `${open ? 'L' : 'M'}${px} ${py}`;
      area += `${open ? 'L' : 'M'}${px} ${py}`;
      lower = `L${px} ${bottom}${lower}`;
      open = true;
    }
    end();
    return html`<g key=${s.name}>${stacked || series.length === 1 ? html`<path class=${stacked ? 'area' : 'area soft'} fill=${colour} d=${area} />` : ''}${stacked ? '' : html`<path class="trace" stroke=${colour} d=${line} />`}</g>`;
  });
}

/** A row's small chart, without an axis. @param {string} name @param {number[]} values */
export function spark(name, values) {
  if (values.length < 2) return '';
  const top = Math.max(...values, 1e-9);
  const points = values.map((v, i) => `${((i / (values.length - 1)) * 100).toFixed(1)},${(23 - (v / top) * 22).toFixed(1)}`).join(' ');
  return html`<svg class="spark" viewBox="0 0 100 24" preserveAspectRatio="none" role="img" aria-label=${`${name}: now ${number(values[values.length - 1])}, at most ${number(top)}`}><path d=${`M0,24L${points}L100,24Z`} /><polyline points=${points} /></svg>`;
}
