// How the blocks of a pool are laid out in a map: pure arithmetic.

export const TALLEST = 168; // pixels
const LARGEST_CELL = 12;
const WANTED_CELL = 6;
export const SMALLEST_CELL = 3;

// How N blocks are laid out in a width: the side of a cell, cells in a row, rows, and blocks in a cell.
export function layout(blocks, width) {
  const fit = Math.floor(Math.sqrt((width * TALLEST) / Math.max(blocks, 1)));
  for (let cell = Math.min(fit + 1, LARGEST_CELL); cell >= SMALLEST_CELL; cell -= 1) {
    const columns = Math.floor(width / cell);
    const rows = Math.ceil(blocks / columns);
    if (rows * cell <= TALLEST) return { cell, columns, rows, perCell: 1 };
  }
  const columns = Math.floor(width / SMALLEST_CELL);
  const perCell = Math.ceil(blocks / (columns * Math.floor(TALLEST / SMALLEST_CELL)));
  return { cell: SMALLEST_CELL, columns, rows: Math.ceil(blocks / perCell / columns), perCell };
}

// How many blocks are worth a cell: all of a small pool; of a large one twice as many each time more are touched, for
// engines take blocks from the first on, and a few in many thousands could not be seen.
export function shownBlocks(blocks, touched, width) {
  let shown = Math.floor(width / WANTED_CELL) * Math.floor(TALLEST / WANTED_CELL);
  while (shown < touched) shown *= 2;
  return Math.min(blocks, shown);
}

// Runs as the server sends them (value, length, value, length, …) as one value a block.
export function expand(runs, blocks) {
  const values = new Uint32Array(blocks);
  for (let at = 0, run = 0; run < runs.length; run += 2) {
    values.fill(runs[run], at, at + runs[run + 1]);
    at += runs[run + 1];
  }
  return values;
}
