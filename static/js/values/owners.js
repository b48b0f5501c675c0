// The buffers that have one memory in turn: each has a line of its own, which ends where the next one takes over.
const COLOURS = ["accent", "estimated", "good", "warning"];

/** Returns one series for each name, with null where another buffer has the memory. */
export function byOwner(values, names) {
  return [...new Set(names)].map((name, place) => ({
    name,
    colour: COLOURS[place % COLOURS.length],
    values: values.map((value, index) => (names[index] === name ? value : null)),
    dots: true,
  }));
}
