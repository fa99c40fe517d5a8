// Error / bound over a whole output: a tile for each part of it, in the colour of its largest level.

const MAP = { most: 64, side: 448, least: 5, largest: 12, lines: 5 };

function drawErrorMap(data, map) {
  const [rows, columns] = map.tiles, across = rows === 1 ? Math.min(columns, MAP.most) : columns;
  const down = rows === 1 ? Math.ceil(columns / across) : rows, count = map.levels.length;
  const cell = Math.max(MAP.least, Math.min(MAP.largest, Math.floor(MAP.side / Math.max(across, down))));
  const names = levelNames(data), counts = new Map();
  const paths = new Map();
  for (let i = 0; i < count; i++) {
    const level = map.levels[i], x = (i % across) * cell, y = Math.floor(i / across) * cell;
    counts.set(level, (counts.get(level) || 0) + 1);
    paths.set(level, `${paths.get(level) || ""}M${x} ${y}h${cell}v${cell}h${-cell}z`);
  }
  const present = [...data.errorLevels].filter((level) => counts.has(level));
  const words = present.map((level) => `${names.get(level)} in ${plural(counts.get(level), "tile")}`).join("; ");
  const strokes = [...map.levels].map((level, i) => (level === "S" ? `M${(i % across) * cell + 1} ${Math.floor(i / across) * cell + 1}l${cell - 2} ${cell - 2}` : "")).join("");
  const readout = el("p", { class: "dim pointed" }, "Point at a tile for its elements and their error.");
  const image = svg("svg", { class: "plot", width: across * cell + 1, height: down * cell + 1, viewBox: `-.5 -.5 ${across * cell + 1} ${down * cell + 1}`, role: "img", "aria-label": `Error / bound over output ${map.output}: ${words}` },
    present.map((level) => svg("path", { class: levelClass(level), d: paths.get(level) })),
    svg("path", { class: "level-stroke", d: strokes }),
    svg("path", { class: "block-lines", d: rows === 1 ? foldedLines(map, across, cell) : blockLines(map, cell) }),
    svg("path", { class: "frame", d: `M0 0h${across * cell}v${down * cell}h${-across * cell}z` }));
  image.addEventListener("mousemove", (event) => {
    const box = image.getBoundingClientRect(), at = (offset, size, tiles) => Math.max(0, Math.min(tiles - 1, Math.floor(offset / size * tiles)));
    const i = at(event.clientY - box.top, box.height, down) * across + at(event.clientX - box.left, box.width, across);
    if (i < count) readout.textContent = `${tileName(map, i)}: ${names.get(map.levels[i])}`;
  });
  const scale = present.map((level) => el("li", {}, svg("svg", { width: 14, height: 14, "aria-hidden": "true" },
    svg("rect", { class: levelClass(level), width: 14, height: 14 }), level === "S" ? svg("path", { class: "level-stroke", d: "M1 1l12 12" }) : null),
  `${names.get(level)} (${whole(counts.get(level))})`));
  const size = map.tile[0] * map.tile[1] > 1 ? `; a tile is ${map.tile.join(" × ")} elements and shows the largest` : "; a tile is one element";
  return el("figure", { class: "error-map" }, image, el("ul", { class: "key" }, scale), readout,
    el("figcaption", {}, `Error / bound over the whole output ${map.output}, [${map.shape.join(", ")}]${size}${map.shape.length > 2 ? "; the first axes follow each other from top to bottom" : ""}${rows === 1 && columns > across ? "; one axis, folded" : ""}. Where no error is allowed, half a unit in the last place is the bound.`));
}

const levelClass = (level) => (level === "." ? "level level-none" : `level level-${level}`);

function levelNames(data) {
  const limits = data.errorLimits, names = new Map([[".", "nothing asked"], ["S", "wrong NaN or infinity"]]);
  [...data.errorLevels].filter((level) => !names.has(level)).forEach((level, i) =>
    names.set(level, i === 0 ? "no error" : i < limits.length ? `up to ${number(limits[i])}` : `over ${number(limits.at(-1))}`));
  return names;
}

function tileName(map, i) {
  const [rows, columns] = map.tiles, width = map.shape.at(-1) ?? 1, height = map.shape.slice(0, -1).reduce((a, b) => a * b, 1);
  const part = (tile, size, length) => (size === 1 ? String(tile) : `${tile * size} to ${Math.min((tile + 1) * size, length) - 1}`);
  const column = part(i % columns, map.tile[1], width);
  return rows === 1 ? `[${column}]` : `row ${part(Math.floor(i / columns), map.tile[0], height)}, column ${column}`;
}

// Lines between blocks, where there is room for them; rows of blocks start again with each matrix.
function blockLines(map, cell) {
  const [across, down] = [map.tiles[1] * cell, map.tiles[0] * cell], [rows, columns] = map.blocks, parts = [];
  const height = map.shape.at(-2) ?? 1, all = map.shape.slice(0, -1).reduce((a, b) => a * b, 1);
  if (columns && columns / map.tile[1] * cell >= MAP.lines) for (let at = columns; at < map.shape.at(-1); at += columns) parts.push(`M${at / map.tile[1] * cell} 0V${down}`);
  if (rows && rows / map.tile[0] * cell >= MAP.lines) for (let at = 1; at < all; at++) if (at % height % rows === 0) parts.push(`M0 ${at / map.tile[0] * cell}H${across}`);
  return parts.join("");
}

function foldedLines(map, across, cell) {
  const block = map.blocks[1], parts = [];
  if (!block || block / map.tile[1] * cell < MAP.lines) return "";
  for (let at = block; at < map.shape.at(-1); at += block) {
    const tile = at / map.tile[1];
    parts.push(`M${tile % across * cell} ${Math.floor(tile / across) * cell}v${cell}`);
  }
  return parts.join("");
}
