// Squarified treemap (Bruls, Huizing, van Wijk 2000): areas by weight, as near to squares as they go.

/** A rectangle {x, y, w, h} for each weight > 0, in their order; they fill the one that is given. Largest first fits best. */
export function treemap(weights, { x, y, w, h }) {
  const placed = [];
  const scale = (w * h) / weights.reduce((sum, weight) => sum + weight, 0);
  const areas = weights.map((weight) => weight * scale);
  let from = 0;
  while (from < areas.length) {
    const side = Math.min(w, h);
    let to = from + 1;
    while (to < areas.length && worst(areas, from, to + 1, side) <= worst(areas, from, to, side)) to += 1;
    const thick = sum(areas, from, to) / side;
    let along = 0;
    for (let i = from; i < to; i += 1) {
      const long = areas[i] / thick;
      placed.push(w >= h ? { x, y: y + along, w: thick, h: long } : { x: x + along, y, w: long, h: thick });
      along += long;
    }
    if (w >= h) [x, w] = [x + thick, w - thick];
    else [y, h] = [y + thick, h - thick];
    from = to;
  }
  return placed;
}

const sum = (areas, from, to) => areas.slice(from, to).reduce((total, area) => total + area, 0);

/** The longest side over the shortest among a row of these along `side`. */
function worst(areas, from, to, side) {
  const total = sum(areas, from, to);
  const row = areas.slice(from, to);
  const square = total * total;
  return Math.max((side * side * Math.max(...row)) / square, square / (side * side * Math.min(...row)));
}
