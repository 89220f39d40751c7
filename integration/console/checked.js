// @ts-expect-error shows that types are checked: without that, this line is a fault itself
/** @type {number} */ export const wrong = 'no number';
