// Draws a value class on a canvas: its colour, and a pattern or sign if there is room.
import { HEALTH, SIGNS, classOf } from "#js/core/health.js";

export const HEALTH_COLOURS = [...HEALTH.map(classOf), "v-sign-light", "v-sign-dark", "v-stripe"];
const ROOM_FOR_STRIPES = 5;
const ROOM_FOR_SIGN = 9;

/** `colours` has the keys of HEALTH_COLOURS. */
export function drawClass(ctx, name, x, y, width, height, colours) {
  if (name === "not_recorded") {
    drawMissing(ctx, x, y, width, height, colours);
    return;
  }
  ctx.fillStyle = colours[classOf(name)];
  ctx.fillRect(x, y, width, height);
  if (name === "extreme" && width >= ROOM_FOR_STRIPES) {
    ctx.fillStyle = stripes(ctx, colours);
    ctx.fillRect(x, y, width, height);
  } else if (SIGNS[name] && name !== "zero" && width >= ROOM_FOR_SIGN && height >= ROOM_FOR_SIGN) {
    drawSign(ctx, SIGNS[name], x + width / 2, y + height / 2, colours[name === "nan" ? "v-sign-light" : "v-sign-dark"]);
  }
}

export function drawSign(ctx, sign, x, y, colour) {
  ctx.save();
  ctx.font = "9px sans-serif";
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  ctx.fillStyle = colour;
  ctx.fillText(sign, x, y + 0.5);
  ctx.restore();
}

/** Draws a dotted outline for what is not known. */
export function drawMissing(ctx, x, y, width, height, colours) {
  if (width < ROOM_FOR_STRIPES) return;
  ctx.strokeStyle = colours["v-not-recorded"];
  ctx.setLineDash([1, 2]);
  ctx.strokeRect(x + 0.5, y + 0.5, width - 1, height - 1);
  ctx.setLineDash([]);
}

const patterns = new Map();

/** Returns the pattern of diagonal lines, one per colour. */
function stripes(ctx, colours) {
  const colour = colours["v-stripe"];
  if (!patterns.has(colour)) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 6;
    const drawing = tile.getContext("2d");
    drawing.strokeStyle = colour;
    drawing.lineWidth = 1.4;
    drawing.beginPath();
    for (const shift of [-6, 0, 6]) {
      drawing.moveTo(shift - 1, 7);
      drawing.lineTo(shift + 7, -1);
    }
    drawing.stroke();
    patterns.set(colour, ctx.createPattern(tile, "repeat"));
  }
  return patterns.get(colour);
}
