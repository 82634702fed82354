/* System, light, dark: set at once, and remembered by the same cookie that the server's form sets. */

const YEAR_S = 365 * 24 * 3600;

export function mount(form) {
  form.addEventListener("submit", (event) => {
    const wanted = event.submitter?.value;
    if (!wanted) return;
    event.preventDefault();
    const root = document.documentElement;
    const secure = location.protocol === "https:" ? "; secure" : "";
    if (wanted === "system") {
      delete root.dataset.theme;
      document.cookie = `theme=; path=/; max-age=0; samesite=lax${secure}`;
    } else {
      root.dataset.theme = wanted;
      document.cookie = `theme=${wanted}; path=/; max-age=${YEAR_S}; samesite=lax${secure}`;
    }
    for (const button of document.querySelectorAll("button[name='theme']")) {
      button.setAttribute("aria-pressed", String(button.value === wanted));
    }
  });
}
