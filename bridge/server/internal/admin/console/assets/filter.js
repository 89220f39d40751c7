// The filter of lists: server:files status:error duration:>500 -method:ping words
//
// key:value wants a member that contains the value, key:>n and key:<n compare numbers (500ms and 2s are
// durations in milliseconds), a word wants any member that contains it, and a minus in front wants the
// opposite. All have to hold. "…" keeps blanks.

/** @typedef {{key: string, op: ':'|'>'|'<', value: string, not: boolean}} Term */

/** @param {string} text @returns {Term[]} */
export function terms(text) {
  return [...text.matchAll(/(-?)(?:([\w.]+):)?([<>]?)(?:"([^"]*)"?|(\S+))/g)].map((m) => ({
    not: m[1] === '-', key: m[2] ?? '', op: m[2] && m[3] ? /** @type {'>'|'<'} */ (m[3]) : ':', value: ((m[2] ? '' : m[3]) + (m[4] ?? m[5])).toLowerCase(),
  }));
}

/** @param {string} text */
function quantity(text) {
  const m = /^([\d.]+)(ms|s|min|kb|mb)?$/.exec(text);
  return m ? Number(m[1]) * ({ ms: 1, s: 1000, min: 60000, kb: 1024, mb: 1048576 }[m[2]] ?? 1) : NaN;
}

/**
 * Whether a row passes.
 * @param {Term[]} wanted
 * @param {Record<string, any>} row its members as the filter knows them
 */
export function passes(wanted, row) {
  return wanted.every(({ key, op, value, not }) => {
    if (key && !Object.hasOwn(row, key)) return not;
    const found = key ? [row[key]] : Object.values(row);
    const holds = found.some((v) => {
      if (op === ':') return String(v ?? '').toLowerCase().includes(value);
      return op === '>' ? Number(v) > quantity(value) : Number(v) < quantity(value);
    });
    return holds !== not;
  });
}
