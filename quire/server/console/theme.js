// The theme: the system's, unless the reader chose the other one. Runs before the page is drawn, so it is no module.
(() => {
  const STORED = "quire.theme";
  const systemDark = window.matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;

  const stored = () => {
    try {
      return localStorage.getItem(STORED);
    } catch {
      return null; // storage may be forbidden
    }
  };
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : systemDark.matches);

  if (["light", "dark"].includes(stored())) root.dataset.theme = stored();

  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const show = () => {
      button.setAttribute("aria-pressed", String(isDark()));
      window.dispatchEvent(new Event("themechange"));
    };
    button.addEventListener("click", () => {
      const dark = !isDark();
      if (dark === systemDark.matches) delete root.dataset.theme;
      else root.dataset.theme = dark ? "dark" : "light";
      try {
        if (root.dataset.theme) localStorage.setItem(STORED, root.dataset.theme);
        else localStorage.removeItem(STORED);
      } catch {
        // The choice then lasts as long as the page.
      }
      show();
    });
    systemDark.addEventListener("change", show);
    show();
  });
})();
