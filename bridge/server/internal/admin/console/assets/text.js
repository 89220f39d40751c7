// Text for people: what strangers say made visible, and times, sizes and durations.

// What acts on the text around it: controls but line break and tab, marks of direction, line
// breaks that are not shown as one everywhere. The same as internal/sanitize of the bridge has.
const acting = '\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069';
// What shows nothing and can carry a message to a model all the same: blanks of no width, fillers,
// tags, and selectors of variants but the one that emoji have.
const empty = '\\u00ad\\u034f\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f\\u200b\\u2060-\\u2065\\u206a-\\u206f\\u3164\\ufe00-\\ufe0e\\ufeff\\uffa0\\ufff9-\\ufffb\\u{e0000}-\\u{e0fff}';
// Joiners have their places in scripts and in emoji: elsewhere they are hidden characters.
const joiner = '(?<![\\p{Extended_Pictographic}\\p{Emoji_Modifier}\\ufe0f\\p{L}\\p{M}])[\\u200c\\u200d]|(?<=[A-Za-z])[\\u200c\\u200d]|[\\u200c\\u200d](?![\\p{Extended_Pictographic}\\p{L}\\p{M}])';
const hidden = new RegExp(`[${acting}${empty}]|${joiner}`, 'gu');

/**
 * A text with each hidden character as a mark, such as ⟦U+202E⟧.
 * @param {string} text
 * @returns {string}
 */
export function visible(text) {
  return text.replace(/\r\n/g, '\n').replace(hidden, (c) => `⟦U+${/** @type {number} */ (c.codePointAt(0)).toString(16).toUpperCase().padStart(4, '0')}⟧`);
}

/** @param {number|undefined} n how many bytes */
export function bytes(n) {
  if (n === undefined || n === null) return '–';
  if (n < 1024) return `${n} B`;
  for (const unit of ['KB', 'MB', 'GB']) {
    n /= 1024;
    if (n < 1024 || unit === 'GB') return `${n < 10 ? n.toFixed(1) : Math.round(n)} ${unit}`;
  }
  return '';
}

/** @param {number|undefined} ms */
export function duration(ms) {
  if (ms === undefined || ms === null) return '–';
  if (ms < 1) return `${ms.toFixed(1)} ms`;
  if (ms < 10000) return ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`;
  const s = Math.round(ms / 1000);
  if (s < 120) return `${s} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  return s < 172800 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86400)} d`;
}

/** A number of calls and the like, with a digit behind the point where it is small. @param {number} n */
export const number = (n) => (n > 0 && n < 0.05 ? '< 0.1' : (n < 10 && n % 1 ? Number(n.toFixed(1)) : Math.round(n)).toLocaleString('en'));

/** A share of calls. @param {number|undefined} of from 0 to 1 */
export const percent = (of) => (of === undefined ? '–' : of > 0 && of < 0.001 ? '< 0.1 %' : `${of < 0.1 ? Number((of * 100).toFixed(1)) : Math.round(of * 100)} %`);

/** How much of a processor was used, of its time before and now. @param {number} before @param {number} now @param {number} within */
export const share = (before, now, within) => `${within > 0 ? Math.max(0, Math.round((100 * (now - before)) / within)) : 0} %`;

/**
 * How long ago something was.
 * @param {string|undefined} at
 */
export const ago = (at) => (at ? duration(Math.max(0, Date.now() - Date.parse(at))) : '–');

/**
 * The time of day where the viewer is; with the date if that is more than half a day away.
 * @param {string|undefined} at
 */
export function clock(at) {
  if (!at) return '–';
  const t = new Date(at);
  const time = t.toLocaleTimeString(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' });
  return Math.abs(Date.now() - t.getTime()) < 12 * 3600e3 ? time : `${t.toLocaleDateString(undefined, { day: 'numeric', month: 'short' })} ${time}`;
}

/**
 * The address if it is one that may be a link, with its scheme and host.
 * @param {string} address
 * @returns {string|undefined}
 */
export function link(address) {
  try {
    const url = new URL(address);
    return url.protocol === 'https:' || url.protocol === 'http:' ? url.href : undefined;
  } catch {
    return undefined;
  }
}

/** How much of a payload is shown at once, in characters. */
export const most = 65536;

/** Why what a call asked cannot be used for another one; empty if it can. @param {any} detail a call, as the admin API tells it */
export function notWhole(detail) {
  if (detail?.cut?.includes('arguments')) return 'The arguments are too long to be kept whole: they cannot be used again from here.';
  if (detail?.arguments?.includes('[redacted]')) return 'The arguments are shown without what looks like a secret: they cannot be used again from here.';
  return '';
}

/** A number of things, such as 1 line or 2 lines. @param {number} n @param {string} what */
export const count = (n, what) => `${n} ${what}${n === 1 ? '' : 's'}`;

/** A text as one word of a command. @param {string} s */
export const quote = (s) => `'${s.replace(/'/g, `'\\''`)}'`;

/**
 * An error of a server as people read it: a sentence, what its process wrote to stderr, and what else is known of it.
 * @param {string} error as the bridge tells it @param {string} server
 */
export function reason(error, server) {
  const [told, rest = ''] = error.split(/\n+its last lines on stderr:\n/);
  const lines = rest.split('\n');
  const own = told.replace(`server ${server}: `, '').replace(/^handshake: /, 'it did not connect: ').replaceAll('handshake: ', '');
  return {
    said: own.charAt(0).toUpperCase() + own.slice(1),
    stderr: lines.filter((l) => l.startsWith('  ')).map((l) => l.slice(2)).join('\n'),
    more: lines.filter((l) => !l.startsWith('  ')).join('\n'),
  };
}
