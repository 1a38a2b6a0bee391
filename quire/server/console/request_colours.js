// Which colour each request has, the same in the map of the blocks and in the list, for as long as it lives.

export const PALETTE = 8; // as many as theme.css has

export class RequestColours {
  #places = new Map(); // request's id -> place in the palette

  // Gives each of these a colour, one that few others have, and forgets those that are gone.
  keep(ids) {
    const live = new Set(ids);
    for (const id of this.#places.keys()) if (!live.has(id)) this.#places.delete(id);
    const uses = new Array(PALETTE).fill(0);
    for (const place of this.#places.values()) uses[place] += 1;
    for (const id of live) {
      if (this.#places.has(id)) continue;
      const place = uses.indexOf(Math.min(...uses));
      uses[place] += 1;
      this.#places.set(id, place);
    }
  }

  // Null where the request has no blocks.
  of(id) {
    return this.#places.get(id) ?? null;
  }
}
