// What this tab remembers over a reload. A browser that forbids storage, or has no room, only forgets.

export function load(name, fallback) {
  try {
    const text = sessionStorage.getItem(`quire.${name}`);
    return text === null ? fallback : JSON.parse(text);
  } catch {
    return fallback;
  }
}

// Says whether there was room.
export function save(name, value) {
  try {
    sessionStorage.setItem(`quire.${name}`, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}
