// Small parts of a series plot's picture that need nothing of its state.

/** What the tip says of a point: its name, every series, the markers that stand there. */
export function tipLines({ names, series, markers = [] }, options, index) {
  return [
    ["", names[index]],
    ...(options.more?.(index) ?? []),
    ...series
      .filter(({ silent }) => !silent)
      .map(({ name, values }) => [name, (values[index] ?? null) === null ? "– (not recorded)" : options.exact(values[index])]),
    ...markers.filter((marker) => marker.index === index && marker.name).map(({ name }) => ["▼", name]),
  ];
}

/** A line through points [x, y], or with `floor` (a y) the area between them and it; one point alone is a dot. */
export function drawRun(ctx, run, floor) {
  if (run.length === 1) {
    ctx.fillRect(run[0][0] - 2, run[0][1] - 2, 4, 4);
    return;
  }
  ctx.beginPath();
  run.forEach(([x, y], place) => (place ? ctx.lineTo(x, y) : ctx.moveTo(x, y)));
  if (floor === null) {
    ctx.stroke();
    return;
  }
  ctx.lineTo(run.at(-1)[0], floor);
  ctx.lineTo(run[0][0], floor);
  ctx.globalAlpha = 0.18;
  ctx.fill();
  ctx.globalAlpha = 1;
}

/** A marker whose tip is at (x, y). */
export function triangle(ctx, x, y) {
  ctx.beginPath();
  ctx.moveTo(x, y);
  ctx.lineTo(x - 5, y - 8);
  ctx.lineTo(x + 5, y - 8);
  ctx.fill();
}

/** How many points share a pixel; 0 where they are to be drawn one by one. */
export function thinner(width, points) {
  return points > 2 * width ? Math.ceil(points / width) : 0;
}

/** `text` as far as it fits into `room` pixels. */
export function short(ctx, text, room) {
  let shown = text;
  while (shown.length > 4 && ctx.measureText(shown).width > room) shown = `${shown.slice(0, -2)}…`;
  return shown;
}
