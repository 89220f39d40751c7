// URI templates (RFC 6570, level 4 without lists and maps: arguments of resources are text).

const expression = /\{([+#./;?&]?)([^{}]*)\}/g;
/** @type {Record<string, {first: string, join: string, named: boolean, empty: string, reserved: boolean}>} */
const operators = {
  '': { first: '', join: ',', named: false, empty: '', reserved: false },
  '+': { first: '', join: ',', named: false, empty: '', reserved: true },
  '#': { first: '#', join: ',', named: false, empty: '', reserved: true },
  '.': { first: '.', join: '.', named: false, empty: '', reserved: false },
  '/': { first: '/', join: '/', named: false, empty: '', reserved: false },
  ';': { first: ';', join: ';', named: true, empty: '', reserved: false },
  '?': { first: '?', join: '&', named: true, empty: '=', reserved: false },
  '&': { first: '&', join: '&', named: true, empty: '=', reserved: false },
};

/** @param {string} spec */
function variable(spec) {
  const m = /^([^:*]*)(?::(\d+))?\*?$/.exec(spec.trim());
  return { name: m ? m[1] : spec, length: m && m[2] ? Number(m[2]) : Infinity };
}

/**
 * The names of a template's variables, each once, in order.
 * @param {string} template
 * @returns {string[]}
 */
export function variables(template) {
  return [...new Set([...template.matchAll(expression)].flatMap((m) => m[2].split(',').map((v) => variable(v).name)).filter(Boolean))];
}

/** @param {string} text @param {boolean} reserved */
function encode(text, reserved) {
  const plain = encodeURIComponent(text).replace(/[!'()*]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`);
  return reserved ? plain.replace(/%(3A|2F|3F|23|5B|5D|40|21|24|26|27|28|29|2A|2B|2C|3B|3D)/g, decodeURIComponent).replace(/%25([0-9A-Fa-f]{2})/g, '%$1') : plain;
}

/**
 * The URI that a template makes of values; a variable without one is left out.
 * @param {string} template
 * @param {Record<string, string|undefined>} values
 */
export function expand(template, values) {
  return template.replace(expression, (_, sign, list) => {
    const o = operators[sign];
    const parts = list.split(',').map(variable).filter((/** @type {any} */ v) => Object.hasOwn(values, v.name) && values[v.name] !== undefined).map((/** @type {any} */ v) => {
      const text = encode([.../** @type {string} */ (values[v.name])].slice(0, v.length).join(''), o.reserved);
      return o.named ? v.name + (text ? `=${text}` : o.empty) : text;
    });
    return parts.length ? o.first + parts.join(o.join) : '';
  });
}
